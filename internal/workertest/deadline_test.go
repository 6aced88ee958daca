package workertest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

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

// underDeadline enqueues a request and waits for its handler, with a deadline as
// far ahead as this machine needs at the moment.
func underDeadline(t testing.TB, pool *pgxpool.Pool, c *queue.Client, work *calls, ahead time.Duration, req queue.Request) (first *call, got queue.Request) {
	t.Helper()
	for try := 0; try < 6; try++ {
		if a, ok := req.Admission.(queue.Idempotency); ok {
			a.Key = fmt.Sprintf("%.20s, try %d", a.Key, try)
			req.Admission = a
		}
		req.Type = workType
		req.Deadline = pgtest.Clock(t, pool).Add(ahead)
		id := accept(t, c, req)
		for waiting := true; waiting; {
			select {
			case first = <-work.came:
				if first.job.ID == id {
					return first, req
				}
				first.end(nil) // one of an earlier try, which came too late
			case <-time.After(ahead):
				waiting = false
			}
		}
		ahead *= 2
	}
	t.Fatal("the machine is too slow to start a job before its deadline")
	panic("unreachable")
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
	deadline := pgtest.Clock(t, pool).Add(150 * time.Millisecond)
	behind := accept(t, c, queue.Request{Deadline: deadline})
	scheduled := accept(t, c, queue.Request{Deadline: deadline, RunAt: deadline.Add(time.Hour)})
	unhandled := accept(t, c, queue.Request{Type: "strange", Deadline: deadline})
	after := accept(t, c, queue.Request{})
	pgtest.AwaitClock(t, pool, deadline)
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
		first, req := underDeadline(t, pool, c, work, 300*time.Millisecond, queue.Request{Retry: queue.Fixed{}, Admission: queue.Idempotency{Key: name}})
		id := first.job.ID
		if d, ok := first.ctx.Deadline(); ok && d.Sub(req.Deadline).Abs() > 100*time.Millisecond {
			t.Errorf("the handler's context says its deadline is %v, the job's is %v", d, req.Deadline)
		}
		first.wantCause(t, queue.ErrDeadlineExceeded)
		if early := req.Deadline.Sub(pgtest.Clock(t, pool)); early > 0 {
			t.Errorf("the handler's context ended %v before the deadline", early)
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
	first, _ := underDeadline(t, pool, c, work, 300*time.Millisecond, queue.Request{})
	id := first.job.ID
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
	first, req := underDeadline(t, pool, c, work, 400*time.Millisecond, queue.Request{Retry: queue.Fixed{Delay: time.Hour}})
	first.end(errNotYet)
	wantExceeded(t, c, first.job.ID, 1)
	if job := info(t, c, first.job.ID); job.FinishedAt.Before(req.Deadline) {
		t.Errorf("the job died %v before its deadline", req.Deadline.Sub(job.FinishedAt))
	}
}

// The two limits are one for the attempt and one for the job.
func TestDeadline_afterTimeouts(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	work := handle(t, workType, w)
	start(t, w)
	// Far enough ahead that two attempts begin before it on any machine.
	got, _ := underDeadline(t, pool, c, work, 10*time.Second,
		queue.Request{ExecutionTimeout: 500 * time.Millisecond, Retry: queue.Fixed{}, MaxAttempts: 100})
	id, attempts := got.job.ID, 1
	cause := got.cause(t)
	if errors.Is(cause, queue.ErrDeadlineExceeded) {
		t.Errorf("the first attempt's timeout came before the deadline, but its context ended with %v", cause)
	}
	got.end(cause)
	pgtest.Await(t, "the deadline to end the wait for an attempt, or an attempt", func() bool {
		select {
		case got = <-work.came:
			attempts++
			got.end(got.cause(t))
		default:
		}
		return info(t, c, id).State == queue.StateDead
	})
	if attempts < 2 {
		t.Errorf("an attempt that timed out before the deadline must be retried")
	}
	wantExceeded(t, c, id, attempts)
}

func TestDeadline_beforeATimeout(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	work := handle(t, workType, w)
	start(t, w)
	got, _ := underDeadline(t, pool, c, work, 200*time.Millisecond, queue.Request{ExecutionTimeout: time.Minute, Retry: queue.Fixed{}})
	got.wantCause(t, queue.ErrDeadlineExceeded)
	got.end(got.ctx.Err())
	wantExceeded(t, c, got.job.ID, 1)
}

// An attempt that timed out but goes on until the deadline has passed.
func TestDeadline_afterATimeoutThatWasIgnored(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	work := handle(t, workType, w)
	start(t, w)
	got, req := underDeadline(t, pool, c, work, 400*time.Millisecond, queue.Request{ExecutionTimeout: time.Millisecond, Retry: queue.Fixed{}})
	got.cause(t)
	pgtest.AwaitClock(t, pool, req.Deadline)
	got.end(got.ctx.Err())
	wantExceeded(t, c, got.job.ID, 1)
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
