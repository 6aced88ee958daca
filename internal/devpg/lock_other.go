//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package devpg

import "os"

// tryLock takes the lock of a folder that is being made, whose lock file is
// still empty, and no other. Without a lock that dies with its holder nothing
// tells whether a folder is in use, so none is ever taken to be abandoned.
func tryLock(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Size() > 0 {
		return false
	}
	_, err = f.WriteString("taken\n")
	return err == nil
}
