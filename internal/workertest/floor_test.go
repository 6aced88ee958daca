package workertest_test

import (
	"testing"
	"time"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// A claim that takes a key's later jobs from a low priority has not looked at what
// lies between: it may not be forgotten for that, and lower jobs come after it.
func TestFloor_aKeysLaterJobsHideNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	if err := c.SetQueue(t.Context(), "default", queue.QueueSettings{MaxRunningPerKey: 2}); err != nil {
		t.Fatal(err)
	}
	of := func(key string, priority int) queue.Request {
		return queue.Request{Type: workType, Priority: priority, ConcurrencyKey: key}
	}
	between := accept(t, c, of("", 30))
	backdate(t, pool, time.Hour)
	acceptMany(t, c, []queue.Request{of("K", 50), of("K", 50), of("K", 50), of("L", 50)})
	last := accept(t, c, of("L", 10))
	w := newWorker(t, c, queue.WorkerConfig{Queues: map[string]int{"default": 4}})
	work := handle(t, workType, w)
	start(t, w)
	var held []*call
	for range 4 {
		held = append(held, work.next(t))
	}
	accept(t, c, of("", 0))
	for _, h := range held {
		if h.job.ID == last {
			h.end(nil)
		}
	}
	next := work.next(t)
	if next.job.ID != between {
		t.Errorf("a job of priority %d was started before one of priority 30 that has waited for an hour", info(t, c, next.job.ID).Priority)
	}
	next.end(nil)
	for _, h := range held {
		if h.job.ID != last {
			h.end(nil)
		}
	}
	for range 2 {
		work.next(t).end(nil)
	}
}
