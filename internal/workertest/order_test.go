package workertest_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// record is the order in which jobs, named by their payloads, were started.
type record struct {
	mu   sync.Mutex
	list []string
}

func (r *record) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, name)
}

func (r *record) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// await waits for n starts and returns all of them.
func (r *record) await(t testing.TB, n int) []string {
	t.Helper()
	pgtest.Await(t, fmt.Sprintf("%d jobs to be started", n), func() bool { return len(r.names()) >= n })
	return r.names()
}

// recorded registers a handler that records what it is started for.
func recorded(w *queue.Worker) *record {
	r := &record{}
	queue.Handle(w, workType, func(_ context.Context, job *queue.Job[string]) error {
		r.add(job.Payload)
		return nil
	})
	return r
}

func named(name string) queue.Request { return queue.Request{Type: workType, Payload: name} }

func prior(name string, priority int) queue.Request {
	req := named(name)
	req.Priority = priority
	return req
}

func wantOrder(t testing.TB, got, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("jobs must start by priority, then in the order in which they became ready (-want +got):\n%s", diff)
	}
}

func TestOrder_priorityThenReadiness(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	for _, req := range []queue.Request{
		prior("low 1", 0), prior("mid 1", 50), prior("top 1", 100), prior("one 1", 1),
		prior("low 2", 0), prior("mid 2", 50), prior("top 2", 100), prior("one 2", 1),
	} {
		accept(t, c, req)
	}
	w := newWorker(t, c, one("a"))
	started := recorded(w)
	start(t, w)
	wantOrder(t, started.await(t, 8), []string{"top 1", "top 2", "mid 1", "mid 2", "one 1", "one 2", "low 1", "low 2"})
}

// While all of a worker's handlers are busy it may not take a job ahead of
// time: a more urgent one could still come.
// Jobs with a concurrency key are claimed by another statement than those
// without, but all stand in one line.
func TestOrder_withAndWithoutConcurrencyKeys(t *testing.T) {
	t.Parallel()
	c := newClient(t, pgtest.New(t), queue.Config{})
	var want []string
	for i := range 12 {
		name := fmt.Sprint(i)
		req := prior(name, 100-i)
		if i%3 != 1 {
			req.ConcurrencyKey = "key " + name
		}
		accept(t, c, req)
		want = append(want, name)
	}
	w := newWorker(t, c, one("a"))
	started := recorded(w)
	start(t, w)
	wantOrder(t, started.await(t, len(want)), want)
}

func TestOrder_laterButMoreUrgent(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	started, busy := recorded(w), handle(t, "busy", w)
	start(t, w)
	accept(t, c, queue.Request{Type: "busy"})
	blocker := busy.next(t)
	accept(t, c, prior("low", 0))
	accept(t, c, prior("mid", 1))
	accept(t, c, prior("top", 100))
	blocker.end(nil)
	wantOrder(t, started.await(t, 3), []string{"top", "mid", "low"})
}

func TestOrder_scheduledJobsKeepTheirPlaceByTime(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	at := pgtest.Clock(t, pool).Add(4 * time.Second)
	later, sooner := named("scheduled later"), named("scheduled sooner")
	later.RunAt, sooner.RunAt = at, at.Add(-100*time.Millisecond)
	accept(t, c, named("before both"))
	accept(t, c, later)
	accept(t, c, sooner)
	if n := len(pgtest.List[string](t, pool, `SELECT job_id::text FROM onceq.pending WHERE ready_at > clock_timestamp()`)); n != 2 {
		t.Fatalf("%d jobs are scheduled, want the 2 whose time has not come (or the machine took seconds to enqueue them)", n)
	}
	pgtest.AwaitClock(t, pool, at)
	accept(t, c, named("after both"))
	w := newWorker(t, c, one("a"))
	started := recorded(w)
	start(t, w)
	wantOrder(t, started.await(t, 4), []string{"before both", "scheduled sooner", "scheduled later", "after both"})
}

