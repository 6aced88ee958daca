package workertest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// endings are the ways a job can end; each drives one that waits to its end.
var endings = []struct {
	name  string
	state queue.State
	drive func(t *testing.T, pool *pgxpool.Pool, c *queue.Client, id queue.JobID)
}{
	{"succeeds", queue.StateSucceeded, func(t *testing.T, _ *pgxpool.Pool, c *queue.Client, _ queue.JobID) {
		worked(t, c).end(nil)
	}},
	{"succeeds in a transaction", queue.StateSucceeded, func(t *testing.T, pool *pgxpool.Pool, c *queue.Client, _ queue.JobID) {
		got := worked(t, c)
		if err := completeIn(t, pool, got).Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		got.end(nil)
	}},
	{"fails for good", queue.StateDead, func(t *testing.T, _ *pgxpool.Pool, c *queue.Client, _ queue.JobID) {
		worked(t, c).end(queue.Permanent(errNotYet))
	}},
	{"loses its last lease", queue.StateDead, func(t *testing.T, pool *pgxpool.Pool, c *queue.Client, id queue.JobID) {
		defer worked(t, c).end(nil)
		pgtest.Exec(t, pool, `UPDATE onceq.job SET max_attempts = 1`)
		reclaim(t, pool, c, id)
	}},
	{"misses its deadline while it waits", queue.StateDead, func(t *testing.T, pool *pgxpool.Pool, c *queue.Client, id queue.JobID) {
		pgtest.Exec(t, pool, `UPDATE onceq.pending SET deadline = clock_timestamp() WHERE job_id = $1`, string(id))
		maintain(t, c)
	}},
	{"is cancelled while it waits", queue.StateCancelled, func(t *testing.T, _ *pgxpool.Pool, c *queue.Client, id queue.JobID) {
		cancel(t, c, id, queue.CancelledNow)
	}},
	{"is cancelled while it runs", queue.StateCancelled, func(t *testing.T, _ *pgxpool.Pool, c *queue.Client, id queue.JobID) {
		got := worked(t, c)
		cancel(t, c, id, queue.CancelRequested)
		got.end(errNotYet)
	}},
	{"is cancelled and loses its lease", queue.StateCancelled, func(t *testing.T, pool *pgxpool.Pool, c *queue.Client, id queue.JobID) {
		defer worked(t, c).end(nil)
		cancel(t, c, id, queue.CancelRequested)
		reclaim(t, pool, c, id)
	}},
}

// worked starts a worker and returns its first handler.
func worked(t *testing.T, c *queue.Client) *call {
	t.Helper()
	w := newWorker(t, c, calm("a"))
	work := handle(t, workType, w)
	start(t, w)
	return work.next(t)
}

// frees says whether a key with the release is free once its job is in the state.
func frees(r queue.Release, s queue.State) bool {
	return r == queue.ReleaseFinished || r == queue.ReleaseDead && s != queue.StateSucceeded
}

func TestRelease_saysWhenTheKeyIsFree(t *testing.T) {
	t.Parallel()
	for _, ending := range endings {
		for _, release := range []queue.Release{queue.ReleaseExpiry, queue.ReleaseFinished, queue.ReleaseDead} {
			t.Run(fmt.Sprintf("release %d, the job %s", release, ending.name), func(t *testing.T) {
				t.Parallel()
				pool := pgtest.New(t)
				c := newClient(t, pool, queue.Config{})
				req := keyed("k", release)
				id := accept(t, c, req)
				wantAnswer(t, c, req, queue.Result{JobID: id, Outcome: queue.OutcomeReplayed})
				ending.drive(t, pool, c, id)
				awaitState(t, c, id, ending.state)
				if frees(release, ending.state) {
					wantAnswer(t, c, req, queue.Result{Outcome: queue.OutcomeAccepted})
					return
				}
				dead := ending.state != queue.StateSucceeded
				wantAnswer(t, c, req, queue.Result{JobID: id, Outcome: queue.OutcomeReplayed, Dead: dead})
				if b, err := c.Binding(t.Context(), "", "k"); err != nil || b.JobID != id || b.Dead != dead {
					t.Errorf("the binding says (%+v, %v), want job %s, dead %t", b, err, id, dead)
				}
			})
		}
	}
}

// Under a rotated secret a key has two bindings, which share their job's fate.
func TestRelease_underTwoSecrets(t *testing.T) {
	t.Parallel()
	older, newer := []byte("the older secret"), []byte("the newer secret")
	for _, ending := range endings {
		for _, release := range []queue.Release{queue.ReleaseExpiry, queue.ReleaseFinished, queue.ReleaseDead} {
			t.Run(fmt.Sprintf("release %d, the job %s", release, ending.name), func(t *testing.T) {
				t.Parallel()
				pool := pgtest.New(t)
				both := newClient(t, pool, queue.Config{KeySecret: newer, PreviousKeySecrets: [][]byte{older}})
				req := keyed("k", release)
				id := accept(t, both, req)
				ending.drive(t, pool, both, id)
				awaitState(t, both, id, ending.state)
				for _, secret := range [][]byte{older, newer} {
					c := newClient(t, pool, queue.Config{KeySecret: secret})
					if frees(release, ending.state) {
						wantAnswer(t, c, req, queue.Result{Outcome: queue.OutcomeAccepted})
					} else {
						wantAnswer(t, c, req, queue.Result{JobID: id, Outcome: queue.OutcomeReplayed, Dead: ending.state != queue.StateSucceeded})
					}
				}
			})
		}
	}
}

// A job whose key has become another's can neither free nor mark it.
func TestRelease_notOfAnothersKey(t *testing.T) {
	t.Parallel()
	for _, ending := range endings {
		for _, release := range []queue.Release{queue.ReleaseExpiry, queue.ReleaseFinished, queue.ReleaseDead} {
			t.Run(fmt.Sprintf("release %d, the older job %s", release, ending.name), func(t *testing.T) {
				t.Parallel()
				pool := pgtest.New(t)
				c := newClient(t, pool, queue.Config{})
				req := keyed("k", release)
				older := accept(t, c, req)
				pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp()`)
				// Out of the way of the worker that drives the older one.
				later := req
				later.Queue = "later"
				newer := accept(t, c, later)
				ending.drive(t, pool, c, older)
				awaitState(t, c, older, ending.state)
				wantAnswer(t, c, later, queue.Result{JobID: newer, Outcome: queue.OutcomeReplayed})
			})
		}
	}
}

// While a transaction takes over the expired key of a job, the job may end:
// that waits for nobody, and neither does what ends with it.
func TestRelease_aTakeoverHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	for _, ending := range endings {
		for _, release := range []queue.Release{queue.ReleaseExpiry, queue.ReleaseFinished} {
			t.Run(fmt.Sprintf("release %d, the older job %s", release, ending.name), func(t *testing.T) {
				t.Parallel()
				pool := pgtest.New(t)
				c := newClient(t, pool, queue.Config{})
				req := keyed("k", release)
				older := accept(t, c, req)
				pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp()`)
				tx, err := pool.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
				later := req
				later.Queue = "later"
				newer, err := c.EnqueueTx(t.Context(), tx, later)
				if err != nil {
					t.Fatal(err)
				}
				ending.drive(t, pool, c, older)
				awaitState(t, c, older, ending.state)
				commit(t, tx)
				wantAnswer(t, c, later, queue.Result{JobID: newer.JobID, Outcome: queue.OutcomeReplayed})
			})
		}
	}
}

func commit(t testing.TB, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}
