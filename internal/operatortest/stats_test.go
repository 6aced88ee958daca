package operatortest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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
