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
	// snapshotFactor is how many times the pages of a job in the first third of the
	// windows one in the last third may touch. PostgreSQL counts them up to some
	// seconds late, which shows in a single window.
	snapshotFactor = 1.3
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
	pgtest.Scan[int](t, tx, `SELECT count(*) FROM onceq.job`) // takes the snapshot

	held.turn(t)
	free.turn(t)
	marks := []mark{at(t, held, free)}
	for window := range snapshotWindows {
		time.Sleep(workTime / snapshotWindows)
		marks = append(marks, at(t, held, free))
		now := marks[window+1].since(marks[window])
		t.Logf("window %d: %d jobs beside the old snapshot, %d without, %.2f times; %.1f pages for a job beside it",
			window, now.held, now.free, now.ratio(), now.pagesPerJob())
	}
	const third = snapshotWindows / 3
	t.Logf("beside an old snapshot there were %.2f times as many jobs as without", marks[snapshotWindows].since(marks[0]).ratio())
	first, last := marks[third].since(marks[0]).pagesPerJob(), marks[snapshotWindows].since(marks[snapshotWindows-third]).pagesPerJob()
	if last > snapshotFactor*first {
		t.Errorf("a job touched %.1f pages at first and %.1f after %v of an old snapshot", first, last, workTime)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
}

// mark is what was done up to a moment: jobs beside the old snapshot and without
// it, and pages touched beside it.
type mark struct{ held, free, pages int64 }

func at(t *testing.T, held, free *mill) mark {
	return mark{held.done.Load(), free.done.Load(), held.pages(t)}
}

func (m mark) since(earlier mark) mark {
	return mark{m.held - earlier.held, m.free - earlier.free, m.pages - earlier.pages}
}

func (m mark) ratio() float64 { return float64(m.held) / float64(max(m.free, 1)) }

func (m mark) pagesPerJob() float64 { return float64(m.pages) / float64(max(m.held, 1)) }

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
	return pgtest.Scan[int64](t, m.pool, `SELECT sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0))::bigint
		FROM pg_statio_user_tables WHERE schemaname = 'onceq'`)
}
