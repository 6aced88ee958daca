package workertest_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// stopping is a config with a time to drain.
func stopping(d time.Duration) queue.WorkerConfig {
	cfg := calm("a")
	cfg.ShutdownTimeout = d
	return cfg
}

func TestShutdown_whileIdle(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]queue.Config{"with notifications": {}, "polling only": {PollOnly: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, pgtest.New(t), cfg)
			w := newWorker(t, c, queue.WorkerConfig{PollInterval: time.Hour, Lease: time.Hour, ShutdownTimeout: time.Hour,
				Queues: map[string]int{"default": 10, "other": 1}})
			work := handle(t, workType, w)
			accept(t, c, queue.Request{})
			r := start(t, w)
			work.next(t).end(nil) // it is at work
			if err := r.stop(t); err != nil {
				t.Errorf("the end of an idle worker: %v", err)
			}
		})
	}
}

// Handlers get their time, and nothing new is started.
func TestShutdown_whileHandlersRun(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	cfg := stopping(time.Minute)
	cfg.Lease = shortLease // it has to be renewed while the worker drains
	cfg.Queues = map[string]int{"default": 2}
	w := newWorker(t, c, cfg)
	work := handle(t, workType, w)
	ids := acceptMany(t, c, many(4, queue.Request{MaxAttempts: 1}))
	r := start(t, w)
	first, second := work.next(t), work.next(t)
	until := pgtest.Clock(t, pool).Add(3 * shortLease / 2)
	r.cancel()
	pgtest.AwaitClock(t, pool, until)
	maintain(t, c)
	first.wantAlive(t, "handlers may go on for the shutdown timeout of a minute")
	second.wantAlive(t, "handlers may go on for the shutdown timeout of a minute")
	select {
	case <-r.done:
		t.Fatal("Run has returned while handlers run")
	default:
	}
	first.end(nil)
	work.none(t, 100*time.Millisecond, "a worker that shuts down claims nothing more")
	second.end(errors.New("failed while shutting down"))
	if err := r.stop(t); err != nil {
		t.Errorf("a clean drain: %v", err)
	}
	states := map[queue.State]int{}
	for _, id := range ids {
		job := info(t, c, id)
		states[job.State]++
		if job.State == queue.StateReady && job.Attempt != 0 {
			t.Errorf("a job that was not started counts %d attempts", job.Attempt)
		}
	}
	if states[queue.StateSucceeded] != 1 || states[queue.StateDead] != 1 || states[queue.StateReady] != 2 {
		t.Errorf("after the drain the jobs are %v, want what their handlers returned and two that wait", states)
	}
}

// After the timeout handlers are told, and their jobs go back uncharged.
func TestShutdown_handsJobsBack(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	id := accept(t, c, queue.Request{MaxAttempts: 2, Retry: queue.Fixed{Delay: time.Hour}})
	// Three rolling restarts, none of which counts.
	for range 3 {
		w := newWorker(t, c, stopping(50*time.Millisecond))
		work := handle(t, workType, w)
		r := start(t, w)
		got := work.next(t)
		if got.job.Attempt != 1 {
			t.Errorf("a hand-back must not spend an attempt, this one is number %d", got.job.Attempt)
		}
		r.cancel()
		cause := got.cause(t)
		for _, other := range []error{queue.ErrLeaseLost, queue.ErrCancelled, queue.ErrDeadlineExceeded} {
			if errors.Is(cause, other) {
				t.Errorf("a shutdown must not look like %v", other)
			}
		}
		got.end(fmt.Errorf("gave up: %w", got.ctx.Err()))
		if err := r.stop(t); err != nil {
			t.Errorf("handlers that return when told make a clean drain: %v", err)
		}
		if job := info(t, c, id); job.State != queue.StateReady || job.Attempt != 0 {
			t.Errorf("a job that was handed back must be ready, with no attempt spent: it is %s after %d", job.State, job.Attempt)
		}
	}
	w := newWorker(t, c, stopping(time.Minute))
	work := handle(t, workType, w)
	start(t, w)
	work.next(t).end(nil)
	if job := awaitState(t, c, id, queue.StateSucceeded); job.Attempt != 1 {
		t.Errorf("succeeded at attempt %d, want 1", job.Attempt)
	}
	if n := count(t, c, id, queue.EventReleased); n != 3 {
		t.Errorf("three hand-backs, the timeline tells of %d", n)
	}
}

