//go:build unix && !linux

package devpg

import (
	"os"
	"os/exec"
	"syscall"
)

// prepare makes cmd run as who and hold the folder's lock. The server stays in
// our process group: without a death signal that is what ends it when Ctrl-C
// ends us.
func prepare(cmd *exec.Cmd, who *account, lock *os.File) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who.credential()}
	cmd.ExtraFiles = []*os.File{lock}
}
