//go:build unix

package crashtest

import (
	"context"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/pgtest"
)

// A completion of several attempts that waits for one of their rows decides by
// what the row has become, and ends the others.
func TestCompletePlain_rowChangesMeanwhile(t *testing.T) {
	t.Parallel()
	s := watchWorker(t, paths[0])
	for _, tt := range []struct {
		name, change string
		ended        int
	}{
		{"renewed", `UPDATE onceq.running SET lease_until = lease_until + interval '1 hour' WHERE job_id = $1`, 3},
		{"asked to stop", `UPDATE onceq.running SET cancel_requested_at = now() WHERE job_id = $1`, 3},
		{"run out", `UPDATE onceq.running SET lease_until = now() - interval '1 second' WHERE job_id = $1`, 2},
		{"taken back", `DELETE FROM onceq.running WHERE job_id = $1`, 2},
		{"another's", `UPDATE onceq.running SET fence = 2, worker_id = 'other' WHERE job_id = $1`, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			pool := pgtest.New(t)
			ids := []string{
				"00000000-0000-7000-8000-000000000003", "00000000-0000-7000-8000-000000000001", "00000000-0000-7000-8000-000000000002",
			}
			args := retarget(s.complete.args, ids, []int32{1, 1, 1})
			for _, arg := range args {
				if worker, ok := arg.(string); ok {
					pgtest.Exec(t, pool, `INSERT INTO onceq.running (claimed_at, lease_until, job_id, fence, attempt, queue, worker_id)
						SELECT now(), now() + interval '1 hour', id, 1, 1, 'default', $2 FROM unnest($1::text[]::uuid[]) AS id`, ids, worker)
				}
			}
			tx, err := pool.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(ctx) }()
			pgtest.Exec(t, tx, tt.change, ids[2])
			done := make(chan error, 1)
			ended := 0
			go func() { done <- pool.QueryRow(ctx, s.complete.sql, args...).Scan(&ended) }()
			awaitRow(t, pool, "the completion to wait", `SELECT FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%CompletePlain%'`)
			if err := tx.Commit(ctx); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(pgtest.Patience):
				t.Fatal("the completion waits on")
			}
			if stored := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.finished WHERE state = 1`); ended != tt.ended || stored != tt.ended {
				t.Errorf("%d ends are told and %d stored, want %d", ended, stored, tt.ended)
			}
		})
	}
}
