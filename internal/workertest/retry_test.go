package workertest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

var errNotYet = errors.New("not yet")

// failing registers a handler that returns what f says for an attempt.
func failing(w *queue.Worker, f func(attempt int) error) {
	queue.Handle(w, workType, func(_ context.Context, job *queue.Job[any]) error { return f(job.Attempt) })
}

// delay is how long after its last failed attempt the waiting job may run.
func delay(t testing.TB, c *queue.Client, id queue.JobID) time.Duration {
	t.Helper()
	var job queue.JobInfo
	pgtest.Await(t, "the job to wait for its next attempt", func() bool {
		job = info(t, c, id)
		return job.LastError != "" && (job.State == queue.StateScheduled || ended(job.State))
	})
	if job.State != queue.StateScheduled {
		t.Fatalf("the job must wait for its next attempt, it is %s (%s)", job.State, job.LastError)
	}
	events, err := c.Events(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	failed := events[len(events)-1]
	if failed.Kind != queue.EventRetryScheduled {
		t.Fatalf("the last event of a job that waits for a retry is %q", failed.Kind)
	}
	return job.RunAt.Sub(failed.At)
}

func TestRetry_delays(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{})
	queue.Handle(w, workType, func(_ context.Context, job *queue.Job[time.Duration]) error {
		switch {
		case job.Payload > 0:
			return fmt.Errorf("wrapped: %w", errors.Join(errNotYet, queue.RetryAfter(errNotYet, job.Payload)))
		case job.Payload < 0:
			return queue.RetryAfter(errNotYet, 400*24*time.Hour)
		}
		return errNotYet
	})
	start(t, w)
	const slack = 50 * time.Millisecond
	var ids []queue.JobID
	for _, tt := range []struct {
		name            string
		retry           queue.RetryPolicy
		after           time.Duration
		atLeast, atMost time.Duration
	}{
		{"the default", nil, 0, 13500 * time.Millisecond, 16500 * time.Millisecond},
		{"exponential, by default", queue.Exponential{}, 0, 13500 * time.Millisecond, 16500 * time.Millisecond},
		{"exponential", queue.Exponential{Initial: time.Hour, Max: 3 * time.Hour}, 0, 54 * time.Minute, 66 * time.Minute},
		{"exponential, capped", queue.Exponential{Initial: time.Minute, Max: time.Minute}, 0, 54 * time.Second, 66 * time.Second},
		{"fixed", queue.Fixed{Delay: 40 * time.Minute}, 0, 40 * time.Minute, 40 * time.Minute},
		{"fixed, the longest", queue.Fixed{Delay: 365 * 24 * time.Hour}, 0, 365 * 24 * time.Hour, 365 * 24 * time.Hour},
		{"decorrelated", queue.DecorrelatedJitter{Base: time.Minute, Max: time.Hour}, 0, time.Minute, 3 * time.Minute},
		{"decorrelated, by default", queue.DecorrelatedJitter{}, 0, 15 * time.Second, 45 * time.Second},
		{"the handler's own", nil, 7 * time.Minute, 7 * time.Minute, 7 * time.Minute},
		{"the handler's own against a policy", queue.Fixed{Delay: time.Hour}, time.Minute, time.Minute, time.Minute},
		{"the handler's own, cut", nil, -1, 365 * 24 * time.Hour, 365 * 24 * time.Hour},
	} {
		id := accept(t, c, queue.Request{Retry: tt.retry, Payload: tt.after})
		ids = append(ids, id)
		if got := delay(t, c, id); got < tt.atLeast-slack || got > tt.atMost+slack {
			t.Errorf("%s: the next attempt is %v after the first, want %v to %v", tt.name, got, tt.atLeast, tt.atMost)
		}
	}
	for _, id := range ids {
		if job := info(t, c, id); job.Attempt != 1 && time.Until(job.RunAt) > 5*time.Minute {
			t.Errorf("a job that waits for its next attempt has run %d times: it must wait", job.Attempt)
		}
	}
}

