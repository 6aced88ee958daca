package operatortest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

func TestStats(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stats := func() []queue.QueueStats {
		t.Helper()
		s, err := w.client.Stats(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := stats(); s == nil || len(s) != 0 {
		t.Errorf("an empty database has an empty list, got %+v", s)
	}
	zoo(w)
	for i := range 5 {
		w.accept(queue.Request{Queue: "c", Priority: i, RunAt: time.Now().Add(time.Hour)})
	}
	w.accept(queue.Request{Queue: "b", Priority: 9})
	if err := w.client.PauseQueue(w.ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if err := w.client.SetQueue(w.ctx, "only settings", queue.QueueSettings{MaxRunning: 1}); err != nil {
		t.Fatal(err)
	}
	w.exec(`UPDATE onceq.pending SET ready_at = ready_at - interval '1 hour' WHERE ready_at = (SELECT max(ready_at) FROM onceq.pending WHERE queue = 'a' AND ready_at < now())`)

	got := stats()
	want := []queue.QueueStats{
		{Queue: "a", Scheduled: 6, Ready: 6, Running: 6, Succeeded: 6, Dead: 6, Cancelled: 6},
		{Queue: "b", Scheduled: 6, Ready: 7, Running: 6, Succeeded: 6, Dead: 6, Cancelled: 6, Paused: true},
		{Queue: "c", Scheduled: 5},
		{Queue: "only settings"},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(queue.QueueStats{}, "OldestReady")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if a := got[0].OldestReady; a < time.Hour || a > 2*time.Hour {
		t.Errorf("the oldest ready job of a has been ready for an hour, not %s", a)
	}
	if b := got[1].OldestReady; b <= 0 || b > time.Hour {
		t.Errorf("the oldest ready job of b has been ready for a moment, not %s", b)
	}
	if c := got[2].OldestReady; c != 0 {
		t.Errorf("nothing is ready in c, not for %s", c)
	}
	if err := w.client.ResumeQueue(w.ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if stats()[1].Paused {
		t.Error("b was resumed")
	}
}

func TestStats_stopAtTheirBounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`
		WITH j AS (
			INSERT INTO onceq.job (id, accepted_at, run_at, priority, max_attempts, queue, type, payload)
			SELECT (s.state || lpad(n::text, 31, '0'))::uuid, now(), now(), 0, 1, 'q', 't', 'null'
			FROM generate_series(1, 10001) AS n
			CROSS JOIN generate_series(1, 3) AS s (state)
			RETURNING id
		)
		INSERT INTO onceq.finished (finished_at, job_id, state, attempt)
		SELECT now(), j.id, CASE left(j.id::text, 1) WHEN '3' THEN 1 WHEN '2' THEN 2 ELSE 3 END, 1
		FROM j`)
	got, err := w.client.Stats(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := []queue.QueueStats{{Queue: "q", Succeeded: 10_000, Dead: 10_000, Cancelled: 10_000, Capped: true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("10,001 ended jobs of each state (-want +got):\n%s", diff)
	}
	w.exec(`DELETE FROM onceq.finished WHERE right(job_id::text, 5) = '10001'`)
	if got, err = w.client.Stats(w.ctx); err != nil || !got[0].Capped {
		t.Errorf("20,000 jobs have ended beside 10,000 that are counted: got %+v, %v", got, err)
	}
	w.exec(`DELETE FROM onceq.finished WHERE state = 1`)
	if got, err = w.client.Stats(w.ctx); err != nil || got[0].Dead != 10_000 {
		t.Errorf("10,000 dead jobs: got %+v, %v", got, err)
	}
}

// traced keeps the statement of CountJobs and its arguments.
type traced struct {
	sql  string
	args []any
}

func (c *traced) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "name: CountJobs") {
		c.sql, c.args = q.SQL, q.Args
	}
	return ctx
}

func (c *traced) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// handled is how many rows a plan and those below it have handled.
func handled(plan map[string]any) float64 {
	number := func(name string) float64 { n, _ := plan[name].(float64); return n }
	rows := (number("Actual Rows") + number("Rows Removed by Filter")) * number("Actual Loops")
	below, _ := plan["Plans"].([]any)
	for _, p := range below {
		rows += handled(p.(map[string]any))
	}
	return rows
}

// What the counts cost grows with the number of queues, and not with its square.
func TestStats_manyQueues(t *testing.T) {
	t.Parallel()
	tracer := &traced{}
	pool := pgtest.NewWith(t, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = tracer })
	client, err := queue.New(pool, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	const queues = 400
	for i := range queues {
		if _, err := client.Enqueue(t.Context(), queue.Request{Type: "t", Queue: fmt.Sprint("queue ", i), Priority: i % 101}); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := client.Stats(t.Context())
	if err != nil || len(stats) != queues {
		t.Fatalf("%d queues, %v; want %d", len(stats), err, queues)
	}
	var text string
	if err := pool.QueryRow(t.Context(), "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) "+tracer.sql, tracer.args...).Scan(&text); err != nil {
		t.Fatal(err)
	}
	var explained []struct{ Plan map[string]any }
	if err := json.Unmarshal([]byte(text), &explained); err != nil {
		t.Fatal(err)
	}
	if n := handled(explained[0].Plan); n > 60*queues {
		t.Errorf("%.0f rows were handled for %d queues with a job each", n, queues)
	}
}
