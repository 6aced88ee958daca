package workertest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/pkg/queue"
)

// newWorker returns a worker; it must be a good config. Its poll interval and
// its time to shut down are short unless the config says otherwise.
func newWorker(t testing.TB, c *queue.Client, cfg queue.WorkerConfig) *queue.Worker {
	t.Helper()
	if cfg.PollInterval == 0 {
		cfg.PollInterval = 25 * time.Millisecond
	}
	if cfg.ShutdownTimeout == 0 {
		cfg.ShutdownTimeout = 5 * time.Second
	}
	w, err := queue.NewWorker(c, cfg)
	if err != nil {
		t.Fatalf("NewWorker refuses a good config: %v", err)
	}
	return w
}

// one is the config of a worker that runs one handler at a time.
func one(id string) queue.WorkerConfig {
	return queue.WorkerConfig{ID: id, Queues: map[string]int{"default": 1}}
}

// calm is one whose heartbeats are so far apart that the test alone decides
// about its leases.
func calm(id string) queue.WorkerConfig {
	cfg := one(id)
	cfg.Lease = time.Hour
	return cfg
}

// run is a worker at work.
type run struct {
	mark   string // the label of every goroutine it started
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done
	strays bool  // handlers that don't return are part of the test
}

var runs atomic.Int64

// start runs the worker until the test is over or stop is called.
func start(t testing.TB, w *queue.Worker) *run {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &run{mark: fmt.Sprintf("run-%d.", runs.Add(1)), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		pprof.Do(ctx, pprof.Labels("worker", r.mark), func(ctx context.Context) { r.err = w.Run(ctx) })
	}()
	t.Cleanup(func() {
		if err := r.stop(t); err != nil && !r.strays {
			t.Errorf("a worker must shut down without an error here, got: %v", err)
		}
	})
	return r
}

// stop ends the worker and returns what Run returned. No goroutine may outlive
// Run.
func (r *run) stop(t testing.TB) error {
	t.Helper()
	r.cancel()
	return r.wait(t)
}

// wait is stop without ending the worker.
func (r *run) wait(t testing.TB) error {
	t.Helper()
	awaitClosed(t, "Run to return", r.done)
	if r.strays {
		return r.err
	}
	var left string
	for give := time.Now().Add(10 * time.Second); time.Now().Before(give); time.Sleep(5 * time.Millisecond) {
		if left = r.goroutines(); left == "" {
			return r.err
		}
	}
	t.Errorf("goroutines have outlived Run:\n%s", left)
	return r.err
}

// goroutines returns the stacks of the worker's goroutines.
func (r *run) goroutines() string {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return err.Error()
	}
	var mine []string
	for stack := range strings.SplitSeq(all.String(), "\n\n") {
		if strings.Contains(stack, r.mark) {
			mine = append(mine, stack)
		}
	}
	return strings.Join(mine, "\n\n")
}

// errTestOver is returned by handlers that the test has left behind.
var errTestOver = errors.New("the test is over")

// calls is the handler of a job type that does what the test says.
type calls struct{ came chan *call }

// call is a handler at work.
type call struct {
	ctx   context.Context
	job   *queue.Job[json.RawMessage]
	reply chan error
}

// handle registers such a handler with all workers.
func handle(t testing.TB, jobType string, workers ...*queue.Worker) *calls {
	all := &calls{make(chan *call)}
	over := t.Context().Done()
	for _, w := range workers {
		queue.Handle(w, jobType, func(ctx context.Context, job *queue.Job[json.RawMessage]) error {
			c := &call{ctx, job, make(chan error, 1)}
			select {
			case all.came <- c:
			case <-over:
				return errTestOver
			}
			select {
			case err := <-c.reply:
				return err
			case <-over:
				return errTestOver
			}
		})
	}
	return all
}

// next waits for a handler to start.
func (a *calls) next(t testing.TB) *call {
	t.Helper()
	return awaitClosed(t, "a handler to start", a.came)
}

// none fails the test if a handler starts within d.
func (a *calls) none(t testing.TB, d time.Duration, why string) {
	t.Helper()
	select {
	case c := <-a.came:
		t.Errorf("%s, but the handler of job %s was started (attempt %d)", why, c.job.ID, c.job.Attempt)
		c.end(nil)
	case <-time.After(d):
	}
}

// end has the handler return err.
func (c *call) end(err error) { c.reply <- err }

// cause waits until the handler's context ends and returns why.
func (c *call) cause(t testing.TB) error {
	t.Helper()
	awaitClosed(t, "the handler's context to end", c.ctx.Done())
	return context.Cause(c.ctx)
}

// wantCause fails the test unless the handler's context ends with this cause.
func (c *call) wantCause(t testing.TB, want error) {
	t.Helper()
	if got := c.cause(t); !errors.Is(got, want) {
		t.Errorf("the handler's context must end with cause %q, got %q", want, got)
	}
}

// wantAlive fails the test if the handler's context has ended.
func (c *call) wantAlive(t testing.TB, why string) {
	t.Helper()
	if c.ctx.Err() != nil {
		t.Errorf("%s, but the handler's context has ended: %v", why, context.Cause(c.ctx))
	}
}
