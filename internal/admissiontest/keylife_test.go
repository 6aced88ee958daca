package admissiontest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/pkg/queue"
)

// gates let a test decide when a handler goes on.
type gates struct {
	mu   sync.Mutex
	open map[queue.JobID]chan struct{}
}

func (g *gates) of(id queue.JobID) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[id] == nil {
		g.open[id] = make(chan struct{})
	}
	return g.open[id]
}

// Every way for a job to end, under every Release, with one hash and with
// several: the key is free exactly when it should be, and a job that has lost
// its key does nothing to the newer owner.
func TestKeyLife(t *testing.T) {
	t.Parallel()
	for _, cfg := range []queue.Config{{}, {KeySecret: []byte("0123456789abcdef"), PreviousKeySecrets: [][]byte{nil}}} {
		t.Run(fmt.Sprintf("%d hashes", 1+len(cfg.PreviousKeySecrets)), func(t *testing.T) {
			t.Parallel()
			keyLife(t, newWorldWith(t, cfg, nil))
		})
	}
}

func keyLife(t *testing.T, w *world) {
	g := &gates{open: map[queue.JobID]chan struct{}{}}
	worker, err := queue.NewWorker(w.client, queue.WorkerConfig{PollInterval: 5 * time.Millisecond, Lease: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	handle := func(typ string, end func(context.Context, *queue.Job[int]) error) {
		queue.Handle(worker, typ, func(ctx context.Context, job *queue.Job[int]) error {
			select {
			case <-g.of(job.ID):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			return end(ctx, job)
		})
	}
	handle("succeed", func(context.Context, *queue.Job[int]) error { return nil })
	handle("die", func(context.Context, *queue.Job[int]) error { return queue.Permanent(errors.New("no")) })
	handle("completetx", func(ctx context.Context, job *queue.Job[int]) error {
		return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error { return queue.CompleteTx(ctx, tx, job) })
	})
	running, stop := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() { done <- worker.Run(running) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	cancel := func(id queue.JobID) {
		if _, err := w.client.Cancel(w.ctx, id, "a test"); err != nil {
			t.Fatal(err)
		}
	}
	maintain := func() {
		if _, err := w.client.Maintain(w.ctx); err != nil {
			t.Fatal(err)
		}
	}
	later := time.Now().Add(time.Hour)
	for _, path := range []struct {
		name      string
		request   queue.Request
		end       func(queue.JobID)
		succeeded bool
	}{
		{"completed", queue.Request{Type: "succeed"}, func(id queue.JobID) { close(g.of(id)) }, true},
		{"completed in the handler's transaction", queue.Request{Type: "completetx"}, func(id queue.JobID) { close(g.of(id)) }, true},
		{"failed for good", queue.Request{Type: "die"}, func(id queue.JobID) { close(g.of(id)) }, false},
		{"cancelled while it waits", queue.Request{Type: "x", RunAt: later}, cancel, false},
		{"cancelled while it runs", queue.Request{Type: "succeed"}, func(id queue.JobID) {
			w.await(fmt.Sprintf("SELECT count(*) FROM onceq.running WHERE job_id = '%s'", id), 1)
			cancel(id)
		}, false},
		{"deadline passed while it waits", queue.Request{Type: "x", RunAt: later, Deadline: later}, func(id queue.JobID) {
			w.exec("UPDATE onceq.pending SET deadline = now() WHERE job_id = $1", string(id))
			maintain()
		}, false},
		{"lease ended", queue.Request{Type: "x", MaxAttempts: 1}, func(id queue.JobID) {
			w.start(id)
			w.exec("UPDATE onceq.running SET lease_until = now() WHERE job_id = $1", string(id))
			maintain()
		}, false},
	} {
		for _, release := range []queue.Release{queue.ReleaseExpiry, queue.ReleaseFinished, queue.ReleaseDead} {
			for _, lost := range []bool{false, true} {
				name := fmt.Sprintf("%s, release %d, lost %t", path.name, release, lost)
				r := path.request
				r.Admission = queue.Idempotency{Key: name, Release: release}
				id := w.enqueue(r).JobID
				owner := id
				if lost {
					w.exec("UPDATE onceq.binding SET expires_at = clock_timestamp() WHERE job_id = $1", string(id))
					owner = w.enqueue(queue.Request{Type: "later", RunAt: later, Admission: queue.Idempotency{Key: name}}).JobID
				}
				path.end(id)
				w.await(fmt.Sprintf("SELECT count(*) FROM onceq.finished WHERE job_id = '%s'", id), 1)
				b, err := w.client.Binding(w.ctx, "", name)
				freed := release == queue.ReleaseFinished || release == queue.ReleaseDead && !path.succeeded
				switch {
				case lost:
					if err != nil || b.JobID != owner || b.Dead {
						t.Errorf("%s: the newer owner's key: %+v, %v", name, b, err)
					}
				case freed:
					if !errors.Is(err, queue.ErrBindingNotFound) {
						t.Errorf("%s: the key is not free: %+v, %v", name, b, err)
					}
					if n := w.count("SELECT count(*) FROM onceq.binding WHERE job_id = $1", string(id)); n != 0 {
						t.Errorf("%s: %d bindings are left", name, n)
					}
				case err != nil || b.JobID != id || b.Dead == path.succeeded:
					t.Errorf("%s: the key should still answer: %+v, %v", name, b, err)
				}
			}
		}
	}
}

// Maintenance gives back expired bindings, but not that of a debounced job which
// has never started: without it a second pending job could appear.
func TestKeyLife_maintenance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	waits := w.enqueue(debounce("waits", 1, queue.Debounce{})).JobID
	retries := w.enqueue(debounce("retries", 1, queue.Debounce{})).JobID
	runs := w.enqueue(debounce("runs", 1, queue.Debounce{})).JobID
	w.enqueue(throttle("throttled", 1))
	w.exec("UPDATE onceq.pending SET fence = 1 WHERE job_id = $1", string(retries))
	w.start(runs)
	w.age(time.Hour)
	w.exec("UPDATE onceq.running SET lease_until = now() + interval '1 hour'")
	if _, err := w.client.Maintain(w.ctx); err != nil {
		t.Fatal(err)
	}
	if n := w.count("SELECT count(*) FROM onceq.binding"); n != 1 {
		t.Errorf("%d bindings are left, want that of the job that waits", n)
	}
	if res := w.enqueue(debounce("waits", 2, queue.Debounce{})); res.JobID != waits || res.Reason != queue.ReasonWindowElapsed {
		t.Errorf("got %+v, want window_elapsed", res)
	}
	w.start(waits)
	if _, err := w.client.Maintain(w.ctx); err != nil {
		t.Fatal(err)
	}
	if n := w.count("SELECT count(*) FROM onceq.binding"); n != 0 {
		t.Errorf("%d bindings are left", n)
	}
}
