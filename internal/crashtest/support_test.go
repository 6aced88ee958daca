//go:build unix

package crashtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/pkg/queue"
)

// patience is how long a condition is awaited before the test fails. It is no
// measure of anything: the machine may have other things to do.
const patience = time.Minute

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

// querier is a pool, a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// records reads rows into structs, column by column.
func records[T any](t testing.TB, q querier, sql string, args ...any) []T {
	t.Helper()
	rows, _ := q.Query(context.Background(), sql, args...) // CollectRows reports its error
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return list
}

// scan reads one value.
func scan[T any](t testing.TB, q querier, sql string, args ...any) T {
	t.Helper()
	rows, _ := q.Query(context.Background(), sql, args...) // CollectExactlyOneRow reports its error
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func execute(t testing.TB, q querier, sql string, args ...any) {
	t.Helper()
	rows, err := q.Query(context.Background(), sql, args...)
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// await polls until cond holds; a minute without it fails the test.
func await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain for: %s", patience, what)
		}
	}
}

// awaitRow polls until the query has a row.
func awaitRow(t testing.TB, pool *pgxpool.Pool, what, sql string, args ...any) {
	t.Helper()
	await(t, what, func() bool { return scan[bool](t, pool, "SELECT EXISTS ("+sql+")", args...) })
}

// awaitIdle polls until no job waits and none runs.
func awaitIdle(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	await(t, "the last job to end", func() bool {
		return scan[bool](t, pool, `SELECT NOT EXISTS (SELECT FROM onceq.pending) AND NOT EXISTS (SELECT FROM onceq.running)`)
	})
}
