package workertest_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// oneKey is jobs of one key that have waited for so long that a claim doesn't
// look where they are, unless it is told that their key has a free slot.
func oneKey(t *testing.T, perKey, jobs int) (*pgxpool.Pool, *queue.Client) {
	t.Helper()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	setQueue(t, c, "default", queue.QueueSettings{MaxRunningPerKey: perKey})
	acceptMany(t, c, many(jobs, queue.Request{ConcurrencyKey: "k"}))
	backdate(t, pool, time.Minute)
	return pool, c
}

// once is a worker that looks only when it is told to, not by the clock.
func once() queue.WorkerConfig {
	return queue.WorkerConfig{ID: "a", Lease: time.Hour, PollInterval: time.Hour, Queues: map[string]int{"default": 10}}
}

func awaitSucceeded(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	pgtest.Await(t, "the ends to be recorded", func() bool { return pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.finished`) == n })
}

// Two slots become free, the second while the claim for the first is on its way.
func TestConcurrency_slotFreedDuringAClaim(t *testing.T) {
	t.Parallel()
	pool, _ := oneKey(t, 2, 4)
	claims := &turnstile{name: "ClaimJobs", answers: true}
	w := newWorker(t, newClient(t, guarded(t, pool, claims), queue.Config{}), once())
	work := handle(t, workType, w)
	start(t, w)
	first, second := work.next(t), work.next(t)
	claims.armed.Store(true)
	t.Cleanup(claims.open)
	first.end(nil)
	awaitClosed(t, "the claim for the first slot to be answered", claims.came)
	second.end(nil)
	awaitSucceeded(t, pool, 2)
	claims.open()
	third, fourth := work.next(t), work.next(t)
	third.end(nil)
	fourth.end(nil)
	awaitSucceeded(t, pool, 4)
}

// keyClaims counts the claims that are told of a free slot of the key k.
type keyClaims struct{ n atomic.Int64 }

func (k *keyClaims) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(data.SQL, "-- name: ClaimJobs ") {
		for _, arg := range data.Args {
			if keys, ok := arg.([]string); ok && slices.Contains(keys, "k") {
				k.n.Add(1)
			}
		}
	}
	return ctx
}

func (*keyClaims) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A slot becomes free while the queue is paused: it is not forgotten.
func TestConcurrency_slotFreedDuringAPause(t *testing.T) {
	t.Parallel()
	pool, c := oneKey(t, 1, 2)
	told := new(keyClaims)
	cfg := once()
	cfg.PollInterval = 10 * time.Millisecond
	w := newWorker(t, newClient(t, pgtest.Reconnect(t, pool, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = told }), queue.Config{}), cfg)
	work := handle(t, workType, w)
	start(t, w)
	first := work.next(t)
	pauseQueue(t, c, "default")
	first.end(nil)
	awaitSucceeded(t, pool, 1)
	before := told.n.Load()
	pgtest.Await(t, "claims to ask for the key's next job as long as the pause goes on", func() bool { return told.n.Load() > before+3 })
	resumeQueue(t, c, "default")
	work.next(t).end(nil)
	awaitSucceeded(t, pool, 2)
}

// A handler goes on for more than a lease after its CompleteTx was committed: its
// context ends, and the slot that the commit freed is filled all the same.
func TestConcurrency_slotFreedByCompleteTx(t *testing.T) {
	t.Parallel()
	pool, c := oneKey(t, 1, 2)
	cfg := once()
	cfg.Lease = 3 * shortLease
	w := newWorker(t, c, cfg)
	work := handle(t, workType, w)
	start(t, w)
	first := work.next(t)
	if err := completeIn(t, pool, first).Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitClosed(t, "the context of the first to end", first.ctx.Done())
	first.end(nil)
	work.next(t).end(nil)
	awaitSucceeded(t, pool, 2)
}
