package devpg

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a running child. One goroutine owns it: it starts the child and
// waits for it.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child has ended
}

// launch starts cmd. Where the kernel ends a child whose parent dies, the
// parent is the thread that made it, so that thread is kept for the purpose.
func launch(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(p.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // The server's log says more than its exit code.
		}
	}()
	if err := <-started; err != nil {
		<-p.done
		return nil, err
	}
	return p, nil
}

// run is launch for a child that does its work and ends. It returns what the
// child printed.
func run(cmd *exec.Cmd) ([]byte, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return cmd.CombinedOutput()
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// end stops the server: first politely, closing its clients' connections,
// then at once, then by force. A done ctx skips the waiting for the first.
func (p *process) end(ctx context.Context) {
	for _, step := range []struct {
		signal os.Signal
		wait   time.Duration
		hurry  <-chan struct{}
	}{
		{syscall.SIGINT, 10 * time.Second, ctx.Done()}, // PostgreSQL's fast shutdown
		{syscall.SIGQUIT, 10 * time.Second, nil},       // its immediate shutdown; it kills what hangs after 5 s
		{os.Kill, 10 * time.Second, nil},
	} {
		if p.ended() {
			return
		}
		if p.cmd.Process.Signal(step.signal) != nil {
			continue // ended just now, or a system without this signal
		}
		timer := time.NewTimer(step.wait)
		select {
		case <-p.done:
		case <-step.hurry:
		case <-timer.C:
		}
		timer.Stop()
	}
	<-p.done
}
