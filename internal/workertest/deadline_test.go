package workertest_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// wantExceeded waits until the job is dead for its deadline.
func wantExceeded(t testing.TB, c *queue.Client, id queue.JobID, attempts int) {
	t.Helper()
	job := awaitState(t, c, id, queue.StateDead)
	if !strings.Contains(job.LastError, "deadline exceeded") {
		t.Errorf("a job whose deadline passed must be dead with the error %q, it has %q", "deadline exceeded", job.LastError)
	}
	if job.Attempt != attempts {
		t.Errorf("attempts at the deadline: %d, want %d", job.Attempt, attempts)
	}
}

func TestDeadline_pastAtEnqueue(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"a worker", "maintenance by hand"} {
		t.Run("seen by "+by, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			c := newClient(t, pool, queue.Config{})
			late := queue.Request{Type: workType, Priority: 100, Deadline: time.Now().Add(-time.Hour), Admission: queue.Idempotency{Key: "late"}}
			id := accept(t, c, late)
			scheduled := accept(t, c, queue.Request{Deadline: time.Now().Add(-time.Hour), RunAt: time.Now().Add(time.Hour)})
			w := newWorker(t, c, one("a"))
			work := handle(t, workType, w)
			if by == "a worker" {
				start(t, w)
				accept(t, c, queue.Request{})
				got := work.next(t)
				if got.job.ID == id {
					t.Fatal("a job whose deadline had passed was started")
				}
				defer got.end(nil)
			} else {
				maintain(t, c)
			}
			wantExceeded(t, c, id, 0)
			wantExceeded(t, c, scheduled, 0)
			wantKinds(t, c, id, queue.EventAccepted, queue.EventDead)
			wantAnswer(t, c, late, queue.Result{JobID: id, Outcome: queue.OutcomeReplayed, Dead: true})
		})
	}
}

func TestDeadline_passesWhileWaiting(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	work := handle(t, workType, w)
	start(t, w)
	accept(t, c, queue.Request{})
	blocker := work.next(t)
	deadline := clock(t, pool).Add(150 * time.Millisecond)
	behind := accept(t, c, queue.Request{Deadline: deadline})
	scheduled := accept(t, c, queue.Request{Deadline: deadline, RunAt: deadline.Add(time.Hour)})
	unhandled := accept(t, c, queue.Request{Type: "strange", Deadline: deadline})
	after := accept(t, c, queue.Request{})
	awaitClock(t, pool, deadline)
	blocker.end(nil)
	if got := work.next(t); got.job.ID != after {
		t.Errorf("job %s was started after its deadline", got.job.ID)
	} else {
		got.end(nil)
	}
	for _, id := range []queue.JobID{behind, scheduled, unhandled} {
		wantExceeded(t, c, id, 0)
	}
}

// However the handler takes it, a job whose deadline passed while it ran is dead.
func TestDeadline_passesWhileRunning(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{Queues: map[string]int{"default": 5}})
	work := handle(t, workType, w)
	start(t, w)
	for name, result := range map[string]error{
		"its context's error": errors.New("context ended"),
		"an error":            errNotYet,
		"an early retry":      queue.RetryAfter(errNotYet, 0),
		"nothing":             nil,
	} {
		req := queue.Request{Type: workType, Deadline: clock(t, pool).Add(300 * time.Millisecond), Retry: queue.Fixed{}, Admission: queue.Idempotency{Key: name}}
		id := accept(t, c, req)
		first := work.next(t)
		if d, ok := first.ctx.Deadline(); ok && d.Sub(req.Deadline).Abs() > 100*time.Millisecond {
			t.Errorf("the handler's context says its deadline is %v, the job's is %v", d, req.Deadline)
		}
		first.wantCause(t, queue.ErrDeadlineExceeded)
		if late := clock(t, pool).Sub(req.Deadline); late < 0 || late > time.Second {
			t.Errorf("the handler's context ended %v after the deadline", late)
		}
		first.end(result)
		wantExceeded(t, c, id, 1)
		wantAnswer(t, c, req, queue.Result{JobID: id, Outcome: queue.OutcomeReplayed, Dead: true})
	}
	work.none(t, 100*time.Millisecond, "a job whose deadline passed is never retried")
}

