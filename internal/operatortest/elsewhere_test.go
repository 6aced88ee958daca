package operatortest

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// Operators' calls work in another schema, and know nothing of the first.
func TestOtherSchema(t *testing.T) {
	t.Parallel()
	first := newWorld(t)
	migrate(t, first.pool, "tenant_a")
	w := worldOf(t, first.pool, queue.Config{Schema: "tenant_a"})
	id, err := w.client.Enqueue(w.ctx, queue.Request{Type: "t", RunAt: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.client.RunNow(w.ctx, id); !errors.Is(err, queue.ErrJobNotFound) {
		t.Errorf("want ErrJobNotFound, got %v", err)
	}
	if err := w.client.RunNow(w.ctx, id); err != nil {
		t.Fatal(err)
	}
	w.exec(`WITH taken AS (DELETE FROM tenant_a.pending RETURNING *)
		INSERT INTO tenant_a.finished (finished_at, job_id, state, attempt, error) SELECT clock_timestamp(), job_id, 2, 1, 'no paper' FROM taken`)
	first.redrive(id, "order", queue.RedriveNotFound)
	target := w.redrive(id, "order", queue.Redriven)
	if res := w.many(queue.RedriveManyRequest{}); res.Skipped != 1 {
		t.Errorf("%+v", res)
	}
	if got := ids(t, w.client.Jobs(w.ctx, queue.JobFilter{})); len(got) != 2 || got[0] != target {
		t.Errorf("the list: %v", got)
	}
	if got := ids(t, w.client.DeadLetters(w.ctx, queue.JobFilter{})); len(got) != 1 {
		t.Errorf("the dead letters: %v", got)
	}
	for _, state := range []queue.State{queue.StateReady, queue.StateScheduled, queue.StateRunning, queue.StateSucceeded, queue.StateDead, queue.StateCancelled} {
		ids(t, w.client.Jobs(w.ctx, queue.JobFilter{State: state}))
	}
	stats, err := w.client.Stats(w.ctx)
	if err != nil || len(stats) != 1 || stats[0].Ready != 1 || stats[0].Dead != 1 {
		t.Errorf("%+v, %v", stats, err)
	}
	w.maintain()
	if n := scan[int](first, `SELECT (SELECT count(*) FROM onceq.job) + (SELECT count(*) FROM onceq.redrive) + (SELECT count(*) FROM onceq.event)`); n != 0 {
		t.Errorf("the first schema holds %d rows", n)
	}
}

// The calls work in every way in which pgx can send a statement.
func TestExecModes(t *testing.T) {
	t.Parallel()
	setting := map[string]func(cfg *pgx.ConnConfig){
		"nothing remembered": func(cfg *pgx.ConnConfig) { cfg.StatementCacheCapacity, cfg.DescriptionCacheCapacity = 100, 0 },
	}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		setting[mode.String()] = func(cfg *pgx.ConnConfig) { cfg.DefaultQueryExecMode = mode }
	}
	for name, set := range setting {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldOf(t, pgtest.NewWith(t, func(cfg *pgxpool.Config) { set(cfg.ConnConfig) }), queue.Config{KeySecret: []byte("a secret of 16 b"), PreviousKeySecrets: [][]byte{nil}})
			w.exec(`INSERT INTO onceq.job (id, accepted_at, run_at, priority, max_attempts, queue, type, payload)
				SELECT gen_random_uuid(), now(), now(), 0, 1, 'q', 't', '1' FROM generate_series(1, 3)`)
			w.exec(`INSERT INTO onceq.finished (finished_at, job_id, state, attempt, error) SELECT now(), id, 2, 1, 'no paper' FROM onceq.job`)
			dead := ids(t, w.client.DeadLetters(w.ctx, queue.JobFilter{Queue: "q", Error: "paper", WithPayload: true}))
			if len(dead) != 3 {
				t.Fatalf("%d dead letters", len(dead))
			}
			w.redrive(dead[0], "order", queue.Redriven)
			w.redrive(dead[0], "order", queue.RedriveReplayed)
			if res := w.many(queue.RedriveManyRequest{}); res.Redriven != 2 || res.Skipped != 1 {
				t.Errorf("%+v", res)
			}
			for _, state := range []queue.State{"", queue.StateReady, queue.StateRunning, queue.StateDead, queue.StateSucceeded} {
				ids(t, w.client.Jobs(w.ctx, queue.JobFilter{State: state}))
			}
			stats, err := w.client.Stats(w.ctx)
			if err != nil || len(stats) != 1 || stats[0].Ready != 3 || stats[0].Dead != 3 {
				t.Errorf("%+v, %v", stats, err)
			}
			id := w.accept(queue.Request{RunAt: time.Now().Add(time.Hour), Admission: queue.Idempotency{Key: "k"}})
			if err := w.client.RunNow(w.ctx, id); err != nil {
				t.Error(err)
			}
			if got := kinds(t, w, id); got != "accepted run_now" {
				t.Error(got)
			}
		})
	}
}
