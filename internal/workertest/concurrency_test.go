package workertest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// keyLoad is 2,000 jobs over 50 keys for 16 workers of 1 to 4 handlers.
type keyLoad struct {
	most     int64         // of one key at once
	busiest  int64         // handlers at once
	longest  time.Duration // that a key's next job waited for a free slot
	took     time.Duration
	failures int64
}

const loadJobs, loadKeys = 2000, 50

// runKeyLoad runs the load; with is whether the jobs carry their keys.
func runKeyLoad(t testing.TB, perKey int, with bool) keyLoad {
	t.Helper()
	pool := pgtest.NewWith(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 16 })
	c := newClient(t, pool, queue.Config{})
	if err := c.SetQueue(t.Context(), "default", queue.QueueSettings{MaxRunningPerKey: perKey}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var load keyLoad
	var now [loadKeys]int64
	var freed [loadKeys]time.Time
	var all int64
	var done sync.WaitGroup
	done.Add(loadJobs)
	handler := func(ctx context.Context, job *queue.Job[int]) error {
		mu.Lock()
		key := job.Payload
		now[key]++
		all++
		load.most, load.busiest = max(load.most, now[key]), max(load.busiest, all)
		if !freed[key].IsZero() {
			load.longest = max(load.longest, time.Since(freed[key]))
		}
		mu.Unlock()
		err := pause(ctx, time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		now[key]--
		all--
		freed[key] = time.Now()
		if err != nil || job.Attempt != 1 {
			load.failures++
		}
		done.Done()
		return nil
	}
	reqs := make([]queue.Request, loadJobs)
	for i := range reqs {
		reqs[i] = queue.Request{Type: workType, Payload: i % loadKeys}
		if with {
			reqs[i].ConcurrencyKey = fmt.Sprintf("key %d", i%loadKeys)
		}
	}
	acceptMany(t, c, reqs)
	begin := time.Now()
	var runs []*run
	for i := range 16 {
		w := newWorker(t, c, queue.WorkerConfig{ID: fmt.Sprint("w", i), Queues: map[string]int{"default": 1 + i%4}})
		queue.Handle(w, workType, handler)
		runs = append(runs, start(t, w))
	}
	finished := make(chan struct{})
	go func() { done.Wait(); close(finished) }()
	awaitClosed(t, "all jobs of the load to be done", finished)
	load.took = time.Since(begin)
	for _, r := range runs {
		r.cancel()
	}
	for _, r := range runs {
		if err := r.stop(t); err != nil {
			t.Error(err)
		}
	}
	if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.finished WHERE state = 1`); n != loadJobs {
		t.Errorf("%d of %d jobs have succeeded", n, loadJobs)
	}
	return load
}

// It measures, so it is not parallel.
func TestConcurrency_neverMoreThanNOfAKey(t *testing.T) {
	free := runKeyLoad(t, 0, false)
	t.Logf("without keys: %v, %d handlers at once", free.took.Round(time.Millisecond), free.busiest)
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			load := runKeyLoad(t, n, true)
			t.Logf("with keys, %d at once: %v, %.0f %% of the throughput without; %d handlers at once; a free slot waited %v at most",
				n, load.took.Round(time.Millisecond), 100*free.took.Seconds()/load.took.Seconds(), load.busiest, load.longest.Round(time.Millisecond))
			if load.most > int64(n) {
				t.Errorf("%d jobs of one key ran at once, allowed are %d", load.most, n)
			}
			if load.failures > 0 {
				t.Errorf("%d jobs were disturbed", load.failures)
			}
			// Below its floors a worker looks every 2 to 10 s.
			if load.longest > pgtest.Patience/2 {
				t.Errorf("a key's next job waited %v for a free slot: keys may not starve", load.longest)
			}
		})
	}
}

// A key that is at its limit, with all its jobs first in line, blocks nobody.
func TestConcurrency_aBlockedKeyBlocksNoOther(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	acceptMany(t, c, many(5000, queue.Request{Type: "blocked", Priority: 100, ConcurrencyKey: "K"}))
	w := newWorker(t, c, queue.WorkerConfig{Queues: map[string]int{"default": 4}})
	blocked := handle(t, "blocked", w)
	started := recorded(w)
	start(t, w)
	first := blocked.next(t)
	begin := time.Now()
	for i := range 50 {
		req := named(fmt.Sprint(i))
		req.ConcurrencyKey = []string{"", "L", "M"}[i%3]
		accept(t, c, req)
	}
	started.await(t, 50)
	t.Logf("50 jobs behind 5,000 of a blocked key: %v", time.Since(begin).Round(time.Millisecond))
	blocked.none(t, 50*time.Millisecond, "one job of the key runs")
	first.end(nil)
	second := blocked.next(t)
	blocked.none(t, 50*time.Millisecond, "one job of the key runs")
	second.end(nil)
	pgtest.Exec(t, pool, `DELETE FROM onceq.pending`)
	select { // one that was started in between
	case got := <-blocked.came:
		got.end(nil)
	case <-time.After(50 * time.Millisecond):
	}
}

// Nor does a key whose jobs are quick, so that it is blocked only now and then:
// its jobs first in line may not keep the worker's other handlers idle.
func TestConcurrency_aQuickKeyStarvesNoOther(t *testing.T) {
	t.Parallel()
	for _, age := range []time.Duration{0, time.Hour} {
		t.Run(fmt.Sprintf("backlog of %v", age), func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			c := newClient(t, pool, queue.Config{PollOnly: true})
			w := newWorker(t, c, queue.WorkerConfig{PollInterval: 200 * time.Millisecond})
			var quick atomic.Int64
			queue.Handle(w, "quick", func(ctx context.Context, _ *queue.Job[any]) error {
				quick.Add(1)
				return pause(ctx, 5*time.Millisecond)
			})
			var others atomic.Int64
			all := make(chan int64, 1)
			queue.Handle(w, workType, func(context.Context, *queue.Job[any]) error {
				if others.Add(1) == 20 {
					all <- quick.Load()
				}
				return nil
			})
			acceptMany(t, c, many(1500, queue.Request{Type: "quick", ConcurrencyKey: "K"}))
			acceptMany(t, c, many(20, queue.Request{}))
			backdate(t, pool, age)
			start(t, w)
			if n := awaitClosed(t, "the jobs without a key", all); n > 300 {
				t.Errorf("20 jobs without a key waited for %d jobs of a key that may run one at a time: nine handlers were idle", n)
			}
		})
	}
}

// backdate makes all that waits wait for longer already.
func backdate(t testing.TB, pool *pgxpool.Pool, age time.Duration) {
	t.Helper()
	pgtest.Exec(t, pool, `UPDATE onceq.job SET accepted_at = accepted_at - $1::bigint * interval '1 microsecond', run_at = run_at - $1::bigint * interval '1 microsecond'`, age.Microseconds())
	pgtest.Exec(t, pool, `UPDATE onceq.pending SET ready_at = ready_at - $1::bigint * interval '1 microsecond'`, age.Microseconds())
}

// Jobs of one key run in the queue's order, also with several workers and when
// some have waited for long. Claims at the same moment may swap neighbours, and one
// that PostgreSQL holds up keeps two or three jobs for as long as that takes.
func TestConcurrency_aKeysJobsRunInOrder(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	var mu sync.Mutex
	var got []string
	const old, fresh = 60, 60
	var want []string
	for i := range old + fresh {
		if i == old {
			backdate(t, pool, time.Hour)
		}
		req := named(fmt.Sprint(i))
		req.ConcurrencyKey = "K"
		accept(t, c, req)
		want = append(want, req.Payload.(string))
	}
	for i := range 3 {
		w := newWorker(t, c, queue.WorkerConfig{ID: fmt.Sprint("w", i), Queues: map[string]int{"default": 2}})
		queue.Handle(w, workType, func(ctx context.Context, job *queue.Job[string]) error {
			mu.Lock()
			got = append(got, job.Payload)
			mu.Unlock()
			return pause(ctx, 2*time.Millisecond)
		})
		start(t, w)
	}
	pgtest.Await(t, "all jobs of the key", func() bool { mu.Lock(); defer mu.Unlock(); return len(got) == old+fresh })
	mu.Lock()
	defer mu.Unlock()
	var strayed []string
	for place, name := range got {
		if due := slices.Index(want, name); place-due > 8 || due-place > 8 {
			strayed = append(strayed, fmt.Sprintf("%d as number %d", due, place))
		}
	}
	if len(strayed) > 9 {
		t.Errorf("jobs of one key ran out of order: %s", strings.Join(strayed, ", "))
	}
}

// A job that is enqueued behind one that holds the slot is not forgotten when
// that one ends before the job is committed.
func TestConcurrency_slotFreedBeforeTheCommit(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	looks := &sent{name: "Claim"}
	w := newWorker(t, newClient(t, pgtest.Reconnect(t, pool, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = looks }), queue.Config{}), one("a"))
	work := handle(t, workType, w)
	start(t, w)
	id := accept(t, c, queue.Request{ConcurrencyKey: "C"})
	first := work.next(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	second, err := c.EnqueueTx(t.Context(), tx, queue.Request{Type: workType, ConcurrencyKey: "C"})
	if err != nil {
		t.Fatal(err)
	}
	first.end(nil)
	awaitState(t, c, id, queue.StateSucceeded)
	commit(t, tx)
	before := looks.n.Load()
	got := work.next(t)
	// Counted in looks, which come every 25 ms and not while the machine stands still.
	if n := looks.n.Load() - before; got.job.ID != second.JobID || n > 20 {
		t.Errorf("job %s was started by claim %d after the commit, want %s by the first", got.job.ID, n, second.JobID)
	}
	got.end(nil)
}

// A slot comes back when its worker is gone.
func TestConcurrency_slotOfALostLease(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	a, b := newWorker(t, c, calm("a")), newWorker(t, c, calm("b"))
	ofA, ofB := handle(t, workType, a), handle(t, workType, b)
	id := accept(t, c, queue.Request{ConcurrencyKey: "C", MaxAttempts: 1})
	start(t, a)
	stuck := ofA.next(t)
	start(t, b)
	waiting := accept(t, c, queue.Request{ConcurrencyKey: "C"})
	ofB.none(t, 100*time.Millisecond, "the slot is taken")
	reclaim(t, pool, c, id)
	got := ofB.next(t)
	if got.job.ID != waiting {
		t.Errorf("job %s has the slot after the lease of its holder ended, want %s", got.job.ID, waiting)
	}
	stuck.end(nil)
	got.end(nil)
}
