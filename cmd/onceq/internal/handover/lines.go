package handover

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// MaxLineBytes bounds a line without its end: as much as the largest payload.
const MaxLineBytes = 16 << 20

// byteOrderMark may stand before the first line; some programs put it there.
var byteOrderMark = []byte("\ufeff")

// lineReader cuts a stream into lines that end with LF or CRLF, or with the
// stream. It never holds more than a line, and of a line that is too long
// nothing at all.
type lineReader struct {
	r      *bufio.Reader
	most   int
	number int   // the number of the last line read, from 1
	read   int64 // bytes of the stream up to and with that line
	length int   // bytes of that line without its end, also when it is too long
}

func newLineReader(r io.Reader, most int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10), most: most}
}

var errLineTooLong = errors.New("line too long")

// next returns the next line, without its end, for the caller to keep. After
// errLineTooLong the line after that one comes next; after any other error,
// such as io.EOF, nothing does.
func (l *lineReader) next() ([]byte, error) {
	var line []byte
	size, whole := 0, true
	for more := true; more; {
		part, err := l.r.ReadSlice('\n')
		size += len(part)
		// With the line come its end and, before the first one, the mark.
		if whole = size <= l.most+len(byteOrderMark)+2; whole {
			line = append(line, part...)
		} else {
			line = nil
			l.length = size - len(part) + len(withoutEnd(part))
		}
		switch {
		case err == nil, errors.Is(err, io.EOF) && size > 0:
			more = false
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
	l.number++
	l.read += int64(size)
	if whole {
		line = withoutEnd(line)
		if l.number == 1 {
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		l.length = len(line)
	}
	if l.length > l.most {
		return nil, errLineTooLong
	}
	return line, nil
}

func withoutEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}
