//go:build pgbouncer && linux

package poolertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceq/onceq/pkg/queue"
)

// operate makes every call of operators. Lists and counts change settings in their
// transactions; the caller looks whether any of that stays in a session.
func operate(t *testing.T, c *queue.Client) {
	t.Helper()
	ctx := context.Background()
	later, err := c.Enqueue(ctx, queue.Request{Type: "later", RunAt: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.RunNow(ctx, later); err != nil {
		t.Error(err)
	}
	var sources []queue.JobID
	for range 3 {
		id, err := c.Enqueue(ctx, queue.Request{Type: "late", Queue: "late", Deadline: time.Now().Add(-time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, id)
	}
	if _, err := c.Maintain(ctx); err != nil {
		t.Fatal(err)
	}
	for _, want := range []queue.RedriveStatus{queue.Redriven, queue.RedriveReplayed} {
		res, err := c.Redrive(ctx, queue.RedriveRequest{JobID: sources[0], RequestID: "order", Actor: "oncall", Reason: "again"})
		if err != nil || res.Status != want {
			t.Errorf("got %+v, %v, want %s", res, err, want)
		}
	}
	res, err := c.RedriveMany(ctx, queue.RedriveManyRequest{RequestID: "orders", Actor: "oncall", Reason: "again", Limit: 10, Filter: queue.JobFilter{Queue: "late", Error: "deadline"}})
	if err != nil || res.Redriven != 2 || res.Skipped != 1 {
		t.Errorf("got %+v, %v, want 2 jobs made and 1 skipped", res, err)
	}
	stats, err := c.Stats(ctx)
	if err != nil || len(stats) == 0 {
		t.Errorf("got %+v, %v", stats, err)
	}
	for _, state := range []queue.State{"", queue.StateReady, queue.StateScheduled, queue.StateRunning, queue.StateSucceeded, queue.StateDead, queue.StateCancelled} {
		for _, err := range c.Jobs(ctx, queue.JobFilter{State: state, WithPayload: true}) {
			if err != nil {
				t.Error(err)
			}
		}
	}
	n := 0
	for job, err := range c.DeadLetters(ctx, queue.JobFilter{Queue: "late"}) {
		if n++; err != nil || job.RedrivenAs == "" {
			t.Errorf("got %+v, %v", job, err)
		}
	}
	events, err := c.Events(ctx, sources[0])
	if n != 3 || err != nil || len(events) != 3 {
		t.Errorf("%d dead letters, and the timeline %+v, %v", n, events, err)
	}
	if _, err := c.Purge(ctx, queue.PurgeFilter{Queue: "late"}); err != nil {
		t.Error(err)
	}
	if err := c.RunNow(ctx, later); !errors.Is(err, queue.ErrNotScheduled) {
		t.Error(err)
	}
	if _, err := c.Cancel(ctx, later, "tried"); err != nil {
		t.Error(err)
	}
}
