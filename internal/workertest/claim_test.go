package workertest_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
	"github.com/onceq/onceq/schema"
)

func TestClaim_onlyTypesWithAHandler(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	var strange []queue.Request
	for i := range 500 {
		strange = append(strange, queue.Request{Type: fmt.Sprintf("strange.%d", i%5), Priority: 100})
	}
	acceptMany(t, c, strange)
	for i := range 5 {
		accept(t, c, named(fmt.Sprint(i)))
	}
	w := newWorker(t, c, one("a"))
	started := recorded(w)
	start(t, w)
	// More come while the worker is at it, before and behind the ones it handles.
	acceptMany(t, c, strange[:100])
	accept(t, c, named("5"))
	wantOrder(t, started.await(t, 6), []string{"0", "1", "2", "3", "4", "5"})
	if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.pending WHERE fence = 0 AND attempt = 0 AND type LIKE 'strange.%'`); n != 600 {
		t.Errorf("of 600 jobs without a handler only %d were left alone: they must stay ready, never claimed", n)
	}
}

func TestClaim_onlyTheWorkersQueues(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{Queues: map[string]int{"mail": 2, "Mail ü": 1}})
	work := handle(t, workType, w)
	start(t, w)
	other := accept(t, c, queue.Request{Priority: 100})
	for _, name := range []string{"mail", "Mail ü"} {
		id := accept(t, c, queue.Request{Queue: name})
		got := work.next(t)
		if got.job.ID != id || got.job.Queue != name {
			t.Errorf("the worker of queue %q was given job %s of queue %q", name, got.job.ID, got.job.Queue)
		}
		got.end(nil)
		awaitState(t, c, id, queue.StateSucceeded)
	}
	if job := info(t, c, other); job.State != queue.StateReady || job.Attempt != 0 {
		t.Errorf("a job of a queue that no worker has must stay ready, it is %s after %d attempts", job.State, job.Attempt)
	}
}

// Queues in two schemas of one database know nothing of each other.
func TestClaim_onlyTheWorkersSchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	if err := schema.Migrate(t.Context(), pool, schema.Named("tenant_a")); err != nil {
		t.Fatal(err)
	}
	ours, theirs := newClient(t, pool, queue.Config{Schema: "tenant_a"}), newClient(t, pool, queue.Config{})
	w := newWorker(t, ours, queue.WorkerConfig{PollInterval: 10 * time.Second})
	work := handle(t, workType, w)
	start(t, w)
	other := accept(t, theirs, queue.Request{})
	for range 3 { // the later ones by notification
		id := accept(t, ours, queue.Request{Retry: queue.Fixed{}, ConcurrencyKey: "K", Admission: queue.Idempotency{Key: "k", Release: queue.ReleaseFinished}})
		got := work.next(t)
		if got.job.ID != id {
			t.Fatalf("job %s of another schema was started", got.job.ID)
		}
		if _, err := queue.Checkpoint(got.ctx, got.job, "stage", func(context.Context) (int, error) { return 1, nil }); err != nil {
			t.Error(err)
		}
		got.end(errNotYet)
		work.next(t).end(nil)
		awaitState(t, ours, id, queue.StateSucceeded)
	}
	maintain(t, ours)
	if job := info(t, theirs, other); job.State != queue.StateReady || job.Attempt != 0 {
		t.Errorf("the job of another schema is %s after %d attempts", job.State, job.Attempt)
	}
}

func TestClaim_defaultsToTenHandlersOfTheDefaultQueue(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{})
	work := handle(t, workType, w)
	start(t, w)
	acceptMany(t, c, many(12, queue.Request{}))
	var held []*call
	for range 10 {
		held = append(held, work.next(t))
	}
	work.none(t, 200*time.Millisecond, "ten handlers run at once without Queues")
	if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.running`); n != 10 {
		t.Errorf("a worker with 10 handlers holds %d jobs: it must not claim what it can't run", n)
	}
	for _, h := range held {
		h.end(nil)
	}
	work.next(t).end(nil)
	work.next(t).end(nil)
}

