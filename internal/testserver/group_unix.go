//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// endings are the signals that are passed on.
var endings = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// group puts cmd and all that it starts into a process group: `go test` does
// not pass a signal on to the test binaries that it runs.
func group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// deliver signals the whole group. That it is gone already is no error.
func deliver(cmd *exec.Cmd, sig os.Signal) {
	_ = syscall.Kill(-cmd.Process.Pid, sig.(syscall.Signal))
}

// awaitGroup waits until nothing of the group is left, and kills what is left
// when it is late: `go test` ends at once on a signal, while the test binaries
// still clean up after themselves.
func awaitGroup(cmd *exec.Cmd, late <-chan time.Time) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for syscall.Kill(-cmd.Process.Pid, 0) == nil {
		select {
		case <-late:
			deliver(cmd, syscall.SIGKILL)
			return
		case <-tick.C:
		}
	}
}

func signalNumber(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return int(status.Signal())
	}
	return 0
}
