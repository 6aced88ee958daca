package crashtest

import "syscall"

// attributes let the kernel end a child when we are killed, also a paused one.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
