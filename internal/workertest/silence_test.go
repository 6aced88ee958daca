package workertest_test

import (
	"context"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// The connections that a worker has go silent, in the middle of whatever it asks.
// New ones work, so it must go on by itself, long before TCP gives them up: after a
// statement's limit of 15 s, and the 15 s that pgx gives a connection to end.

const afterSilence = 30*time.Second + pgtest.Patience

// startAmidst starts a worker whose silent connections may take pgx longer to end
// than the worker takes to stop.
func startAmidst(t *testing.T, w *queue.Worker) *run {
	t.Helper()
	r := start(t, w)
	r.strays = true
	return r
}

func TestSilence_maintenanceGoesOn(t *testing.T) {
	t.Parallel()
	direct := pgtest.New(t)
	pool, way := linked(t, direct)
	watch := newClient(t, direct, queue.Config{})
	turns := &turnstile{name: "TakeUpkeep"}
	w := newWorker(t, newClient(t, guarded(t, pool, turns), queue.Config{}), one("a"))
	handle(t, "other", w)
	accept(t, watch, queue.Request{})
	startAmidst(t, w)
	turns.armed.Store(true)
	t.Cleanup(turns.open)
	for range 2 { // the urgent and the slow one
		awaitClosed(t, "a turn of maintenance", turns.came)
	}
	way.silence()
	turns.open()
	abandon(t, direct)
	pgtest.AwaitFor(t, afterSilence, "the lease of a worker that is gone to be ended", func() bool { return pgtest.Scan[int](t, direct, `SELECT count(*) FROM onceq.running`) == 0 })
}

func TestSilence_claimsAndEndsGoOn(t *testing.T) {
	t.Parallel()
	direct := pgtest.New(t)
	pool, way := linked(t, direct)
	watch := newClient(t, direct, queue.Config{})
	looks := &turnstile{name: "NextReadyAt"}
	// Three idle queues ask at once when their next job is due: all there are of the
	// worker's connections for that.
	w := newWorker(t, newClient(t, guarded(t, pool, looks), queue.Config{}), queue.WorkerConfig{ID: "a", Queues: map[string]int{"x": 2, "y": 2, "z": 2}})
	work := handle(t, workType, w)
	startAmidst(t, w)
	id := accept(t, watch, queue.Request{Queue: "x", MaxAttempts: 1})
	first := work.next(t)
	looks.armed.Store(true)
	t.Cleanup(looks.open)
	for range 3 {
		awaitClosed(t, "a queue to ask", looks.came)
	}
	way.silence()
	looks.open()
	first.end(nil)
	other := accept(t, watch, queue.Request{Queue: "y"})
	pgtest.AwaitFor(t, afterSilence, "another job to be claimed, and the end of the first to be recorded", func() bool {
		select {
		case next := <-work.came:
			next.end(nil)
		default:
		}
		return info(t, watch, id).State == queue.StateSucceeded && info(t, watch, other).State == queue.StateSucceeded
	})
}

func TestSilence_leasesAreKept(t *testing.T) {
	t.Parallel()
	direct := pgtest.New(t)
	pool, way := linked(t, direct)
	watch := newClient(t, direct, queue.Config{})
	cfg := one("a")
	cfg.Lease = 4 * shortLease // the second heartbeat comes with a sixth of it left
	w := newWorker(t, newClient(t, pool, queue.Config{}), cfg)
	work := handle(t, workType, w)
	id := accept(t, watch, queue.Request{MaxAttempts: 1})
	startAmidst(t, w)
	first := work.next(t)
	const lease = `SELECT lease_until FROM onceq.running`
	claimed := pgtest.Scan[time.Time](t, direct, lease)
	pgtest.Await(t, "a first heartbeat", func() bool { return pgtest.Scan[time.Time](t, direct, lease).After(claimed) })
	way.silence()
	before := pgtest.Scan[time.Time](t, direct, lease)
	pgtest.Await(t, "a heartbeat on another connection", func() bool {
		return first.ctx.Err() != nil || pgtest.Scan[time.Time](t, direct, lease).After(before)
	})
	first.wantAlive(t, "a heartbeat that is lost is followed by another, in time")
	first.end(nil)
	pgtest.AwaitFor(t, afterSilence, "the end to be recorded", func() bool { return info(t, watch, id).State == queue.StateSucceeded })
}

func TestSilence_runEndsAllTheSame(t *testing.T) {
	t.Parallel()
	direct := pgtest.New(t)
	pool, way := linked(t, direct)
	w := newWorker(t, newClient(t, pool, queue.Config{}), stopping(50*time.Millisecond))
	began, silent := make(chan struct{}), make(chan struct{})
	queue.Handle(w, workType, func(ctx context.Context, job *queue.Job[any]) error {
		// Out of reach of the context that ends with the worker.
		_, err := queue.Checkpoint(context.WithoutCancel(ctx), job, "stage", func(context.Context) (int, error) {
			close(began)
			<-silent
			return 1, nil
		})
		return err
	})
	accept(t, newClient(t, direct, queue.Config{}), queue.Request{})
	r := startAmidst(t, w)
	awaitClosed(t, "the stage", began)
	way.silence()
	close(silent)
	_ = r.stop(t) // It could not record everything, and says so.
}