func TestClaim_neverMoreHandlersThanAsked(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{Queues: map[string]int{"default": 3, "side": 2}})
	var now, most [2]atomic.Int64
	var all sync.WaitGroup
	all.Add(200)
	queue.Handle(w, workType, func(ctx context.Context, job *queue.Job[any]) error {
		defer all.Done()
		i := 0
		if job.Queue == "side" {
			i = 1
		}
		raise(&most[i], now[i].Add(1))
		defer now[i].Add(-1)
		return pause(ctx, time.Millisecond)
	})
	acceptMany(t, c, many(100, queue.Request{}))
	acceptMany(t, c, many(100, queue.Request{Queue: "side"}))
	start(t, w)
	all.Wait()
	if most[0].Load() != 3 || most[1].Load() != 2 {
		t.Errorf("handlers at once: %d and %d, want the 3 and 2 of the worker's config, reached and not passed", most[0].Load(), most[1].Load())
	}
}

// Handlers that return at once, that end their goroutine and that wait, claimed
// together: those that wait do so for all others to have begun.
func TestClaim_noJobWaitsForAnothersHandler(t *testing.T) {
	t.Parallel()
	const n = 90
	c := newClient(t, pgtest.New(t), queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{Queues: map[string]int{"default": n}})
	var begun atomic.Int64
	all := make(chan struct{})
	queue.Handle(w, workType, func(ctx context.Context, job *queue.Job[int]) error {
		if begun.Add(1) == n {
			close(all)
		}
		switch job.Payload % 3 {
		case 0:
			runtime.Goexit()
		case 1:
			select {
			case <-all:
			case <-ctx.Done():
			}
		}
		return nil
	})
	reqs := many(n, queue.Request{MaxAttempts: 1})
	for i := range reqs {
		reqs[i].Payload = i
	}
	acceptMany(t, c, reqs)
	start(t, w)
	select {
	case <-all:
	case <-time.After(30 * time.Second):
		t.Errorf("with room for all %d handlers, %d have begun: the others wait for those that wait for them", n, begun.Load())
	}
}

// raise sets m to v if v is larger.
func raise(m *atomic.Int64, v int64) {
	for {
		old := m.Load()
		if v <= old || m.CompareAndSwap(old, v) {
			return
		}
	}
}

// pause is the work of a handler that takes a while.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func TestClaim_theHandlerSeesTheJob(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	type address struct{ Street, Town string }
	type order struct {
		ID      int64
		Weight  float64
		Address *address
		Lines   []string
	}
	w := newWorker(t, c, one("a"))
	seen := make(chan queue.Job[order], 1)
	queue.Handle(w, workType, func(_ context.Context, job *queue.Job[order]) error {
		seen <- *job
		return nil
	})
	start(t, w)
	want := queue.Job[order]{
		Type: workType, Queue: "default", Attempt: 1, MaxAttempts: 7,
		Payload:  order{9007199254740993, 0.1, &address{"<Main> & 1st", "Ålesund"}, []string{"b", "a"}},
		Tags:     []string{"zulu", "alpha", "zulu 2"},
		Deadline: time.Now().Add(time.Hour).Truncate(time.Microsecond),
	}
	want.ID = accept(t, c, queue.Request{MaxAttempts: 7, Payload: want.Payload, Tags: want.Tags, Deadline: want.Deadline})
	want.AcceptedAt = info(t, c, want.ID).AcceptedAt
	got := awaitClosed(t, "the handler to see the job", seen)
	if diff := cmp.Diff(fields(want), fields(got)); diff != "" {
		t.Errorf("the handler sees another job than was asked for (-want +got):\n%s", diff)
	}

	// What was left out is the zero value, whatever a nil payload is decoded to.
	id := accept(t, c, queue.Request{})
	got = awaitClosed(t, "the handler to see the job", seen)
	if got.ID != id || !got.Deadline.IsZero() || len(got.Tags) != 0 || got.MaxAttempts != 25 || got.Payload.ID != 0 {
		t.Errorf("a request's defaults come out as %+v", got)
	}
}

// fields are the exported fields of a job.
func fields[P any](j queue.Job[P]) map[string]any {
	return map[string]any{
		"ID": j.ID, "Type": j.Type, "Queue": j.Queue, "Payload": j.Payload, "Attempt": j.Attempt, "MaxAttempts": j.MaxAttempts,
		"Tags": j.Tags, "AcceptedAt": j.AcceptedAt.UTC(), "Deadline": j.Deadline.UTC(),
	}
}

