package workertest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

func TestWorkerConfig_bounds(t *testing.T) {
	t.Parallel()
	c := newClient(t, pgtest.New(t), queue.Config{})
	name := strings.Repeat("q", 255)
	for _, cfg := range []queue.WorkerConfig{
		{},
		{Queues: map[string]int{"a": 1, name: 10_000, "ü b": 5}},
		{Lease: time.Second}, {Lease: 24 * time.Hour},
		{PollInterval: time.Millisecond}, {PollInterval: time.Hour},
		{ShutdownTimeout: 1}, {ShutdownTimeout: 24 * time.Hour},
		{ID: "x"}, {ID: strings.Repeat("ü", 100)},
	} {
		if _, err := queue.NewWorker(c, cfg); err != nil {
			t.Errorf("%+.60v: %v", cfg, err)
		}
	}
	for _, tt := range []struct {
		cfg   queue.WorkerConfig
		field string
	}{
		{queue.WorkerConfig{Queues: map[string]int{}}, "Queues"},
		{queue.WorkerConfig{Queues: map[string]int{"": 1}}, "Queues"},
		{queue.WorkerConfig{Queues: map[string]int{name + "q": 1}}, "Queues"},
		{queue.WorkerConfig{Queues: map[string]int{" a": 1}}, "Queues"},
		{queue.WorkerConfig{Queues: map[string]int{"a\n": 1}}, "Queues"},
		{queue.WorkerConfig{Queues: map[string]int{"\xff": 1}}, "Queues"},
		{queue.WorkerConfig{Queues: map[string]int{"a": 0}}, "Queues"},
		{queue.WorkerConfig{Queues: map[string]int{"a": -1}}, "Queues"},
		{queue.WorkerConfig{Queues: map[string]int{"a": 10_001}}, "Queues"},
		{queue.WorkerConfig{Lease: time.Second - 1}, "Lease"},
		{queue.WorkerConfig{Lease: 24*time.Hour + 1}, "Lease"},
		{queue.WorkerConfig{Lease: -time.Second}, "Lease"},
		{queue.WorkerConfig{PollInterval: time.Millisecond - 1}, "PollInterval"},
		{queue.WorkerConfig{PollInterval: time.Hour + 1}, "PollInterval"},
		{queue.WorkerConfig{PollInterval: -1}, "PollInterval"},
		{queue.WorkerConfig{ShutdownTimeout: -1}, "ShutdownTimeout"},
		{queue.WorkerConfig{ShutdownTimeout: 24*time.Hour + 1}, "ShutdownTimeout"},
		{queue.WorkerConfig{ID: strings.Repeat("x", 201)}, "ID"},
		{queue.WorkerConfig{ID: "\xff"}, "ID"},
		{queue.WorkerConfig{ID: "a\x00"}, "ID"},
	} {
		_, err := queue.NewWorker(c, tt.cfg)
		wantInvalid(t, err, fmt.Sprintf("%+.60v", tt.cfg))
		if err != nil && !strings.Contains(err.Error(), tt.field) {
			t.Errorf("the refusal of a bad %s must name it: %v", tt.field, err)
		}
	}
	_, err := queue.NewWorker(c, queue.WorkerConfig{Queues: map[string]int{"a": 0}, Lease: 1, PollInterval: -1, ShutdownTimeout: -1, ID: "\xff"})
	for _, field := range []string{"Queues", "Lease", "PollInterval", "ShutdownTimeout", "ID"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("a refusal must name every wrong field, %s is not in: %v", field, err)
		}
	}
	if _, err := queue.NewWorker(nil, queue.WorkerConfig{}); err == nil {
		t.Error("a worker without a client must be refused")
	}
}

// A config belongs to its caller: changing it later changes nothing.
func TestWorkerConfig_isCopied(t *testing.T) {
	t.Parallel()
	c := newClient(t, pgtest.New(t), queue.Config{})
	queues := map[string]int{"default": 1}
	w := newWorker(t, c, queue.WorkerConfig{Queues: queues})
	queues["default"] = 0
	delete(queues, "default")
	work := handle(t, workType, w)
	accept(t, c, queue.Request{})
	start(t, w)
	work.next(t).end(nil)
}

func TestHandle_panicsOnAProgrammersMistake(t *testing.T) {
	t.Parallel()
	c := newClient(t, pgtest.New(t), queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{})
	h := func(context.Context, *queue.Job[any]) error { return nil }
	longest := strings.Repeat("ü", 127) + "x"
	queue.Handle(w, longest, h)
	queue.Handle(w, "twice", h)
	panics := func(why string, f func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("Handle must panic: %s", why)
			}
		}()
		f()
	}
	for _, bad := range []string{"", longest + "x", " a", "a ", "a\tb", "\xff", "a\x00"} {
		panics(fmt.Sprintf("the type %.20q is out of bounds", bad), func() { queue.Handle(w, bad, h) })
	}
	panics("a type is registered twice", func() { queue.Handle(w, "twice", h) })
	panics("a type is registered twice, with another payload", func() {
		queue.Handle(w, "twice", func(context.Context, *queue.Job[int]) error { return nil })
	})
	panics("there is no handler", func() { queue.Handle[any](w, "none", nil) })
}
