//go:build unix

package crashtest

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

const (
	snapshotWindows = 6
	// snapshotFactor is how many times the pages of a job in the first window one
	// in the last window may touch.
	snapshotFactor = 1.5
)

// A transaction that keeps an old snapshot keeps vacuum from removing what claims
// leave behind. Two queues on one server are worked through at once, one of
// them beside such a transaction, so that whatever else the machine does
// slows both.
func TestWorker_oldSnapshot(t *testing.T) {
	t.Parallel()
	held, free := newMill(t), newMill(t)
	conn, err := pgx.ConnectConfig(t.Context(), held.pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	scan[int](t, tx, `SELECT count(*) FROM onceq.job`) // takes the snapshot

	held.turn(t)
	free.turn(t)
	var first, last float64
	var doneHeld, doneFree int64
	for window := range snapshotWindows {
		beforeHeld, beforeFree, pages := held.done.Load(), free.done.Load(), held.pages(t)
		time.Sleep(workTime / snapshotWindows)
		jobsHeld, jobsFree := held.done.Load()-beforeHeld, free.done.Load()-beforeFree
		last = float64(held.pages(t)-pages) / float64(max(jobsHeld, 1))
		if window == 0 {
			first = last
		}
		doneHeld += jobsHeld
		doneFree += jobsFree
		t.Logf("window %d: %d jobs beside the old snapshot, %d without, %.2f times; %.1f pages for a job beside it",
			window, jobsHeld, jobsFree, float64(jobsHeld)/float64(max(jobsFree, 1)), last)
	}
	t.Logf("beside an old snapshot there were %.2f times as many jobs as without", float64(doneHeld)/float64(max(doneFree, 1)))
	if last > snapshotFactor*first {
		t.Errorf("a job touched %.1f pages at first and %.1f after %v of an old snapshot", first, last, workTime)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
}

// mill is a queue that always has some work, and a worker on it.
type mill struct {
	pool     *pgxpool.Pool
	c        *queue.Client
	done     atomic.Int64
	enqueued atomic.Int64
}

func newMill(t *testing.T) *mill {
	m := &mill{pool: pgtest.New(t)}
	m.c = newClient(t, m.pool)
	return m
}

// millBacklog is how many jobs wait at least, batches of half as many are added.
const millBacklog = 1000

func (m *mill) turn(t *testing.T) {
	w := newWorker(t, m.c, queue.WorkerConfig{Queues: map[string]int{"default": 2 * claimSize}})
	queue.Handle(w, flowType, func(context.Context, *queue.Job[any]) error {
		m.done.Add(1)
		return nil
	})
	run(t, w)
	ctx, cancel := context.WithCancel(context.Background())
	var feeder sync.WaitGroup
	feeder.Go(func() { m.feed(ctx, t) })
	t.Cleanup(func() {
		cancel()
		feeder.Wait()
	})
}

func (m *mill) feed(ctx context.Context, t *testing.T) {
	batch := make([]queue.Request, millBacklog/2)
	for i := range batch {
		batch[i] = queue.Request{Type: flowType}
	}
	for ctx.Err() == nil {
		if m.enqueued.Load()-m.done.Load() > millBacklog {
			time.Sleep(2 * time.Millisecond)
			continue
		}
		if _, err := m.c.EnqueueMany(ctx, batch); err != nil && ctx.Err() == nil {
			t.Error(err)
			return
		}
		m.enqueued.Add(int64(len(batch)))
	}
}

// pages is how many pages of the queue's tables and indexes were touched so far.
func (m *mill) pages(t *testing.T) int64 {
	return scan[int64](t, m.pool, `SELECT sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0))::bigint
		FROM pg_statio_user_tables WHERE schemaname = 'onceq'`)
}