// A handler that goes on regardless can't keep the job from being dead.
func TestDeadline_passesUnderAStuckHandler(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	work := handle(t, workType, w)
	start(t, w)
	id := accept(t, c, queue.Request{Deadline: clock(t, pool).Add(300 * time.Millisecond)})
	first := work.next(t)
	first.wantCause(t, queue.ErrDeadlineExceeded)
	expire(t, pool, id) // the worker is gone, and nobody will hear of it
	maintain(t, c)
	wantExceeded(t, c, id, 1)
	first.end(nil)
}

func TestDeadline_passesWhileWaitingForARetry(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	work := handle(t, workType, w)
	start(t, w)
	deadline := clock(t, pool).Add(400 * time.Millisecond)
	id := accept(t, c, queue.Request{Deadline: deadline, Retry: queue.Fixed{Delay: time.Hour}})
	work.next(t).end(errNotYet)
	wantExceeded(t, c, id, 1)
	if job := info(t, c, id); job.FinishedAt.Before(deadline) {
		t.Errorf("the job died %v before its deadline", deadline.Sub(job.FinishedAt))
	}
}

// The two limits are one for the attempt and one for the job.
func TestDeadline_andExecutionTimeout(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	work := handle(t, workType, w)
	start(t, w)
	id := accept(t, c, queue.Request{
		Deadline: clock(t, pool).Add(700 * time.Millisecond), ExecutionTimeout: 300 * time.Millisecond,
		Retry: queue.Fixed{}, MaxAttempts: 10,
	})
	attempts := 0
	for cause := error(nil); !errors.Is(cause, queue.ErrDeadlineExceeded); attempts++ {
		if attempts == 5 {
			t.Fatal("the deadline never ended an attempt")
		}
		got := work.next(t)
		cause = got.cause(t)
		if attempts == 0 && errors.Is(cause, queue.ErrDeadlineExceeded) {
			t.Errorf("the first attempt's timeout came before the deadline, but its context ended with %v", cause)
		}
		got.end(cause)
	}
	if attempts < 2 {
		t.Errorf("an attempt that timed out before the deadline must be retried")
	}
	wantExceeded(t, c, id, attempts)

	// The deadline first: no timeout, no retry.
	id = accept(t, c, queue.Request{Deadline: clock(t, pool).Add(200 * time.Millisecond), ExecutionTimeout: 400 * time.Millisecond, Retry: queue.Fixed{}})
	got := work.next(t)
	got.wantCause(t, queue.ErrDeadlineExceeded)
	got.end(got.ctx.Err())
	wantExceeded(t, c, id, 1)

	// The timeout first, but the attempt fails only after the deadline.
	deadline := clock(t, pool).Add(400 * time.Millisecond)
	id = accept(t, c, queue.Request{Deadline: deadline, ExecutionTimeout: 100 * time.Millisecond, Retry: queue.Fixed{}})
	got = work.next(t)
	got.cause(t)
	awaitClock(t, pool, deadline)
	got.end(got.ctx.Err())
	wantExceeded(t, c, id, 1)
}

// Far instants and long times are no reason to fire at once.
func TestDeadline_farAway(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	work := handle(t, workType, w)
	start(t, w)
	for _, year := range []int{2100, 2400, 9999, 294_276} {
		id := accept(t, c, queue.Request{Deadline: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), ExecutionTimeout: 365 * 24 * time.Hour})
		got := work.next(t)
		got.wantAlive(t, "the deadline is far away")
		if got.job.Deadline.Year() != year {
			t.Errorf("the handler sees a deadline in the year %d, want %d", got.job.Deadline.Year(), year)
		}
		got.end(nil)
		awaitState(t, c, id, queue.StateSucceeded)
	}
}
