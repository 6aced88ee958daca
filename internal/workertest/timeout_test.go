package workertest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

func TestTimeout_endsOneAttempt(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	work := handle(t, workType, w)
	start(t, w)
	id := accept(t, c, queue.Request{ExecutionTimeout: 60 * time.Millisecond, Retry: queue.Fixed{}, MaxAttempts: 3})
	for attempt := 1; attempt <= 3; attempt++ {
		got := work.next(t)
		if got.job.Attempt != attempt {
			t.Errorf("the attempt after %d timeouts is number %d", attempt-1, got.job.Attempt)
		}
		cause := got.cause(t)
		for _, other := range []error{queue.ErrDeadlineExceeded, queue.ErrCancelled, queue.ErrLeaseLost} {
			if errors.Is(cause, other) {
				t.Errorf("an execution timeout must not look like %v", other)
			}
		}
		if cause == nil {
			t.Error("an attempt with a timeout of 60 ms ended without a cause")
		}
		got.end(got.ctx.Err())
	}
	job := awaitState(t, c, id, queue.StateDead)
	if job.Attempt != 3 || job.LastError == "" {
		t.Errorf("three timeouts spend a budget of three: attempt %d, error %q", job.Attempt, job.LastError)
	}
	wantKinds(t, c, id, queue.EventAccepted, queue.EventClaimed, queue.EventRetryScheduled,
		queue.EventClaimed, queue.EventRetryScheduled, queue.EventClaimed, queue.EventDead)
}

func TestTimeout_thenTheRetryPolicy(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	queue.Handle(w, workType, func(ctx context.Context, _ *queue.Job[any]) error {
		<-ctx.Done()
		return ctx.Err()
	})
	start(t, w)
	id := accept(t, c, queue.Request{ExecutionTimeout: time.Millisecond, Retry: queue.Fixed{Delay: time.Hour}})
	if got := delay(t, c, id); got != time.Hour {
		t.Errorf("after a timeout the job waits %v, its policy says an hour", got)
	}
	if job := info(t, c, id); job.Attempt != 1 {
		t.Errorf("a timeout spends an attempt: %d are counted", job.Attempt)
	}
}

func TestTimeout_isNotReachedByAQuickHandler(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	work := handle(t, workType, w)
	start(t, w)
	id := accept(t, c, queue.Request{ExecutionTimeout: time.Minute, MaxAttempts: 1})
	got := work.next(t)
	got.wantAlive(t, "its timeout is a minute")
	got.end(nil)
	if job := awaitState(t, c, id, queue.StateSucceeded); job.Attempt != 1 {
		t.Errorf("succeeded at attempt %d", job.Attempt)
	}
}
