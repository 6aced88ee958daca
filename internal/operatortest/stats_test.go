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
