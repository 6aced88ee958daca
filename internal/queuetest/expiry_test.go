package queuetest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

func TestBinding_expiry(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	shift := func(t testing.TB, id queue.JobID, by string) {
		t.Helper()
		pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp() + $2::interval WHERE job_id = $1`, string(id), by)
	}

	t.Run("owns its key until the last moment and no longer", func(t *testing.T) {
		id := accept(t, c, invoice("edge"))
		shift(t, id, "50 ms")
		expires := pgtest.Scan[time.Time](t, pool, `SELECT expires_at FROM onceq.binding WHERE job_id = $1`, string(id))
		for {
			before := pgtest.Clock(t, pool)
			res := enqueue(t, c, invoice("edge"))
			after := pgtest.Clock(t, pool)
			if res.Outcome == queue.OutcomeReplayed && res.JobID == id {
				if !before.Before(expires) {
					t.Fatalf("replayed at %s or later, the key expired at %s", before, expires)
				}
				continue
			}
			if res.Outcome != queue.OutcomeAccepted || after.Before(expires) {
				t.Fatalf("%+v at %s or earlier, the key expires at %s", res, after, expires)
			}
			break
		}
	})

	t.Run("is over at equality", func(t *testing.T) {
		id := accept(t, c, invoice("equality"))
		shift(t, id, "0")
		if _, err := c.Binding(t.Context(), "", "equality"); !errors.Is(err, queue.ErrBindingNotFound) {
			t.Errorf("an expired binding owns nothing: %v, want ErrBindingNotFound", err)
		}
		if fresh := accept(t, c, invoice("equality")); fresh == id {
			t.Error("the expired job was given again")
		}
	})

	t.Run("a takeover makes one job and leaves the old one as it was", func(t *testing.T) {
		req := invoice("takeover")
		old := accept(t, c, req)
		oldRow := jobRow(t, pool, old)
		shift(t, old, "-1 us")
		req.Payload = "another payload decides nothing any more"
		fresh := accept(t, c, req)
		replay(t, c, req, fresh)
		if row := jobRow(t, pool, old); row != oldRow {
			t.Errorf("the takeover touched the old job:\n%s\nwas\n%s", row, oldRow)
		}
		binding, err := c.Binding(t.Context(), "", "takeover")
		if err != nil || binding.JobID != fresh || binding.ExpiresAt.Sub(binding.AcceptedAt) != queue.DefaultTTL {
			t.Errorf("the key is owned by %+v, want job %s for %s: %v", binding, fresh, queue.DefaultTTL, err)
		}
		if _, err := c.Job(t.Context(), old); err != nil {
			t.Errorf("the old job is still readable (B-014): %v", err)
		}
		if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.binding WHERE job_id IN ($1, $2)`, string(old), string(fresh)); n != 1 {
			t.Errorf("the key has %d bindings", n)
		}
	})

	t.Run("an expired key goes to whichever admission asks next", func(t *testing.T) {
		first := accept(t, c, invoice("modes"))
		shift(t, first, "0")
		second := accept(t, c, notice("modes"))
		wantResult(t, enqueue(t, c, notice("modes")), queue.Result{JobID: second, Outcome: queue.OutcomeCoalesced})
		if binding, err := c.Binding(t.Context(), "", "modes"); err != nil || binding.Mode != "throttle" {
			t.Errorf("the key is owned in mode %q, want throttle: %v", binding.Mode, err)
		}
		shift(t, second, "0")
		third := accept(t, c, invoice("modes"))
		replay(t, c, invoice("modes"), third)
		pgtest.Exec(t, pool, `UPDATE onceq.binding SET mode = 2 WHERE job_id = $1`, string(third)) // a debounce binding
		shift(t, third, "0")
		if fourth := accept(t, c, invoice("modes")); fourth == third {
			t.Error("the expired job was given again")
		}
	})

	t.Run("the smallest retention works", func(t *testing.T) {
		for i, admission := range []queue.Admission{queue.Idempotency{Key: "ms", TTL: time.Millisecond}, queue.Throttle{Key: "ms-throttle", Window: time.Millisecond}} {
			req := queue.Request{Type: "t", Admission: admission}
			ids := map[queue.JobID]bool{}
			for range 5 {
				ids[accept(t, c, req)] = true
				pgtest.AwaitClock(t, pool, pgtest.Clock(t, pool).Add(2*time.Millisecond))
			}
			if len(ids) != 5 {
				t.Errorf("admission %d: 5 acceptances, each after the retention, made %d jobs", i, len(ids))
			}
		}
	})

	t.Run("a retention is exact to the microsecond", func(t *testing.T) {
		for i, ttl := range []time.Duration{time.Millisecond, 500 * time.Millisecond, 999 * time.Millisecond, 1500 * time.Millisecond, 1234567 * time.Microsecond, year, 31*day + time.Microsecond} {
			for _, admission := range []queue.Admission{
				queue.Idempotency{Key: fmt.Sprint("exact-", i), TTL: ttl}, queue.Throttle{Key: fmt.Sprint("exact-throttle-", i), Window: ttl},
			} {
				id := accept(t, c, queue.Request{Type: "t", Admission: admission})
				for _, at := range boundTimes(t, pool, id) {
					if lives := at[1].Sub(at[0]); lives != ttl {
						t.Errorf("%s lives for %s", ttl, lives)
					}
				}
			}
		}
	})

	t.Run("maintenance removes expired bindings and no live one", func(t *testing.T) {
		live := accept(t, c, invoice("live"))
		pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp() WHERE job_id <> $1`, string(live))
		jobs := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.job`)
		report, err := c.Maintain(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range report.Tasks {
			if task.Err != nil {
				t.Errorf("task %s: %v", task.Name, task.Err)
			}
		}
		if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.binding`); n != 1 {
			t.Errorf("%d bindings are left, want the live one", n)
		}
		if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.job`); n != jobs {
			t.Errorf("maintenance of bindings left %d of %d jobs", n, jobs)
		}
		replay(t, c, invoice("live"), live)
	})
}

// jobRow is a job's row with the marks of any write to it.
func jobRow(t testing.TB, pool *pgxpool.Pool, id queue.JobID) string {
	t.Helper()
	return pgtest.Scan[string](t, pool, `SELECT format('%s %s %s %s %s %s', j.ctid, j.xmin, j.xmax, j::text, p.xmin, p::text)
		FROM onceq.job j JOIN onceq.pending p ON p.job_id = j.id WHERE j.id = $1`, string(id))
}