// A handler that makes it after all has succeeded.
func TestShutdown_successAfterTheTimeout(t *testing.T) {
	t.Parallel()
	c := newClient(t, pgtest.New(t), queue.Config{})
	w := newWorker(t, c, stopping(20*time.Millisecond))
	work := handle(t, workType, w)
	id := accept(t, c, queue.Request{})
	r := start(t, w)
	got := work.next(t)
	r.cancel()
	got.cause(t)
	got.end(nil)
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
	awaitState(t, c, id, queue.StateSucceeded)
}

// A handler that ignores its context can't keep Run from ending, with an error.
func TestShutdown_handlerIgnoresItsContext(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	cfg := stopping(50 * time.Millisecond)
	cfg.Lease = 2 * time.Second
	w := newWorker(t, c, cfg)
	work := handle(t, workType, w)
	id := accept(t, c, queue.Request{})
	r := start(t, w)
	r.strays = true
	stuck := work.next(t)
	r.cancel()
	if err := r.wait(t); err == nil {
		t.Error("Run must return an error when a handler did not")
	}
	// The job comes back when its lease ends.
	other := newWorker(t, c, calm("b"))
	next := handle(t, workType, other)
	start(t, other)
	second := next.next(t)
	if second.job.ID != id || second.job.Attempt != 2 {
		t.Errorf("attempt %d of job %s runs, want 2 of %s", second.job.Attempt, second.job.ID, id)
	}
	stuck.end(nil)
	second.end(nil)
	if job := awaitState(t, c, id, queue.StateSucceeded); job.WorkerID != "b" {
		t.Errorf("recorded is the success of worker %q", job.WorkerID)
	}
}

// However PostgreSQL is away, a worker ends, within its own limits and not
// within those of its leases.
func TestShutdown_whilePostgreSQLIsAway(t *testing.T) {
	t.Parallel()
	for way, tt := range map[string]struct {
		disturb func(*link)
		at      []string
	}{
		"connections break":    {(*link).sever, []string{"idle", "handler running"}},
		"nothing gets through": {(*link).hold, []string{"idle", "handler just ended"}},
	} {
		for _, at := range tt.at {
			t.Run(at+", "+way, func(t *testing.T) {
				t.Parallel()
				disturb := tt.disturb
				direct := pgtest.New(t)
				pool, l := linked(t, direct)
				c := newClient(t, pool, queue.Config{})
				cfg := stopping(300 * time.Millisecond)
				cfg.Queues = map[string]int{"default": 2}
				w := newWorker(t, c, cfg)
				work := handle(t, workType, w)
				acceptMany(t, newClient(t, direct, queue.Config{}), many(1, queue.Request{}))
				r := start(t, w)
				r.strays = true // Run may return an error here
				got := work.next(t)
				switch at {
				case "idle":
					got.end(nil)
					pgtest.Await(t, "the job to be recorded", func() bool { return pgtest.Scan[int](t, direct, `SELECT count(*) FROM onceq.finished`) == 1 })
					disturb(l)
				case "handler running":
					disturb(l)
				case "handler just ended":
					disturb(l)
					got.end(nil)
				}
				// The worker has had time to ask for more, in vain.
				pgtest.AwaitClock(t, direct, pgtest.Clock(t, direct).Add(200*time.Millisecond))
				begin := time.Now()
				r.cancel()
				if at == "handler running" {
					got.cause(t)
					got.end(got.ctx.Err())
				}
				err := r.wait(t)
				t.Logf("Run returned after %v: %v", time.Since(begin).Round(time.Millisecond), err)
				// What it started is gone too, a little later.
				l.restore()
				pgtest.Await(t, "the worker's goroutines to end", func() bool { return r.goroutines() == "" })
			})
		}
	}
}

func TestRun_mayBeCalledOnce(t *testing.T) {
	t.Parallel()
	c := newClient(t, pgtest.New(t), queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{})
	work := handle(t, workType, w)
	r := start(t, w)
	accept(t, c, queue.Request{})
	work.next(t).end(nil)
	if err := w.Run(t.Context()); err == nil {
		t.Error("a second Run beside the first must be refused")
	}
	if err := r.stop(t); err != nil {
		t.Errorf("the first Run was disturbed by the second: %v", err)
	}
	if err := w.Run(t.Context()); err == nil {
		t.Error("a second Run after the first must be refused")
	}
}

func TestRun_withoutAHandler(t *testing.T) {
	t.Parallel()
	c := newClient(t, pgtest.New(t), queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{})
	r := start(t, w)
	r.strays = true
	if err := r.wait(t); err == nil {
		t.Error("a worker without a handler must say so")
	}
	if left := r.goroutines(); left != "" {
		t.Errorf("goroutines have outlived Run:\n%s", left)
	}
}

