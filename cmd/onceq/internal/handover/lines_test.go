package handover

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

const tooLongMark = "(too long)"

// cut reads all lines of r, each too long one as tooLongMark.
func cut(t *testing.T, r io.Reader, most int) []string {
	t.Helper()
	l := newLineReader(r, most)
	lines := []string{}
	for {
		line, err := l.next()
		switch {
		case errors.Is(err, io.EOF):
			return lines
		case errors.Is(err, errLineTooLong):
			if l.length <= most {
				t.Errorf("line %d of %d bytes is too long for %d", l.number, l.length, most)
			}
			line = []byte(tooLongMark)
		case err != nil:
			t.Fatal(err)
		}
		lines = append(lines, string(line))
		if l.number != len(lines) {
			t.Fatalf("line %d has the number %d", len(lines), l.number)
		}
	}
}

func TestLineReader(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200_000)
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"nothing", "", []string{}},
		{"one line without an end", "a", []string{"a"}},
		{"the end makes no further line", "a\n", []string{"a"}},
		{"empty lines count", "\n\na\n\n", []string{"", "", "a", ""}},
		{"CRLF", "a\r\nb\r\n", []string{"a", "b"}},
		{"a lone CR is no end", "a\rb\n", []string{"a\rb"}},
		{"a CR before the end of the stream", "a\r", []string{"a"}},
		{"mark at the start", "\ufeffa\n\ufeffb", []string{"a", "\ufeffb"}},
		{"as long as allowed", "\ufeff" + long + "\r\nb", []string{long, "b"}},
		{"one byte too long", long + "y\nb\n", []string{tooLongMark, "b"}},
		{"much too long, in the middle", "a\n" + long + long + "\nb", []string{"a", tooLongMark, "b"}},
		{"too long without an end", "a\n" + long + long, []string{"a", tooLongMark}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for name, r := range map[string]io.Reader{
				"at once":       strings.NewReader(tt.text),
				"byte by byte":  iotest.OneByteReader(strings.NewReader(tt.text)),
				"end with data": iotest.DataErrReader(strings.NewReader(tt.text)),
			} {
				if diff := cmp.Diff(tt.want, cut(t, r, len(long))); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}

func TestLineReaderPassesErrorsOn(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	l := newLineReader(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)), 10)
	if line, err := l.next(); err != nil || string(line) != "a" {
		t.Fatalf("the first line is %q, %v", line, err)
	}
	// Half a line is none.
	if line, err := l.next(); !errors.Is(err, broken) {
		t.Fatalf("the second line is %q, %v", line, err)
	}
	if l.number != 1 || l.read != 2 {
		t.Errorf("after line 1 of 2 bytes it is at line %d, byte %d", l.number, l.read)
	}
}

// Whatever the stream, the lines are those of a plain split, and every byte is
// counted.
func FuzzLineReader(f *testing.F) {
	f.Add([]byte("a\r\n\n\ufeffb\nccccccccccccc\nd"))
	f.Fuzz(func(t *testing.T, text []byte) {
		const most = 8
		want := []string{}
		for i, line := range bytes.Split(text, []byte("\n")) {
			if i == bytes.Count(text, []byte("\n")) && len(line) == 0 {
				break
			}
			if i == 0 {
				line = bytes.TrimPrefix(line, byteOrderMark)
			}
			line = bytes.TrimSuffix(line, []byte("\r"))
			if len(line) > most {
				line = []byte(tooLongMark)
			}
			want = append(want, string(line))
		}
		if diff := cmp.Diff(want, cut(t, bytes.NewReader(text), most)); diff != "" {
			t.Errorf("lines of %q (-want +got):\n%s", text, diff)
		}
	})
}
