package admissiontest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq/pkg/queue"
)

// Overlapping batches in opposite orders, modes mixed, beside workers that free
// keys: they wait for one another, and nobody deadlocks.
func TestBatch_oppositeOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	worker, err := queue.NewWorker(w.client, queue.WorkerConfig{PollInterval: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	queue.Handle(worker, "report.build", func(context.Context, *queue.Job[int]) error { return nil })
	working, stop := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() { done <- worker.Run(working) }()

	ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
	defer cancel()
	var callers sync.WaitGroup
	var batches [6]int
	for i := range batches {
		callers.Go(func() {
			for ctx.Err() == nil {
				var rs []queue.Request
				for k := range 60 {
					switch key := fmt.Sprint("key ", k); {
					case rand.N(3) == 0:
					case k%3 == 0:
						rs = append(rs, queue.Request{Type: "report.build", Payload: 1, Admission: queue.Idempotency{Key: key, TTL: 30 * time.Millisecond, Release: queue.ReleaseFinished}})
					case k%3 == 1:
						rs = append(rs, queue.Request{Type: "report.build", Payload: 1, Admission: queue.Throttle{Key: key, Window: 10 * time.Millisecond}})
					case i < 4: // The others send batches that go to the plain statement.
						rs = append(rs, queue.Request{Type: "report.build", Payload: rand.N(9), Admission: queue.Debounce{
							Key: key, Window: time.Duration(5+rand.N(20)) * time.Millisecond, FollowUp: rand.N(2) == 0}})
					}
				}
				if i%2 == 0 {
					slices.Reverse(rs)
				}
				if _, err := w.client.EnqueueMany(w.ctx, rs); err != nil {
					t.Error(err)
					return
				}
				batches[i]++
			}
		})
	}
	callers.Wait()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	w.whole()
	w.exec("SELECT pg_stat_clear_snapshot()")
	if n := w.count("SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()"); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	t.Logf("batches of each caller: %v", batches)
}
