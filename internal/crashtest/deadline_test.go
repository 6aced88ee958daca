//go:build unix

package crashtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/internal/pgtest"
)

// The watch over deadlines looks at those that have passed, not at those that lie
// ahead, and touches as many pages for them whatever else waits.
func TestDeadlines_flat(t *testing.T) {
	t.Parallel()
	const ahead, passed = 100_000, 20
	touches := func(waiting int) int {
		pool := pgtest.New(t)
		tappedPool, tap := tapped(t, pool)
		if _, err := newClient(t, tappedPool).Maintain(t.Context()); err != nil {
			t.Fatal(err)
		}
		watch := tap.await(t, "EndPassedDeadlines")
		fill(t, pool, "scheduled", 0, waiting)
		pgtest.Exec(t, pool, `UPDATE onceq.pending SET deadline = now() + interval '1 year'`)
		fill(t, pool, "scheduled", million, passed)
		pgtest.Exec(t, pool, `UPDATE onceq.pending SET deadline = now() - interval '1 minute' WHERE deadline IS NULL`)
		vacuum(t, pool)
		conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		pgtest.Exec(t, conn, "SET plan_cache_mode = force_generic_plan")
		w := &session{conn: conn, compiles: pgtest.Scan[string](t, conn, "SHOW jit") == "on"}
		pgtest.Exec(t, conn, "PREPARE "+watch.name+" AS "+watch.sql)
		n := w.explain(t, "with deadlines ahead", watch, watch.args)
		if dead := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.finished`); dead != passed {
			t.Fatalf("%d of %d jobs whose deadline had passed are dead", dead, passed)
		}
		return n
	}
	few, many := touches(ahead/4), touches(ahead)
	if many > flatFactor*few {
		t.Errorf("with %d deadlines ahead the watch touches %d pages, with %d of them %d", ahead, many, ahead/4, few)
	} else {
		t.Logf("with %d deadlines ahead the watch touches %d pages, with %d of them %d", ahead, many, ahead/4, few)
	}
}
