package workertest_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// Handlers that keep every connection of the client's pool busy for three leases
// can't keep the worker from renewing them.
func TestPool_leasesSurviveItsExhaustion(t *testing.T) {
	t.Parallel()
	direct := pgtest.New(t)
	pool := pgtest.Reconnect(t, direct, func(cfg *pgxpool.Config) { cfg.MaxConns = 2 })
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{Lease: shortLease, Queues: map[string]int{"default": 50}})
	var lost, done atomic.Int64
	begin := time.Now()
	queue.Handle(w, workType, func(ctx context.Context, _ *queue.Job[any]) error {
		defer done.Add(1)
		for time.Since(begin) < 3*shortLease {
			if _, err := pool.Exec(ctx, `SELECT pg_sleep(0.05)`); err != nil {
				lost.Add(1)
				return err
			}
		}
		return nil
	})
	acceptMany(t, c, many(50, queue.Request{MaxAttempts: 1}))
	begin = time.Now()
	start(t, w)
	pgtest.Await(t, "50 handlers to return", func() bool { return done.Load() == 50 })
	pgtest.Await(t, "50 successes to be recorded", func() bool {
		return pgtest.Scan[int](t, direct, `SELECT count(*) FROM onceq.finished WHERE state = 1 AND attempt = 1`) == 50 || lost.Load() > 0
	})
	if n := lost.Load(); n > 0 {
		t.Errorf("%d of 50 handlers were stopped although their worker was fine: handlers must not be able to exhaust its connections", n)
	}
}

// Handlers that enqueue inside their own transactions, on a pool that is much
// smaller than their number.
func TestPool_handlersWithTransactionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	direct := pgtest.New(t)
	pool := pgtest.Reconnect(t, direct, func(cfg *pgxpool.Config) { cfg.MaxConns = 4 })
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{Queues: map[string]int{"default": 20}})
	const jobs = 300
	var all sync.WaitGroup
	all.Add(2 * jobs)
	queue.Handle(w, workType, func(ctx context.Context, job *queue.Job[any]) error {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := c.EnqueueTx(ctx, tx, queue.Request{Type: "follow-up"}); err != nil {
				return err
			}
			return queue.CompleteTx(ctx, tx, job)
		})
		if err == nil {
			all.Done()
		}
		return err
	})
	queue.Handle(w, "follow-up", func(ctx context.Context, job *queue.Job[any]) error {
		_, err := queue.CheckpointTx(ctx, job, "stage", func(ctx context.Context, tx pgx.Tx) (int, error) {
			var n int
			return n, tx.QueryRow(ctx, `SELECT 1`).Scan(&n)
		})
		if err == nil {
			all.Done()
		}
		return err
	})
	acceptMany(t, c, many(jobs, queue.Request{MaxAttempts: 1}))
	start(t, w)
	finished := make(chan struct{})
	go func() { all.Wait(); close(finished) }()
	awaitClosed(t, "all jobs and their follow-ups", finished)
	pgtest.Await(t, "all of them to be recorded", func() bool {
		return pgtest.Scan[int](t, direct, `SELECT count(*) FROM onceq.finished WHERE state = 1 AND attempt = 1`) == 2*jobs
	})
}
