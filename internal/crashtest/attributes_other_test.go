//go:build unix && !linux

package crashtest

import "syscall"

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
