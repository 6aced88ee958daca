//go:build unix

package crashtest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// step is a part of what EXPLAIN tells of a plan, with the rows that went through it.
type step struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Loops    float64 `json:"Actual Loops"`
	Rows     float64 `json:"Actual Rows"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Unjoined float64 `json:"Rows Removed by Join Filter"`
	Plans    []step
}

// work is how many rows all parts handled; whole are the tables read from end to end.
func (s step) work() (rows float64, whole []string) {
	rows = s.Loops * (s.Rows + s.Filtered + s.Unjoined)
	if s.Type == "Seq Scan" && s.Loops > 0 {
		whole = append(whole, s.Relation)
	}
	for _, part := range s.Plans {
		more, also := part.work()
		rows, whole = rows+more, append(whole, also...)
	}
	return rows, whole
}

// A batch finds its keys by the index and does a few things for each row, not for
// each pair, also by a plan that was made for any arguments while the tables were
// empty.
func TestClient_batchPlan(t *testing.T) {
	t.Parallel()
	const strangers = 50_000
	pool := pgtest.New(t)
	run := newBatchPlans(t, pool, 30)
	many := func(first int) []queue.Request {
		reqs := make([]queue.Request, n)
		for i := range reqs {
			// A queue each, so that all of them are to be woken.
			reqs[i] = queue.Request{Type: "t", Queue: fmt.Sprint("q", first+i), Admission: queue.Idempotency{Key: fmt.Sprint(first + i)}}
		}
		return reqs
	}
	run("empty", batchSent(t, pool, "EnqueueMany", many(0)))

	pgtest.Exec(t, pool, `INSERT INTO onceq.binding (accepted_at, expires_at, job_id, mode, key_hash, scope, fingerprint)
		SELECT now(), now() + interval '1 day', gen_random_uuid(), 1, sha256(n::text::bytea), 'default', '\x01' FROM generate_series(1, $1) AS n`, strangers)
	run("among strangers", batchSent(t, pool, "EnqueueMany", many(n)))
	run("half of it known", batchSent(t, pool, "EnqueueMany", many(n+n/2)))
	pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = now() WHERE fingerprint <> '\x01'`)
	run("all of it expired", batchSent(t, pool, "EnqueueMany", many(0)))

	watched, tap := tapped(t, pool)
	c := newClient(t, watched)
	for range 2 {
		if _, err := c.EnqueueMany(t.Context(), many(0)); err != nil {
			t.Fatal(err)
		}
	}
	run("repeated", tap.await(t, "EnqueueManyRepeats"))
	if jobs := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.job`); jobs != 3*n+n/2 {
		t.Errorf("the batches made %d jobs, want %d", jobs, 3*n+n/2)
	}
}

// A batch of debounced requests finds keys, jobs and places likewise.
func TestClient_debouncedBatchPlan(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	run := newBatchPlans(t, pool, 120)
	many := func(first int) []queue.Request {
		reqs := make([]queue.Request, n)
		for i := range reqs {
			reqs[i] = queue.Request{Type: "t", Queue: "q", Admission: queue.Debounce{Key: fmt.Sprint(first + i), Window: time.Hour}}
		}
		return reqs
	}
	run("empty", batchSent(t, pool, "DebounceMany", many(0)))
	fill(t, pool, "scheduled", 0, 50_000)
	run("among strangers", batchSent(t, pool, "DebounceMany", many(n)))
	run("replaced", batchSent(t, pool, "DebounceMany", many(0)))
	if jobs := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.job WHERE queue = 'q'`); jobs != 2*n {
		t.Errorf("the batches made %d jobs, want %d", jobs, 2*n)
	}
}

// n is how many requests a batch has here.
const n = 1000

// newBatchPlans returns what runs a batch's statement by a plan that it gets when it
// is first met, for any arguments, and wants it to handle at most some rows for each
// request and to read no table whole.
func newBatchPlans(t *testing.T, pool *pgxpool.Pool, perRequest float64) func(when string, s sent) {
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	w := &session{conn: conn}
	pgtest.Exec(t, conn, "SET plan_cache_mode = force_generic_plan")
	prepared := map[string]bool{}
	return func(when string, s sent) {
		t.Helper()
		if !prepared[s.name] {
			prepared[s.name] = true
			pgtest.Exec(t, conn, "PREPARE "+s.name+" AS "+s.sql)
		}
		text := pgtest.Scan[string](t, conn, "EXPLAIN (ANALYZE, FORMAT JSON) "+w.call(t, s, s.args))
		var plans []struct{ Plan step }
		if err := json.Unmarshal([]byte(text), &plans); err != nil {
			t.Fatal(err)
		}
		rows, whole := plans[0].Plan.work()
		t.Logf("%s: %s handles %.0f rows for %d requests", when, s.name, rows, n)
		if most := perRequest * n; rows > most || len(whole) > 0 {
			t.Errorf("%s: %s handles %.0f rows for %d requests, want at most %.0f, and reads whole %q", when, s.name, rows, n, most, whole)
		}
	}
}

// batchSent is the statement that a client would send for a batch, with a slack
// that no machine's load uses up.
func batchSent(t *testing.T, pool *pgxpool.Pool, name string, reqs []queue.Request) sent {
	t.Helper()
	cut, tap := tapped(t, pool, name)
	if _, err := newClient(t, cut).EnqueueMany(t.Context(), reqs); err == nil {
		t.Fatal("a statement that was cut off was answered")
	}
	s := tap.await(t, name)
	for i, arg := range s.args {
		if arg == (250 * time.Millisecond).Microseconds() {
			s.args[i] = time.Hour.Microseconds()
		}
	}
	return s
}