func TestRun_withoutTheSchema(t *testing.T) {
	t.Parallel()
	c := newClient(t, pgtest.NewEmpty(t), queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{})
	handle(t, workType, w)
	r := start(t, w)
	r.strays = true
	if err := r.wait(t); !errors.Is(err, queue.ErrSchemaOutdated) {
		t.Errorf("a worker on a database without the schema: %v, want ErrSchemaOutdated at once", err)
	}
}

func TestRun_withAnEndedContext(t *testing.T) {
	t.Parallel()
	c := newClient(t, pgtest.New(t), queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{})
	work := handle(t, workType, w)
	id := accept(t, c, queue.Request{})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := w.Run(ctx); err != nil {
		t.Errorf("Run with a context that has ended: %v", err)
	}
	work.none(t, 50*time.Millisecond, "the worker was never meant to work")
	if job := info(t, c, id); job.State != queue.StateReady || job.Attempt != 0 {
		t.Errorf("the job is %s after %d attempts", job.State, job.Attempt)
	}
}

// Workers that start while PostgreSQL is away begin when it comes, and go on
// after it was away.
func TestRun_outlivesPostgreSQLsAbsence(t *testing.T) {
	t.Parallel()
	direct := pgtest.New(t)
	pool, l := linked(t, direct)
	c, watch := newClient(t, pool, queue.Config{}), newClient(t, direct, queue.Config{})
	l.sever()
	w := newWorker(t, c, queue.WorkerConfig{})
	work := handle(t, workType, w)
	id := accept(t, watch, queue.Request{})
	start(t, w)
	work.none(t, 150*time.Millisecond, "PostgreSQL is away")
	l.restore()
	work.next(t).end(nil)
	awaitState(t, watch, id, queue.StateSucceeded)
	for range 2 {
		pgtest.Exec(t, direct, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		l.sever()
		id = accept(t, watch, queue.Request{})
		pgtest.AwaitClock(t, direct, pgtest.Clock(t, direct).Add(150*time.Millisecond))
		l.restore()
		work.next(t).end(nil)
		awaitState(t, watch, id, queue.StateSucceeded)
	}
}

// A worker hears notifications again after its connection for them was lost.
func TestRun_listensAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{PollInterval: time.Hour})
	work := handle(t, workType, w)
	start(t, w)
	for range 3 {
		id := accept(t, c, queue.Request{})
		work.next(t).end(nil)
		awaitState(t, c, id, queue.StateSucceeded)
		pgtest.Exec(t, pool, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE 'LISTEN%'`)
	}
}

// Workers that come and go, in the middle of claims too, leave no job behind
// and charge no attempt.
func TestShutdown_inTheMiddleOfClaims(t *testing.T) {
	t.Parallel()
	const jobs = 300
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	acceptMany(t, c, many(jobs, queue.Request{MaxAttempts: 1}))
	var handled atomic.Int64
	rounds := 0
	for ; rounds < 40 && handled.Load() < jobs; rounds++ {
		cfg := queue.WorkerConfig{Queues: map[string]int{"default": 10}, ShutdownTimeout: time.Minute}
		w := newWorker(t, c, cfg)
		begun := make(chan struct{}, jobs)
		queue.Handle(w, workType, func(ctx context.Context, _ *queue.Job[any]) error {
			begun <- struct{}{}
			handled.Add(1)
			return pause(ctx, time.Millisecond)
		})
		r := start(t, w)
		awaitClosed(t, "a first handler", begun)
		r.cancel()
		if err := r.stop(t); err != nil {
			t.Fatal(err)
		}
		if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.running`); n != 0 {
			t.Fatalf("%d jobs are held by a worker that has shut down", n)
		}
	}
	t.Logf("%d jobs ran in %d short lives", handled.Load(), rounds)
	succeeded := pgtest.Scan[int64](t, pool, `SELECT count(*) FROM onceq.finished WHERE state = 1 AND attempt = 1`)
	waiting := pgtest.Scan[int64](t, pool, `SELECT count(*) FROM onceq.pending WHERE attempt = 0`)
	if succeeded != handled.Load() || succeeded+waiting != jobs {
		t.Errorf("%d handlers ran, %d jobs succeeded and %d of %d wait uncharged", handled.Load(), succeeded, waiting, jobs)
	}
}
