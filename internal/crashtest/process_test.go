//go:build unix

package crashtest

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/pgtest"
)

// envWorker holds the spec of the worker that this binary was started again for.
const envWorker = "ONCEQ_CRASHTEST_WORKER"

// spec is what a worker process is told.
type spec struct {
	URL      string
	ID       string
	Lease    time.Duration
	Handlers int
}

// process is a running worker process.
type process struct {
	id    string
	cmd   *exec.Cmd
	stdin io.Closer // its end ends the process, should we die
	said  *log
	done  chan struct{} // closed when it has ended
}

// start starts a worker process. It is killed when the test ends.
func start(t testing.TB, s spec) *process {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{id: s.ID, cmd: exec.Command(os.Args[0]), said: &log{}, done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), envWorker+"="+string(text))
	p.cmd.Stdout, p.cmd.Stderr = p.said, p.said
	p.cmd.SysProcAttr = attributes()
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	started := make(chan error)
	go func() {
		defer close(p.done)
		// Where the kernel ends a child with its parent, the parent is this thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // It was killed, or said why it ended.
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		said := p.said.bytes()
		if bytes.Contains(said, []byte("DATA RACE")) {
			t.Errorf("worker %s has a data race:\n%s", p.id, said)
		} else if t.Failed() && len(said) > 0 {
			t.Logf("worker %s said:\n%s", p.id, said)
		}
	})
	return p
}

// kill is the sudden death of the process, also of a paused one.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // It may have ended by itself.
	<-p.done
	_ = p.stdin.Close()
}

// stop asks the worker to drain and waits for its end.
func (p *process) stop(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(pgtest.Patience):
		t.Fatalf("worker %s did not end in %v", p.id, pgtest.Patience)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("worker %s drained with exit code %d", p.id, code)
	}
}

// pause stops all threads of the process until resume.
func (p *process) pause(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
}

func (p *process) resume(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGCONT)
}

func (p *process) signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("worker %s: %v: %v", p.id, s, err)
	}
}

// log is the beginning of what a process writes.
type log struct {
	mu   sync.Mutex
	said bytes.Buffer
}

const logBytes = 16 << 10

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if room := logBytes - l.said.Len(); room > 0 {
		l.said.Write(b[:min(len(b), room)])
	}
	return len(b), nil
}

func (l *log) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.said.Bytes())
}
