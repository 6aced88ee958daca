package admissiontest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// A request that waited for another transaction gets its whole window from then
// on, and no hour more or less where the session's zone changes to summer time or
// back before its end.
func TestWaited_overSummerTime(t *testing.T) {
	t.Parallel()
	w := newWorldWith(t, queue.Config{}, func(cfg *pgxpool.Config) {
		cfg.MaxConns = 20
		cfg.ConnConfig.RuntimeParams["timezone"] = "Europe/Berlin"
	})
	days := w.count(`
		SELECT n FROM generate_series(100, 300, 10) AS n
		WHERE extract(timezone FROM now()) <> extract(timezone FROM now() + n * interval '24 hours')
		LIMIT 1`)
	window := time.Duration(days) * 24 * time.Hour
	other := w.begin()
	var waiting sync.WaitGroup
	asked := 0
	for mode, admission := range map[string]func(key string) queue.Admission{
		"idempotency": func(key string) queue.Admission { return queue.Idempotency{Key: key, TTL: window} },
		"throttle":    func(key string) queue.Admission { return queue.Throttle{Key: key, Window: window} },
		"debounce":    func(key string) queue.Admission { return queue.Debounce{Key: key, Window: window} },
	} {
		for _, way := range []string{"alone", "in a transaction", "batch", "batch in a transaction"} {
			name := fmt.Sprintf("%s, %s", mode, way)
			r := queue.Request{Type: "report.build", Payload: name, Admission: admission(name)}
			if _, err := w.client.EnqueueTx(w.ctx, other, r); err != nil {
				t.Fatal(err)
			}
			asked++
			waiting.Go(func() {
				if _, err := w.send(way, r); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
	}
	pgtest.AwaitBlocked(t, w.pool, asked)
	time.Sleep(400 * time.Millisecond) // more than the slack that a binding may have
	released := pgtest.Clock(t, w.pool)
	if err := other.Rollback(w.ctx); err != nil {
		t.Fatal(err)
	}
	waiting.Wait()
	rows, err := w.pool.Query(w.ctx, `
		SELECT j.payload #>> '{}', b.accepted_at, b.expires_at, j.run_at, p.ready_at = greatest(j.run_at, j.accepted_at), j.key_mode = 2
		FROM onceq.binding AS b JOIN onceq.job AS j ON j.id = b.job_id JOIN onceq.pending AS p ON p.job_id = j.id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	got := 0
	for rows.Next() {
		var name string
		var from, until, run time.Time
		var placed, debounced bool
		if err := rows.Scan(&name, &from, &until, &run, &placed, &debounced); err != nil {
			t.Fatal(err)
		}
		got++
		if from.Before(released) {
			t.Errorf("%s: the window began before the wait ended, so nothing was shown", name)
		}
		if until.Sub(from) != window {
			t.Errorf("%s: the window has %s, asked were %s", name, until.Sub(from), window)
		}
		if !placed || debounced && !run.Equal(until) {
			t.Errorf("%s: the job runs at %s, its window ends at %s", name, run, until)
		}
	}
	if err := rows.Err(); err != nil || got != asked {
		t.Errorf("%d of %d requests were accepted (%v)", got, asked, err)
	}
}