func TestOrder_nothingBeforeItsTime(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	work := handle(t, workType, w)
	start(t, w)
	id := accept(t, c, queue.Request{Priority: 100, RunAt: time.Now().Add(time.Hour)})
	keyed := accept(t, c, queue.Request{RunAt: time.Now().Add(time.Hour), ConcurrencyKey: "K"})
	ready := accept(t, c, queue.Request{ConcurrencyKey: "K"})
	if got := work.next(t); got.job.ID != ready {
		t.Fatalf("job %s was started an hour early", got.job.ID)
	} else {
		got.end(nil)
	}
	work.none(t, 150*time.Millisecond, "the other jobs are scheduled in an hour")
	for _, id := range []queue.JobID{id, keyed} {
		if job := info(t, c, id); job.State != queue.StateScheduled || job.Attempt != 0 {
			t.Errorf("a job that is scheduled in an hour is %s after %d attempts", job.State, job.Attempt)
		}
	}
}

func TestOrder_runAtInThePastDoesNotJumpTheQueue(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	past := named("in the past")
	past.RunAt = time.Now().Add(-24 * time.Hour)
	accept(t, c, named("first"))
	accept(t, c, past)
	accept(t, c, named("third"))
	acceptMany(t, c, []queue.Request{named("fourth"), past, named("sixth")})
	w := newWorker(t, c, one("a"))
	started := recorded(w)
	start(t, w)
	wantOrder(t, started.await(t, 6), []string{"first", "in the past", "third", "fourth", "in the past", "sixth"})
}

func TestOrder_batchesRunInTheOrderOfTheirRequests(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	var reqs []queue.Request
	var want []string
	for i := range 300 {
		reqs = append(reqs, named(fmt.Sprint(i)))
		want = append(want, fmt.Sprint(i))
	}
	acceptMany(t, c, reqs[:100])
	acceptMany(t, c, reqs[100:])
	w := newWorker(t, c, one("a"))
	started := recorded(w)
	start(t, w)
	wantOrder(t, started.await(t, len(want)), want)
}

// A failed attempt that may go on at once became ready after those that wait.
func TestOrder_retriesStandBehindWhatWaits(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	for _, name := range []string{"fails", "second", "third"} {
		req := named(name)
		req.Retry = queue.Fixed{}
		accept(t, c, req)
	}
	w := newWorker(t, c, one("a"))
	started := &record{}
	queue.Handle(w, workType, func(_ context.Context, job *queue.Job[string]) error {
		started.add(fmt.Sprint(job.Payload, " ", job.Attempt))
		if job.Payload == "fails" && job.Attempt == 1 {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	start(t, w)
	wantOrder(t, started.await(t, 4), []string{"fails 1", "second 1", "third 1", "fails 2"})
}

// A steady stream of ready jobs may not keep a job that came due from running.
func TestOrder_scheduledJobsDoNotStarve(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	type started struct {
		name       string
		acceptedAt time.Time
	}
	var mu sync.Mutex
	var starts []started
	begun := make(chan struct{}, 10_000)
	queue.Handle(w, workType, func(_ context.Context, job *queue.Job[string]) error {
		mu.Lock()
		defer mu.Unlock()
		starts = append(starts, started{job.Payload, job.AcceptedAt})
		begun <- struct{}{}
		return nil
	})
	// Every start brings a new job, so that 50 always wait.
	for range 50 {
		accept(t, c, named("stream"))
	}
	due := pgtest.Clock(t, pool).Add(200 * time.Millisecond)
	scheduled := named("scheduled")
	scheduled.RunAt = due
	id := accept(t, c, scheduled)
	start(t, w)
	for give := time.Now().Add(pgtest.Patience); info(t, c, id).State != queue.StateSucceeded; {
		if time.Now().After(give) {
			t.Fatal("a scheduled job that came due starves behind a stream of ready jobs")
		}
		awaitClosed(t, "a job of the stream to start", begun)
		accept(t, c, named("stream"))
	}
	mu.Lock()
	defer mu.Unlock()
	ahead := 0
	for _, s := range starts {
		if s.name == "scheduled" {
			break
		}
		if s.acceptedAt.After(due) {
			ahead++
		}
	}
	if ahead > 0 {
		t.Errorf("%d jobs that became ready after a scheduled job came due were started before it", ahead)
	}
}
