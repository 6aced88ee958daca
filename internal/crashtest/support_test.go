//go:build unix

package crashtest

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

func newClient(t testing.TB, pool *pgxpool.Pool) *queue.Client {
	t.Helper()
	c, err := queue.New(pool, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newWorker(t testing.TB, c *queue.Client, cfg queue.WorkerConfig) *queue.Worker {
	t.Helper()
	w, err := queue.NewWorker(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// run runs a worker until the test ends, or until the function that it returns
// is called.
func run(t testing.TB, w *queue.Worker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the worker ended with: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func enqueue(t testing.TB, c *queue.Client, req queue.Request) queue.JobID {
	t.Helper()
	id, err := c.Enqueue(t.Context(), req)
	if err != nil {
		t.Fatalf("Enqueue: %v", err)
	}
	return id
}

// awaitRow polls until the query has a row.
func awaitRow(t testing.TB, pool *pgxpool.Pool, what, sql string, args ...any) {
	t.Helper()
	pgtest.Await(t, what, func() bool { return pgtest.Scan[bool](t, pool, "SELECT EXISTS ("+sql+")", args...) })
}

// awaitIdle polls until no job waits and none runs.
func awaitIdle(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	pgtest.Await(t, "the last job to end", func() bool {
		return pgtest.Scan[bool](t, pool, `SELECT NOT EXISTS (SELECT FROM onceq.pending) AND NOT EXISTS (SELECT FROM onceq.running)`)
	})
}
