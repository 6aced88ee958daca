package schema

import (
	"bytes"
	"io/fs"
	"time"

	"github.com/onceq/onceq/internal/schemaname"
)

// inSchema is a file system of SQL in which another schema stands in the place
// of "onceq".
type inSchema struct {
	fs.FS
	schema string
}

// Open reads the whole file, so that the rewriting sees it in one piece.
func (f inSchema) Open(name string) (fs.File, error) {
	file, err := f.FS.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil || info.IsDir() {
		return file, err
	}
	defer file.Close()
	text, err := fs.ReadFile(f.FS, name)
	if err != nil {
		return nil, err
	}
	text = []byte(schemaname.Rewrite(string(text), f.schema))
	return &rewritten{Reader: bytes.NewReader(text), info: sized{info, int64(len(text))}}, nil
}

// ReadDir lists the folder; names don't change.
func (f inSchema) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(f.FS, name) }

type rewritten struct {
	*bytes.Reader
	info fs.FileInfo
}

func (r *rewritten) Stat() (fs.FileInfo, error) { return r.info, nil }
func (r *rewritten) Close() error               { return nil }

type sized struct {
	fs.FileInfo
	size int64
}

func (s sized) Size() int64        { return s.size }
func (s sized) ModTime() time.Time { return time.Time{} }
