//go:build unix

package crashtest

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
)

const (
	million = 1_000_000
	// flatFactor is how many times the pages of a claim from an almost empty
	// queue a claim may touch: an index grows by a level or two.
	flatFactor = 2
)

// A claim costs the same beside a million ready and a million scheduled jobs, and
// with a long history of finished ones, as from a queue that is almost empty.
// What it touches is compared, not what it takes; that is printed.
func TestClaim_flat(t *testing.T) {
	t.Parallel()
	claim, look := capture(t, "ClaimJobs"), capture(t, "NextReadyAt")
	small, big := pgtest.New(t), pgtest.New(t)
	fill(t, small, "ready", 0, few)
	fill(t, big, "ready", 0, few)
	early := claim.prepare(t, big) // a worker that has been there since
	least := early.median(t, "almost empty")
	leastLook := look.prepare(t, big).median(t, "almost empty")
	t.Logf("a claim of %d jobs touches %d pages in an almost empty queue, a look ahead %d", claimSize, least, leastLook)
	wantFlat := func(when string) {
		t.Helper()
		for name, p := range map[string]*prepared{"of long ago": early, "of now": claim.prepare(t, big)} {
			if n := p.median(t, when+", plan "+name); n > flatFactor*least {
				t.Errorf("%s: with the plan %s a claim touches %d pages", when, name, n)
			} else {
				t.Logf("%s: with the plan %s a claim touches %d pages", when, name, n)
			}
		}
		if n := look.prepare(t, big).median(t, when); n > flatFactor*leastLook {
			t.Errorf("%s: a look ahead touches %d pages", when, n)
		}
	}

	fill(t, big, "finished", million, million/2)
	wantFlat("with half a million finished jobs")
	fill(t, big, "scheduled", 2*million, million)
	fill(t, big, "ready", 3*million, million)
	wantFlat("with a million ready and a million scheduled jobs")
	execute(t, big, "ANALYZE onceq.pending, onceq.job, onceq.running, onceq.finished")
	wantFlat("with statistics that tell of them")

	printLatency(t, claim, small, big)
}

// few is how many jobs an almost empty queue has: enough for the claims that
// are made of it here.
const few = 8000

// printLatency tells how long claims take from either queue, in turns.
func printLatency(t *testing.T, claim sent, small, big *pgxpool.Pool) {
	t.Helper()
	execute(t, small, "ANALYZE onceq.pending, onceq.job, onceq.running, onceq.finished")
	s, b := claim.prepare(t, small), claim.prepare(t, big)
	var tookSmall, tookBig []time.Duration
	for range few/claimSize - 10 {
		tookSmall = append(tookSmall, s.took(t))
		tookBig = append(tookBig, b.took(t))
	}
	slices.Sort(tookSmall)
	slices.Sort(tookBig)
	half := len(tookBig) / 2
	t.Logf("a claim of %d jobs takes %v from the small queue, %v from the big one (medians): %.2f times",
		claimSize, tookSmall[half], tookBig[half], float64(tookBig[half])/float64(tookSmall[half]))
}
