//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package devpg

import (
	"os"
	"syscall"
)

// tryLock takes the lock of f without waiting. It belongs to the open file:
// a server that inherits the file holds it too, and the end of the last
// holder, however it comes, frees it.
func tryLock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
