package devpg

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// folder is the temporary folder of one server. Its lock is held while the
// process that made it or the server itself lives, so that whoever can take
// the lock knows that both died without cleaning up.
type folder struct {
	path string
	lock *os.File
}

const (
	folderPattern = "onceq-pg-*"
	lockName      = "lock"
	containerName = "container" // holds the id of the folder's container, if any
)

// newFolder makes a folder inside parent, or in the usual place for temporary
// files if parent is "".
func newFolder(parent string) (*folder, error) {
	path, err := os.MkdirTemp(parent, folderPattern)
	if err != nil {
		return nil, fmt.Errorf("make a temporary folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil && !tryLock(lock) {
		err = fmt.Errorf("lock %s: somebody else holds it", lock.Name())
	}
	if err != nil {
		os.RemoveAll(path)
		return nil, err
	}
	return &folder{path: path, lock: lock}, nil
}

func (f *folder) file(name string) string { return filepath.Join(f.path, name) }

// containerID is the container that this folder stands for, or "".
func (f *folder) containerID() string {
	id, err := os.ReadFile(f.file(containerName))
	if err != nil {
		return ""
	}
	return string(id)
}

// remove deletes the folder. The lock goes last, or somebody else might find
// the folder abandoned and delete it at the same time.
func (f *folder) remove() error {
	err := os.RemoveAll(f.path)
	f.lock.Close()
	return err
}

// abandoned returns the folders of servers whose owners were killed before
// they could clean up. The caller removes or releases each.
func abandoned() []*folder {
	var paths []string
	for _, parent := range []string{os.TempDir(), memoryMount} {
		more, _ := filepath.Glob(filepath.Join(parent, folderPattern))
		paths = append(paths, more...)
	}
	var found []*folder
	for _, path := range paths {
		if info, err := os.Lstat(path); err != nil || !info.IsDir() {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		// A very young folder may be one that its maker has yet to lock.
		info, err := lock.Stat()
		if err != nil || time.Since(info.ModTime()) < time.Minute || !tryLock(lock) {
			lock.Close()
			continue
		}
		found = append(found, &folder{path: path, lock: lock})
	}
	return found
}
