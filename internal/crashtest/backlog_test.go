//go:build unix

package crashtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
)

const (
	million = 1_000_000
	// few is how many jobs an almost empty queue has: enough for the claims that
	// are made of it here.
	few = 8000
	// flatFactor is how many times the pages that it touches in an almost empty
	// queue a statement may touch: an index grows by a level or two.
	flatFactor = 2
)

// baseline is what the statements of a worker touch in an almost empty queue.
func baseline(t *testing.T, s worked) (pages, *pgxpool.Pool) {
	t.Helper()
	pool := pgtest.New(t)
	fill(t, pool, "ready", 0, few)
	vacuum(t, pool)
	p := s.newSession(t, pool, false).median(t, "almost empty")
	t.Logf("pages touched for %d jobs of an almost empty queue: %+v", claimSize, p)
	return p, pool
}

// wantFlat wants the session's statements to touch hardly more than those. What
// renews and completes may touch running's pages again and again in a session
// without settings, so the number is what happens to be there.
func (w *session) wantFlat(t *testing.T, least pages, when string) {
	t.Helper()
	got := w.median(t, when)
	if got.claim > flatFactor*least.claim || got.look > flatFactor*least.look ||
		!w.polls && (got.renew > flatFactor*least.renew || got.complete > flatFactor*least.complete) {
		t.Errorf("%s: pages touched are %+v, in an almost empty queue %+v", when, got, least)
	} else {
		t.Logf("%s: pages touched are %+v", when, got)
	}
}

// A claim costs the same beside a million ready and a million scheduled jobs, and
// with a long history of finished ones, as from a queue that is almost empty,
// and so do the other statements of a worker. What they touch is compared, not
// what they take; that is printed.
func TestClaim_flat(t *testing.T) {
	t.Parallel()
	for _, way := range paths {
		t.Run(way.claim, func(t *testing.T) {
			t.Parallel()
			watchWorker(t, way).wantFlat(t)
		})
	}
}

func (s worked) wantFlat(t *testing.T) {
	least, small := baseline(t, s)
	big := pgtest.New(t)
	fill(t, big, "ready", 0, 2*few)
	early := s.newSession(t, big, false)
	wantFlat := func(when string) {
		t.Helper()
		early.wantFlat(t, least, when+", a worker that has been there since")
		s.newSession(t, big, false).wantFlat(t, least, when+", a new worker")
		s.newSession(t, big, true).wantFlat(t, least, when+", a new worker that only polls")
	}
	fill(t, big, "finished", million, million/2)
	wantFlat("with half a million finished jobs")
	fill(t, big, "scheduled", 2*million, million)
	fill(t, big, "ready", 3*million, million)
	wantFlat("with a million ready and a million scheduled jobs")
	pgtest.Exec(t, big, "ANALYZE onceq.pending, onceq.job, onceq.running, onceq.finished")
	wantFlat("with statistics that tell of them")

	inSmall, inBig := s.newSession(t, small, false), s.newSession(t, big, false)
	var tookSmall, tookBig []time.Duration
	for range few/claimSize - 20 {
		tookSmall = append(tookSmall, inSmall.took(t))
		tookBig = append(tookBig, inBig.took(t))
	}
	slices.Sort(tookSmall)
	slices.Sort(tookBig)
	half := len(tookBig) / 2
	t.Logf("a claim of %d jobs takes %v from the small queue, %v from the big one (medians): %.2f times",
		claimSize, tookSmall[half], tookBig[half], float64(tookBig[half])/float64(tookSmall[half]))
}

// A worker keeps the plans that were made when its queue was at rest. They must
// do for the burst that follows; statistics come a minute later.
func TestClaim_planMadeAtRest(t *testing.T) {
	t.Parallel()
	for _, way := range paths {
		t.Run(way.claim, func(t *testing.T) {
			t.Parallel()
			watchWorker(t, way).wantPlansMadeAtRest(t)
		})
	}
}

func (s worked) wantPlansMadeAtRest(t *testing.T) {
	least, _ := baseline(t, s)
	const burst = 100_000
	t.Run("the tables were empty", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.New(t)
		vacuum(t, pool)
		w := s.newSession(t, pool, false)
		fill(t, pool, "ready", 0, burst)
		w.wantFlat(t, least, "in a burst")
	})
	t.Run("all in them was dead and kept by an old snapshot", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.New(t)
		old, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		pgtest.Scan[int](t, old, `SELECT count(*) FROM onceq.job`) // takes the snapshot
		fill(t, pool, "ready", burst, burst/5)
		pgtest.Exec(t, pool, `INSERT INTO onceq.running (claimed_at, lease_until, job_id, fence, attempt, queue, worker_id)
			SELECT now(), now(), id, 1, 1, queue, 'past' FROM onceq.job`)
		pgtest.Exec(t, pool, `DELETE FROM onceq.running`)
		pgtest.Exec(t, pool, `DELETE FROM onceq.pending`)
		vacuum(t, pool)
		w := s.newSession(t, pool, false)
		if err := old.Rollback(context.Background()); err != nil {
			t.Fatal(err)
		}
		fill(t, pool, "ready", 0, burst)
		w.wantFlat(t, least, "in a burst")
	})
}
