package queuetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// When a key is free again, by the Release that its request asked for and the
// end of its job.
func TestRelease(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w, err := queue.NewWorker(c, queue.WorkerConfig{PollInterval: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	queue.Handle(w, "succeeds", func(context.Context, *queue.Job[any]) error { return nil })
	queue.Handle(w, "dies", func(context.Context, *queue.Job[any]) error { return queue.Permanent(errors.New("no use")) })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the worker: %v", err)
		}
	})

	ended := func(t *testing.T, id queue.JobID, state queue.State) {
		t.Helper()
		pgtest.Await(t, fmt.Sprintf("job to be %s", state), func() bool {
			job, err := c.Job(t.Context(), id)
			return err == nil && job.State == state
		})
	}
	for _, release := range []queue.Release{queue.ReleaseExpiry, queue.ReleaseFinished, queue.ReleaseDead} {
		for _, end := range []struct {
			name  string
			typ   string
			state queue.State
			free  bool
			dead  bool
		}{
			{"succeeded", "succeeds", queue.StateSucceeded, release == queue.ReleaseFinished, false},
			{"died", "dies", queue.StateDead, release != queue.ReleaseExpiry, true},
			{"was cancelled", "waits", queue.StateCancelled, release != queue.ReleaseExpiry, true},
		} {
			t.Run(fmt.Sprintf("release %d, the job %s", release, end.name), func(t *testing.T) {
				key := t.Name()
				req := queue.Request{Type: end.typ, Admission: queue.Idempotency{Key: key, Release: release}}
				id := accept(t, c, req)
				if end.typ == "waits" {
					replay(t, c, req, id)
					if status, err := c.Cancel(t.Context(), id, "no longer wanted"); err != nil || status != queue.CancelledNow {
						t.Fatalf("Cancel: %s, %v", status, err)
					}
				}
				ended(t, id, end.state)
				if end.free {
					if _, err := c.Binding(t.Context(), "", key); !errors.Is(err, queue.ErrBindingNotFound) {
						t.Errorf("the key is still owned: %v", err)
					}
					if fresh := accept(t, c, req); fresh == id {
						t.Error("the ended job was given again")
					}
					return
				}
				want := queue.Result{JobID: id, Outcome: queue.OutcomeReplayed, Dead: end.dead}
				wantResult(t, enqueue(t, c, req), want)
				wantResult(t, enqueueMany(t, c, []queue.Request{req})[0], want)
				if binding, err := c.Binding(t.Context(), "", key); err != nil || binding.JobID != id || binding.Dead != end.dead {
					t.Errorf("the binding is %+v, want job %s and dead %t: %v", binding, id, end.dead, err)
				}
				pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp() WHERE job_id = $1`, string(id))
				accept(t, c, req) // the TTL is always the cap
			})
		}
	}

	t.Run("a throttled key goes on answering for a job that was cancelled", func(t *testing.T) {
		req := queue.Request{Type: "waits", Admission: queue.Throttle{Key: "throttled", Window: day}}
		id := accept(t, c, req)
		if _, err := c.Cancel(t.Context(), id, "no longer wanted"); err != nil {
			t.Fatal(err)
		}
		wantResult(t, enqueue(t, c, req), queue.Result{JobID: id, Outcome: queue.OutcomeCoalesced, Dead: true})
	})

	t.Run("a job that no longer owns a key frees it for nobody", func(t *testing.T) {
		for _, release := range []queue.Release{queue.ReleaseExpiry, queue.ReleaseFinished, queue.ReleaseDead} {
			req := queue.Request{Type: "waits", Admission: queue.Idempotency{Key: fmt.Sprint("former-", release), Release: release}}
			former := accept(t, c, req)
			pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp() WHERE job_id = $1`, string(former))
			owner := accept(t, c, req)
			if _, err := c.Cancel(t.Context(), former, "no longer wanted"); err != nil {
				t.Fatal(err)
			}
			replay(t, c, req, owner) // neither free nor dead
		}
	})

	t.Run("a rotating client's keys are freed under every secret", func(t *testing.T) {
		rotating := newClient(t, pool, queue.Config{KeySecret: newSecret, PreviousKeySecrets: [][]byte{oldSecret}})
		old := newClient(t, pool, queue.Config{KeySecret: oldSecret})
		req := queue.Request{Type: "waits", Admission: queue.Idempotency{Key: "rotating", Release: queue.ReleaseDead}}
		id := accept(t, rotating, req)
		replay(t, old, req, id)
		if _, err := c.Cancel(t.Context(), id, "no longer wanted"); err != nil {
			t.Fatal(err)
		}
		if fresh := accept(t, old, req); fresh == id {
			t.Error("the cancelled job was given again")
		}
		dead := queue.Request{Type: "waits", Admission: queue.Idempotency{Key: "rotating-dead"}}
		id = accept(t, rotating, dead)
		if _, err := c.Cancel(t.Context(), id, "no longer wanted"); err != nil {
			t.Fatal(err)
		}
		for _, client := range []*queue.Client{old, rotating} {
			wantResult(t, enqueue(t, client, dead), queue.Result{JobID: id, Outcome: queue.OutcomeReplayed, Dead: true})
		}
	})
}
