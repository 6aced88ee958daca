package workertest_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// A claim that was on its way when the worker was stopped starts nothing, and its
// jobs go back together: those that were ready at once keep their order.
func TestShutdown_handsAClaimBackAtOnce(t *testing.T) {
	t.Parallel()
	const jobs = 200
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	ids := acceptMany(t, c, many(jobs, queue.Request{MaxAttempts: 1}))
	back := &sent{name: "ReleaseJobs "}
	traced := pgtest.Reconnect(t, pool, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = back })
	w := newWorker(t, newClient(t, traced, queue.Config{}), queue.WorkerConfig{Queues: map[string]int{"default": jobs}, ShutdownTimeout: time.Minute})
	queue.Handle(w, workType, func(context.Context, *queue.Job[any]) error {
		t.Error("a job was started while the worker stopped")
		return nil
	})
	var r *run
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `LOCK TABLE onceq.running IN EXCLUSIVE MODE`); err != nil {
			return err
		}
		r = start(t, w)
		pgtest.Await(t, "the claim to wait", func() bool {
			return pgtest.Scan[bool](t, pool, `SELECT EXISTS (SELECT FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%ClaimPlain%')`)
		})
		r.cancel()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	if n := back.n.Load(); n != 1 {
		t.Errorf("%d jobs were handed back in %d statements, want 1", jobs, n)
	}
	waiting := pgtest.Scan[[]string](t, pool, `SELECT array_agg(job_id::text ORDER BY ready_at, job_id) FROM onceq.pending WHERE attempt = 0`)
	want := make([]string, jobs)
	for i, id := range ids {
		want[i] = string(id)
	}
	if diff := cmp.Diff(want, waiting); diff != "" {
		t.Errorf("all jobs wait as before, uncharged (-want +got):\n%s", diff)
	}
}
