package workertest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// ofOneKey enqueues n jobs of key K, named by their numbers, and locks the first
// of them, as another worker's claim does until it has ended.
func ofOneKey(t *testing.T, pool *pgxpool.Pool, c *queue.Client, n, locked int) (names []string, other pgx.Tx) {
	t.Helper()
	var reqs []queue.Request
	for i := range n {
		req := named(fmt.Sprint(i))
		req.ConcurrencyKey = "K"
		reqs = append(reqs, req)
		names = append(names, fmt.Sprint(i))
	}
	acceptMany(t, c, reqs)
	other, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Rollback(context.Background()) })
	if _, err := other.Exec(t.Context(), `SELECT FROM onceq.pending ORDER BY ready_at, job_id LIMIT $1 FOR UPDATE`, locked); err != nil {
		t.Fatal(err)
	}
	return names, other
}

// A claim that holds hundreds of a key's jobs will take the first: nobody starts
// the one behind them meanwhile.
func TestConcurrency_noJobOvertakesMany(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	names, other := ofOneKey(t, pool, c, 30, 20)
	w := newWorker(t, c, queue.WorkerConfig{Queues: map[string]int{"default": 50}})
	started := recorded(w)
	start(t, w)
	var want []string
	for i := range 3 { // each by a claim that looks at the key, too
		name := fmt.Sprint("without a key ", i)
		accept(t, c, named(name))
		want = append(want, name)
		started.await(t, len(want))
	}
	if err := other.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	want = append(want, names...)
	wantOrder(t, started.await(t, len(want)), want)
}

// If they are locked for long, the key goes on behind them, and so do others.
func TestConcurrency_lockedForLong(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	names, _ := ofOneKey(t, pool, c, 60, 40)
	accept(t, c, named("without a key"))
	w := newWorker(t, c, queue.WorkerConfig{Queues: map[string]int{"default": 10}})
	started := recorded(w)
	start(t, w)
	// Those that are left at last don't fill a claim any more.
	const few = 10
	free := len(names) - 40 + 1 - few
	started.await(t, free)
}
