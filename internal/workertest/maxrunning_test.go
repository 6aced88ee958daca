package workertest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

func setQueue(t testing.TB, c *queue.Client, name string, s queue.QueueSettings) {
	t.Helper()
	if err := c.SetQueue(t.Context(), name, s); err != nil {
		t.Fatalf("SetQueue: %v", err)
	}
}

// cappedLoad runs jobs of 10 ms in a queue where 5 may run at once.
func cappedLoad(t *testing.T, jobs, workers int, cfg queue.WorkerConfig, age time.Duration) (most int64) {
	t.Helper()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	setQueue(t, c, "default", queue.QueueSettings{MaxRunning: 5})
	var now, peak atomic.Int64
	var done sync.WaitGroup
	done.Add(jobs)
	acceptMany(t, c, many(jobs, queue.Request{}))
	backdate(t, pool, age)
	begin := time.Now()
	for i := range workers {
		cfg.ID = fmt.Sprint("w", i)
		w := newWorker(t, c, cfg)
		queue.Handle(w, workType, func(ctx context.Context, _ *queue.Job[any]) error {
			defer done.Done()
			raise(&peak, now.Add(1))
			defer now.Add(-1)
			return pause(ctx, 10*time.Millisecond)
		})
		start(t, w)
	}
	finished := make(chan struct{})
	go func() { done.Wait(); close(finished) }()
	awaitClosed(t, "all jobs of a capped queue to be done", finished)
	t.Logf("%d jobs of 10 ms, 5 at once, %d workers: %v", jobs, workers, time.Since(begin).Round(time.Millisecond))
	return peak.Load()
}

func TestMaxRunning_neverExceededAndReached(t *testing.T) {
	t.Parallel()
	most := cappedLoad(t, 400, 4, queue.WorkerConfig{PollInterval: 10 * time.Millisecond, Queues: map[string]int{"default": 4}}, 0)
	if most != 5 {
		t.Errorf("%d jobs ran at once, the queue's cap is 5: over all workers it must be kept, and used", most)
	}
}

// The end of a job makes room for the next at once, not at some later poll; also
// in a backlog that has waited for long.
func TestMaxRunning_roomIsUsedAtOnce(t *testing.T) {
	t.Parallel()
	for _, age := range []time.Duration{0, time.Hour} {
		t.Run(fmt.Sprintf("backlog of %v", age), func(t *testing.T) {
			t.Parallel()
			if most := cappedLoad(t, 200, 1, queue.WorkerConfig{PollInterval: time.Hour}, age); most != 5 {
				t.Errorf("%d jobs ran at once, want 5", most)
			}
		})
	}
}

// A cap of one and one worker: the order is the queue's, whatever the age.
func TestMaxRunning_keepsTheOrder(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	setQueue(t, c, "default", queue.QueueSettings{MaxRunning: 1})
	var want []string
	for i := range 30 {
		if i == 15 {
			backdate(t, pool, time.Hour)
		}
		accept(t, c, named(fmt.Sprint(i)))
		want = append(want, fmt.Sprint(i))
	}
	w := newWorker(t, c, queue.WorkerConfig{})
	started := recorded(w)
	start(t, w)
	wantOrder(t, started.await(t, 30), want)
}

func TestMaxRunning_changedWhileRunning(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	setQueue(t, c, "default", queue.QueueSettings{MaxRunning: 4})
	w := newWorker(t, c, queue.WorkerConfig{Queues: map[string]int{"default": 10}})
	work := handle(t, workType, w)
	acceptMany(t, c, many(20, queue.Request{}))
	start(t, w)
	var held []*call
	hold := func() { t.Helper(); held = append(held, work.next(t)) }
	end := func() { held[0].end(nil); held = held[1:] }
	const quiet = 150 * time.Millisecond
	for range 4 {
		hold()
	}
	work.none(t, quiet, "4 run, the cap is 4")

	setQueue(t, c, "default", queue.QueueSettings{MaxRunning: 2})
	for _, h := range held {
		h.wantAlive(t, "what runs already goes on")
	}
	end()
	end()
	work.none(t, quiet, "2 run, the cap is 2 now")
	end()
	hold()
	work.none(t, quiet, "2 run, the cap is 2 now")

	setQueue(t, c, "default", queue.QueueSettings{MaxRunning: 3})
	hold()
	work.none(t, quiet, "3 run, the cap is 3 now")

	setQueue(t, c, "default", queue.QueueSettings{})
	for range 7 {
		hold()
	}
	work.none(t, quiet, "the worker has 10 handlers")
	for len(held) > 0 {
		end()
	}
	for range 20 - 4 - 1 - 1 - 7 {
		work.next(t).end(nil)
	}
}

// The two limits of a queue hold together.
func TestMaxRunning_withConcurrencyKeys(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	setQueue(t, c, "default", queue.QueueSettings{MaxRunning: 3, MaxRunningPerKey: 2})
	w := newWorker(t, c, queue.WorkerConfig{})
	work := handle(t, workType, w)
	acceptMany(t, c, many(4, queue.Request{ConcurrencyKey: "K"}))
	acceptMany(t, c, many(4, queue.Request{ConcurrencyKey: "L"}))
	start(t, w)
	running := map[string]int{}
	var held []*call
	for range 3 {
		got := work.next(t)
		held = append(held, got)
		running[info(t, c, got.job.ID).ConcurrencyKey]++
	}
	work.none(t, 100*time.Millisecond, "3 run, the cap is 3")
	if running["K"] != 2 || running["L"] != 1 {
		t.Errorf("running are %v: the first in line are 2 of K, as many as may run of a key, and then 1 of L", running)
	}
	for _, h := range held {
		h.end(nil)
	}
	for range 5 {
		work.next(t).end(nil)
	}
}

func TestQueueSettings_bounds(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	for _, s := range []queue.QueueSettings{{}, {MaxRunning: 1, MaxRunningPerKey: 1}, {MaxRunning: 1_000_000, MaxRunningPerKey: 1000}} {
		if err := c.SetQueue(t.Context(), strings.Repeat("q", 255), s); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for _, s := range []queue.QueueSettings{{MaxRunning: -1}, {MaxRunningPerKey: -1}, {MaxRunning: 1_000_001}, {MaxRunningPerKey: 1001}} {
		wantInvalid(t, c.SetQueue(t.Context(), "default", s), fmt.Sprintf("%+v", s))
	}
	err := c.SetQueue(t.Context(), "", queue.QueueSettings{MaxRunning: -1, MaxRunningPerKey: -1})
	for _, word := range []string{"queue", "MaxRunning:", "MaxRunningPerKey"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("a refusal must name every wrong field, %q is not in: %v", word, err)
		}
	}
	for _, name := range []string{"", strings.Repeat("q", 256), " q", "q\n", "\xff"} {
		wantInvalid(t, c.SetQueue(t.Context(), name, queue.QueueSettings{}), fmt.Sprintf("SetQueue of queue %.20q", name))
		wantInvalid(t, c.PauseQueue(t.Context(), name), fmt.Sprintf("PauseQueue of queue %.20q", name))
		wantInvalid(t, c.ResumeQueue(t.Context(), name), fmt.Sprintf("ResumeQueue of queue %.20q", name))
	}
}