func TestRetry_attemptsCountUpToTheBudget(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	seen := make(chan int, 100)
	failing(w, func(attempt int) error {
		seen <- attempt
		return fmt.Errorf("failure %d", attempt)
	})
	start(t, w)
	for _, budget := range []int{1, 3} {
		id := accept(t, c, queue.Request{MaxAttempts: budget, Retry: queue.Fixed{}})
		job := awaitState(t, c, id, queue.StateDead)
		for want := 1; want <= budget; want++ {
			if got := <-seen; got != want {
				t.Errorf("attempt %d of %d says it is number %d", want, budget, got)
			}
		}
		if len(seen) != 0 {
			t.Errorf("a job with a budget of %d attempts ran %d times more", budget, len(seen))
		}
		if want := fmt.Sprintf("failure %d", budget); job.Attempt != budget || job.LastError != want || job.FinishedAt.IsZero() {
			t.Errorf("the budget of %d is spent: got attempt %d, error %q, finished %v", budget, job.Attempt, job.LastError, job.FinishedAt)
		}
	}
}

func TestRetry_successAfterFailures(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	failing(w, func(attempt int) error {
		if attempt < 3 {
			return errNotYet
		}
		return nil
	})
	start(t, w)
	id := accept(t, c, queue.Request{Retry: queue.Fixed{}})
	if job := awaitState(t, c, id, queue.StateSucceeded); job.Attempt != 3 {
		t.Errorf("succeeded at attempt %d, want 3", job.Attempt)
	}
	wantKinds(t, c, id, queue.EventAccepted, queue.EventClaimed, queue.EventRetryScheduled,
		queue.EventClaimed, queue.EventRetryScheduled, queue.EventClaimed, queue.EventSucceeded)
}

func TestRetry_permanent(t *testing.T) {
	t.Parallel()
	if queue.Permanent(nil) != nil || queue.RetryAfter(nil, time.Hour) != nil {
		t.Error("Permanent(nil) and RetryAfter(nil, d) must be nil: a success is not an error")
	}
	cause := errors.New("no such account")
	for name, err := range map[string]error{
		"plain":   queue.Permanent(cause),
		"wrapped": fmt.Errorf("charge: %w", queue.Permanent(cause)),
		"joined":  errors.Join(errNotYet, fmt.Errorf("charge: %w", queue.Permanent(cause))),
	} {
		if !errors.Is(err, cause) {
			t.Errorf("%s: the cause can't be found behind Permanent", name)
		}
	}
	if !errors.Is(queue.RetryAfter(cause, time.Hour), cause) {
		t.Error("the cause can't be found behind RetryAfter")
	}
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	queue.Handle(w, workType, func(_ context.Context, job *queue.Job[int]) error {
		err := queue.Permanent(cause)
		if job.Payload > 0 {
			err = fmt.Errorf("charge: %w", errors.Join(errNotYet, err))
		}
		return err
	})
	start(t, w)
	for payload := range 2 {
		id := accept(t, c, queue.Request{Payload: payload, Retry: queue.Fixed{}})
		if job := awaitState(t, c, id, queue.StateDead); job.Attempt != 1 {
			t.Errorf("a permanent error makes the job dead at once, not after %d attempts", job.Attempt)
		}
	}
}

func TestRetry_afterCountsAgainstTheBudget(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	failing(w, func(int) error { return queue.RetryAfter(errNotYet, -time.Hour) }) // cut to none
	start(t, w)
	id := accept(t, c, queue.Request{MaxAttempts: 3, Retry: queue.Fixed{Delay: time.Hour}})
	if job := awaitState(t, c, id, queue.StateDead); job.Attempt != 3 {
		t.Errorf("dead after %d attempts, the budget is 3", job.Attempt)
	}
}

// A lost lease is retried at once, whatever the policy, and spends an attempt.
func TestRetry_lostLease(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{Lease: time.Hour, Queues: map[string]int{"default": 3}})
	work := handle(t, workType, w)
	id := accept(t, c, queue.Request{MaxAttempts: 3, Retry: queue.Fixed{Delay: time.Hour}, Admission: queue.Idempotency{Key: "k"}})
	start(t, w)
	for attempt := 1; attempt <= 3; attempt++ {
		got := work.next(t)
		if got.job.Attempt != attempt {
			t.Errorf("the attempt after %d lost leases is number %d", attempt-1, got.job.Attempt)
		}
		reclaim(t, pool, c, id)
	}
	job := awaitState(t, c, id, queue.StateDead)
	if job.Attempt != 3 || job.LastError == "" {
		t.Errorf("a job whose leases ended three times must be dead with a reason: attempt %d, error %q", job.Attempt, job.LastError)
	}
	wantAnswer(t, c, queue.Request{Type: workType, MaxAttempts: 3, Retry: queue.Fixed{Delay: time.Hour}, Admission: queue.Idempotency{Key: "k"}},
		queue.Result{JobID: id, Outcome: queue.OutcomeReplayed, Dead: true})
}