func TestClaim_nothingBeforeTheCommit(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	work := handle(t, workType, w)
	start(t, w)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	res, err := c.EnqueueTx(t.Context(), tx, queue.Request{Type: workType})
	if err != nil {
		t.Fatal(err)
	}
	// Later requests pass it by, and do not make the worker forget it.
	other := accept(t, c, queue.Request{})
	if got := work.next(t); got.job.ID != other {
		t.Fatalf("job %s was started before the transaction that enqueued it had committed", got.job.ID)
	} else {
		got.end(nil)
	}
	work.none(t, 150*time.Millisecond, "workers see nothing before commit")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := work.next(t)
	if got.job.ID != res.JobID {
		t.Fatalf("got job %s, want %s", got.job.ID, res.JobID)
	}
	got.end(nil)
}

// Ten callers with one key and ten idle workers: one run.
func TestClaim_oneRunForOneKey(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	var handled atomic.Int64
	for i := range 10 {
		w := newWorker(t, c, one(fmt.Sprint("w", i)))
		queue.Handle(w, workType, func(context.Context, *queue.Job[any]) error { handled.Add(1); return nil })
		start(t, w)
	}
	for round := range 5 {
		var all sync.WaitGroup
		ids := make([]queue.JobID, 10)
		for i := range ids {
			all.Go(func() {
				var err error
				if ids[i], err = c.Enqueue(t.Context(), keyed(fmt.Sprint("key ", round), queue.ReleaseExpiry)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		awaitState(t, c, ids[0], queue.StateSucceeded)
	}
	if n := handled.Load(); n != 5 {
		t.Errorf("5 keys were enqueued ten times each, and handlers ran %d times", n)
	}
}

// The load: when nothing fails, each job runs once. It measures, so it is not
// parallel.
func TestClaim_eachJobOnce(t *testing.T) {
	const jobs = 20_000
	pool := pgtest.NewWith(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 16 })
	c := newClient(t, pool, queue.Config{})
	runs := make([]atomic.Int32, jobs)
	var left atomic.Int64
	left.Store(jobs)
	done := make(chan struct{})
	var workers []*queue.Worker
	for i := range 2 {
		w := newWorker(t, c, queue.WorkerConfig{ID: fmt.Sprint("w", i), Queues: map[string]int{"default": 100}})
		queue.Handle(w, workType, func(_ context.Context, job *queue.Job[int]) error {
			runs[job.Payload].Add(1)
			if left.Add(-1) == 0 {
				close(done)
			}
			return nil
		})
		workers = append(workers, w)
	}
	reqs := make([]queue.Request, jobs)
	for i := range reqs {
		reqs[i] = queue.Request{Type: workType, Payload: i}
	}
	acceptMany(t, c, reqs)
	begin := time.Now()
	for _, w := range workers {
		start(t, w)
	}
	awaitClosed(t, "all jobs to be handled", done)
	t.Logf("%d no-op jobs in %v: %.0f/s", jobs, time.Since(begin).Round(time.Millisecond), jobs/time.Since(begin).Seconds())
	pgtest.Await(t, "all jobs to be recorded as succeeded", func() bool {
		return pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.finished WHERE state = 1 AND attempt = 1`) == jobs
	})
	for i := range runs {
		if n := runs[i].Load(); n != 1 {
			t.Errorf("job %d ran %d times although nothing failed", i, n)
		}
	}
	if n := pgtest.Scan[int](t, pool, `SELECT (SELECT count(*) FROM onceq.pending) + (SELECT count(*) FROM onceq.running) + (SELECT count(*) FROM onceq.event)`); n != 0 {
		t.Errorf("%d rows are left of jobs that have succeeded at once: the everyday path writes no events and leaves nothing waiting", n)
	}
}

// A lease that no claim gave, on a job that still waits, can't come from the
// library. If it is there all the same, the jobs behind it must not wait for it.
func TestClaim_aWrongRowHoldsUpNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	wrong := accept(t, c, named("wrong"))
	pgtest.Exec(t, pool, `INSERT INTO onceq.running (claimed_at, lease_until, job_id, fence, attempt, queue, worker_id)
		VALUES (now(), now() + interval '1 day', $1, 1, 1, 'default', 'nobody')`, string(wrong))
	w := newWorker(t, c, queue.WorkerConfig{})
	started := recorded(w)
	start(t, w)
	for i := range 3 {
		accept(t, c, named(fmt.Sprint(i)))
	}
	got := started.await(t, 3)
	slices.Sort(got)
	wantOrder(t, got, []string{"0", "1", "2"})
}
