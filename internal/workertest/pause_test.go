package workertest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

func pauseQueue(t testing.TB, c *queue.Client, name string) {
	t.Helper()
	if err := c.PauseQueue(t.Context(), name); err != nil {
		t.Fatalf("PauseQueue: %v", err)
	}
}

func resumeQueue(t testing.TB, c *queue.Client, name string) {
	t.Helper()
	if err := c.ResumeQueue(t.Context(), name); err != nil {
		t.Fatalf("ResumeQueue: %v", err)
	}
}

func TestPause_stopsClaimsAndNothingElse(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{Queues: map[string]int{"default": 2, "other": 1}})
	work := handle(t, workType, w)
	start(t, w)
	id := accept(t, c, queue.Request{Retry: queue.Fixed{}})
	running := work.next(t)
	pauseQueue(t, c, "default")
	pauseQueue(t, c, "default")
	waiting := accept(t, c, queue.Request{})
	work.none(t, 150*time.Millisecond, "the queue is paused")
	if job := info(t, c, waiting); job.State != queue.StateReady {
		t.Errorf("requests are accepted as before: the job is %s", job.State)
	}
	running.wantAlive(t, "what runs goes on")

	other := accept(t, c, queue.Request{Queue: "other"})
	if got := work.next(t); got.job.ID != other {
		t.Errorf("job %s of a paused queue was started", got.job.ID)
	} else {
		got.end(nil)
	}
	// A retry waits like all others.
	running.end(errNotYet)
	pgtest.Await(t, "the attempt to fail", func() bool { return info(t, c, id).State == queue.StateReady })
	work.none(t, 150*time.Millisecond, "the queue is paused")

	// What else ends a waiting job ends it.
	late := accept(t, c, queue.Request{Deadline: pgtest.Clock(t, pool).Add(50 * time.Millisecond)})
	wantExceeded(t, c, late, 0)
	gone := accept(t, c, queue.Request{})
	cancel(t, c, gone, queue.CancelledNow)

	resumeQueue(t, c, "default")
	for range 2 {
		work.next(t).end(nil)
	}
	awaitState(t, c, id, queue.StateSucceeded)
	awaitState(t, c, waiting, queue.StateSucceeded)
}

// What waited through a pause runs in its order, however long that was.
func TestPause_keepsTheOrder(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	pauseQueue(t, c, "default")
	w := newWorker(t, c, one("a"))
	work := recorded(w)
	start(t, w)
	var want []string
	for i := range 20 {
		if i == 10 {
			backdate(t, pool, time.Hour)
			// The worker has seen the queue, and that there is nothing for it.
			accept(t, c, queue.Request{Type: workType, Queue: "unused"})
			pgtest.AwaitClock(t, pool, pgtest.Clock(t, pool).Add(100*time.Millisecond))
		}
		accept(t, c, named(fmt.Sprint(i)))
		want = append(want, fmt.Sprint(i))
	}
	resumeQueue(t, c, "default")
	wantOrder(t, work.await(t, 20), want)
}

func TestPause_andSettingsAreApart(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{})
	work := handle(t, workType, w)
	resumeQueue(t, c, "default") // was never paused
	setQueue(t, c, "default", queue.QueueSettings{MaxRunning: 2})
	pauseQueue(t, c, "default")
	setQueue(t, c, "default", queue.QueueSettings{MaxRunning: 3})
	acceptMany(t, c, many(5, queue.Request{}))
	start(t, w)
	work.none(t, 150*time.Millisecond, "new caps do not resume a queue")
	resumeQueue(t, c, "default")
	var held []*call
	for range 3 {
		held = append(held, work.next(t))
	}
	work.none(t, 150*time.Millisecond, "a pause does not forget the cap of 3")
	for _, h := range held {
		h.end(nil)
	}
	for range 2 {
		work.next(t).end(nil)
	}
}
