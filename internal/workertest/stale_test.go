package workertest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// A worker that was away for so long that it takes over its own job must stop
// the first attempt too: it is not the owner any more.
func TestStale_ownSuccessorEndsTheContext(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	cfg, said := logged()
	c := newClient(t, pool, cfg)
	w := newWorker(t, c, queue.WorkerConfig{Lease: time.Hour, Queues: map[string]int{"default": 2}})
	work := handle(t, workType, w)
	id := accept(t, c, queue.Request{})
	start(t, w)
	first := work.next(t)
	reclaim(t, pool, c, id)
	second := work.next(t)
	if second.job.ID != id || second.job.Attempt != 2 {
		t.Fatalf("attempt %d of job %s runs, want 2 of %s", second.job.Attempt, second.job.ID, id)
	}
	first.wantCause(t, queue.ErrLeaseLost)
	second.wantAlive(t, "the second attempt owns the job")
	first.end(nil)
	second.end(nil)
	if job := awaitState(t, c, id, queue.StateSucceeded); job.Attempt != 2 {
		t.Errorf("attempt %d was recorded, want the second", job.Attempt)
	}
	if n := strings.Count(said.String(), "lease lost"); n != 1 {
		t.Errorf("the lost lease was logged %d times, want once:\n%s", n, said)
	}
}

// What an attempt asks for once its context has ended says why it ended.
func TestStale_callsSayWhyTheContextEnded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end  func(t *testing.T, o *takeover)
		want error
	}{
		"lost lease": {
			end:  func(t *testing.T, o *takeover) { reclaim(t, o.pool, o.c, o.id) },
			want: queue.ErrLeaseLost,
		},
		"cancel": {
			end:  func(t *testing.T, o *takeover) { cancel(t, o.c, o.id, queue.CancelRequested) },
			want: queue.ErrCancelled,
		},
		"deadline": {
			want: queue.ErrDeadlineExceeded,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			c := newClient(t, pool, queue.Config{})
			cfg := one("a")
			cfg.Lease = shortLease
			w := newWorker(t, c, cfg)
			work := handle(t, workType, w)
			start(t, w)
			o := &takeover{pool: pool, c: c}
			if tt.end == nil {
				o.first, _ = underDeadline(t, pool, c, work, 500*time.Millisecond, queue.Request{})
			} else {
				o.id = accept(t, c, queue.Request{})
				o.first = work.next(t)
				tt.end(t, o)
			}
			first := o.first
			first.wantCause(t, tt.want)
			_, err := queue.Checkpoint(first.ctx, first.job, "stage", func(context.Context) (int, error) { return 1, nil })
			if !errors.Is(err, tt.want) {
				t.Errorf("Checkpoint once the context has ended: %v, want one that is %v", err, tt.want)
			}
			_, err = queue.CheckpointTx(first.ctx, first.job, "tx", func(context.Context, pgx.Tx) (int, error) { return 1, nil })
			if !errors.Is(err, tt.want) {
				t.Errorf("CheckpointTx once the context has ended: %v, want one that is %v", err, tt.want)
			}
			first.end(err)
		})
	}
}
