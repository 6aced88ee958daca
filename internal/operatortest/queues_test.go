package operatortest

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onceq/onceq/pkg/queue"
)

func TestQueues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	queues := func() []queue.QueueInfo {
		t.Helper()
		list, err := w.client.Queues(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if list := queues(); list == nil || len(list) != 0 {
		t.Errorf("an empty database has an empty list, got %+v", list)
	}
	for range 3 {
		w.accept(queue.Request{Queue: "waits"})
		w.accept(queue.Request{Queue: "ä and Z"})
	}
	w.start(w.accept(queue.Request{Queue: "runs"}))
	w.dead("no paper", queue.Request{Queue: "ended"})
	if err := w.client.PauseQueue(w.ctx, "paused"); err != nil {
		t.Fatal(err)
	}
	if err := w.client.SetQueue(w.ctx, "waits", queue.QueueSettings{MaxRunning: 5, MaxRunningPerKey: 2}); err != nil {
		t.Fatal(err)
	}
	plain := queue.QueueSettings{MaxRunningPerKey: 1}
	want := []queue.QueueInfo{
		{Name: "paused", Paused: true, QueueSettings: plain},
		{Name: "runs", QueueSettings: plain},
		{Name: "waits", QueueSettings: queue.QueueSettings{MaxRunning: 5, MaxRunningPerKey: 2}},
		{Name: "ä and Z", QueueSettings: plain},
	}
	if diff := cmp.Diff(want, queues()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A purge tells after each step how far it is.
func TestPurge_progress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reqs := make([]queue.Request, 1000)
	for i := range reqs {
		reqs[i] = queue.Request{Type: "t"}
	}
	if _, err := w.client.EnqueueMany(w.ctx, reqs); err != nil {
		t.Fatal(err)
	}
	var told []int64
	purged, err := w.client.Purge(w.ctx, queue.PurgeFilter{All: true, Progress: func(n int64) { told = append(told, n) }})
	if err != nil || purged != 1000 {
		t.Errorf("%d jobs were purged, %v", purged, err)
	}
	if diff := cmp.Diff([]int64{500, 1000}, told); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
}

// Of a free key the answer shows the key as it would stand there.
func TestBinding_ofAFreeKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const key = "order-1001-of-a-customer"
	free, err := w.client.Binding(w.ctx, "orders", key)
	if !errors.Is(err, queue.ErrBindingNotFound) {
		t.Fatalf("the key is free, got %v", err)
	}
	w.accept(queue.Request{Admission: queue.Idempotency{Scope: "orders", Key: key}})
	owned, err := w.client.Binding(w.ctx, "orders", key)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(queue.BindingInfo{Key: owned.Key}, free); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
