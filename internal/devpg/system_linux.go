package devpg

import (
	"os"
	"os/exec"
	"syscall"
)

// prepare makes cmd run as who and hold the folder's lock. The server dies
// with us, even if we are killed, and a Ctrl-C at the terminal does not reach
// it: its owner decides when it ends.
func prepare(cmd *exec.Cmd, who *account, lock *os.File) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGINT, Setpgid: true, Credential: who.credential()}
	cmd.ExtraFiles = []*os.File{lock}
}
