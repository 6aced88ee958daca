package racetest

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

const day = 24 * time.Hour

// slack is how long a statement may take, see "Expiry" in docs/architecture.md.
// What takes longer, as it does where the server pauses, looks like a wait for
// another transaction and is asked again, so its cost tells nothing.
const slack = 250 * time.Millisecond

func newClient(t testing.TB, pool *pgxpool.Pool, cfg queue.Config) *queue.Client {
	t.Helper()
	c, err := queue.New(pool, cfg)
	if err != nil {
		t.Fatalf("queue.New refuses a good Config: %v", err)
	}
	return c
}

// accept enqueues a request that must make a new job.
func accept(t testing.TB, c *queue.Client, req queue.Request) queue.JobID {
	t.Helper()
	res, err := c.EnqueueWithResult(t.Context(), req)
	if err != nil || res.Outcome != queue.OutcomeAccepted || res.JobID == "" {
		t.Fatalf("a request with a free key must be accepted: got %+v, %v", res, err)
	}
	return res.JobID
}

// together runs f n times at once and returns when all have ended.
func together(n int, f func(i int)) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	all.Wait()
}

// lasting tells how long a test goes on: for d, and on a busy machine for longer,
// until enough has happened, but for no more than a minute.
func lasting(d time.Duration, enough func() bool) (goesOn func() bool) {
	began := time.Now()
	return func() bool {
		past := time.Since(began)
		return past < d || past < time.Minute && !enough()
	}
}

// random is a source of a goroutine's own; its seed is told if the test fails.
func random(t testing.TB, seed, stream uint64) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(seed, stream))
}

// newSeed is a seed that differs from run to run and is told when the test
// fails.
func newSeed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the random choices of this run came from seed %d", seed)
		}
	})
	return seed
}

// sqlState is the code of a PostgreSQL error, or "".
func sqlState(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// misplaced are jobs that have no place, or several.
const misplaced = `SELECT j.id::text FROM onceq.job AS j
	WHERE (SELECT count(*) FROM onceq.pending AS p WHERE p.job_id = j.id)
		+ (SELECT count(*) FROM onceq.running AS r WHERE r.job_id = j.id)
		+ (SELECT count(*) FROM onceq.finished AS f WHERE f.job_id = j.id) <> 1`

// homeless are the jobs of places and bindings that do not exist.
const homeless = `SELECT job_id::text FROM (
		SELECT job_id FROM onceq.pending UNION ALL SELECT job_id FROM onceq.running UNION ALL
		SELECT job_id FROM onceq.finished UNION ALL SELECT job_id FROM onceq.binding
	) AS x WHERE NOT EXISTS (SELECT FROM onceq.job AS j WHERE j.id = x.job_id)`

// malformed are jobs with a part of a key's columns, and bindings of a hash that
// is not whole. The tables have no CHECK for it, which would cost each acceptance.
const malformed = `SELECT id::text FROM onceq.job WHERE num_nulls(key_mode, key_release, key_length, key_hash, key_scope, key_preview) NOT IN (0, 6)
	UNION ALL SELECT job_id::text FROM onceq.binding WHERE octet_length(key_hash) <> 32`

// wantWhole fails the test unless every job has exactly one place, and every
// place and binding has its job.
func wantWhole(t testing.TB, q pgtest.Querier) {
	t.Helper()
	if ids := pgtest.List[string](t, q, misplaced); len(ids) > 0 {
		t.Errorf("a job has exactly one place; these %d have none or several: %.3q", len(ids), ids)
	}
	if ids := pgtest.List[string](t, q, homeless); len(ids) > 0 {
		t.Errorf("job, place and binding commit together; these %d have lost their job: %.3q", len(ids), ids)
	}
	if ids := pgtest.List[string](t, q, malformed); len(ids) > 0 {
		t.Errorf("a job has all of a key's columns or none, and a binding a whole hash; not so for these %d: %.3q", len(ids), ids)
	}
}
