//go:build pgbouncer && linux

package poolertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// Everything works through a pooler, in each of pgx's modes that a statement needs
// one round trip in and nothing prepared; and no session is left changed. (In
// describe_exec a statement's two round trips may meet two sessions.)
func TestTransactionMode(t *testing.T) {
	host, port := startPgBouncer(t, pgtest.New(t))
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			direct := pgtest.New(t)
			pool := through(t, direct, mode, host, port)
			c, err := queue.New(pool, queue.Config{PollOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			before := settings(t, pool)
			oneOfMany(t, c)
			everyAdmission(t, c)
			callersTransaction(t, c, pool)
			operate(t, c)
			work(t, c, pool)
			for i, s := range settings(t, pool) {
				if s != before[0] {
					t.Errorf("session %d of PgBouncer is left in another state: %s, it began with %s", i, s, before[0])
				}
			}
		})
	}
}

// oneOfMany wants one job of many callers with one key, far more than sessions.
func oneOfMany(t *testing.T, c *queue.Client) {
	t.Helper()
	var accepted, replayed atomic.Int64
	var callers sync.WaitGroup
	for range 10 * serverConns {
		callers.Go(func() {
			for click := range 10 {
				res, err := c.EnqueueWithResult(context.Background(), queue.Request{Type: "order.place", Payload: click,
					Admission: queue.Idempotency{Key: fmt.Sprint("order ", click)}})
				switch {
				case err != nil:
					t.Error(err)
				case res.Outcome == queue.OutcomeAccepted:
					accepted.Add(1)
				case res.Outcome == queue.OutcomeReplayed:
					replayed.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if accepted.Load() != 10 || replayed.Load() != 100*serverConns-10 {
		t.Errorf("10 keys were accepted %d times and replayed %d times", accepted.Load(), replayed.Load())
	}
}

func everyAdmission(t *testing.T, c *queue.Client) {
	t.Helper()
	debounce := queue.Debounce{Key: "report", Window: time.Hour}
	throttle := queue.Throttle{Key: "alarm", Window: time.Hour}
	outcomes := []queue.Outcome{}
	add := func(res queue.Result, err error) {
		if err != nil {
			t.Error(err)
		}
		outcomes = append(outcomes, res.Outcome)
	}
	for i, a := range []queue.Admission{debounce, debounce, throttle, throttle} {
		payload := 0
		if i == 1 {
			payload = 1
		}
		add(c.EnqueueWithResult(context.Background(), queue.Request{Type: "order.place", Payload: payload, Admission: a}))
	}
	results, err := c.EnqueueMany(context.Background(), []queue.Request{
		{Type: "order.place", Payload: 2, Admission: debounce}, {Type: "order.place", Payload: 0, Admission: throttle},
		{Type: "order.place"}, {Type: "order.place", Payload: 0, Admission: queue.Idempotency{Key: "order 0"}},
	})
	for _, res := range results {
		add(res, err)
	}
	want := []queue.Outcome{queue.OutcomeAccepted, queue.OutcomeReplaced, queue.OutcomeAccepted, queue.OutcomeCoalesced,
		queue.OutcomeReplaced, queue.OutcomeCoalesced, queue.OutcomeAccepted, queue.OutcomeReplayed}
	if fmt.Sprint(outcomes) != fmt.Sprint(want) {
		t.Errorf("got %v, %v, want %v", outcomes, err, want)
	}
}

// callersTransaction wants a conflict that leaves the caller's transaction usable.
func callersTransaction(t *testing.T, c *queue.Client, pool *pgxpool.Pool) {
	t.Helper()
	ctx := context.Background()
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	var conflict *queue.EnqueueIdempotencyConflictError
	_, err = c.EnqueueManyTx(ctx, tx, []queue.Request{
		{Type: "order.place"}, {Type: "order.place", Payload: "other", Admission: queue.Idempotency{Key: "order 1"}},
	})
	if !errors.As(err, &conflict) || conflict.Index != 1 || len(conflict.Fields) != 1 || conflict.Fields[0] != queue.FieldPayload {
		t.Errorf("got %v, want a conflict in the payload", err)
	}
	res, err := c.EnqueueTx(ctx, tx, queue.Request{Type: "order.place", Admission: queue.Idempotency{Key: "in a transaction"}})
	if err != nil || res.Outcome != queue.OutcomeAccepted {
		t.Errorf("after a conflict the transaction gave %+v, %v", res, err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Error(err)
	}
}

// work works all that waits, and some hundred jobs more, each once.
func work(t *testing.T, c *queue.Client, pool *pgxpool.Pool) {
	t.Helper()
	const jobs = 400
	reqs := make([]queue.Request, jobs)
	for i := range reqs {
		reqs[i] = queue.Request{Type: "count", Payload: i, ConcurrencyKey: []string{"", "a", "b", "c"}[i%4]}
	}
	if _, err := c.EnqueueMany(context.Background(), reqs); err != nil {
		t.Fatal(err)
	}
	w, err := queue.NewWorker(c, queue.WorkerConfig{Queues: map[string]int{"default": 20}, PollInterval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var runs [jobs]atomic.Int64
	queue.Handle(w, "order.place", func(context.Context, *queue.Job[any]) error { return nil })
	queue.Handle(w, "count", func(ctx context.Context, job *queue.Job[int]) error {
		n, err := queue.Checkpoint(ctx, job, "count", func(context.Context) (int64, error) { return runs[job.Payload].Add(1), nil })
		if err != nil || n != 1 || job.Payload%2 == 0 {
			return err
		}
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx)
		if err := queue.CompleteTx(ctx, tx, job); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	go func() { done <- w.Run(running) }()
	// One debounced job waits for its window.
	for waiting := -1; waiting != 1; time.Sleep(10 * time.Millisecond) {
		if err := pool.QueryRow(ctx, "SELECT (SELECT count(*) FROM onceq.pending) + (SELECT count(*) FROM onceq.running)").Scan(&waiting); err != nil {
			t.Fatalf("with %d jobs left: %v", waiting, err)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for i := range runs {
		if n := runs[i].Load(); n != 1 {
			t.Errorf("job %d has run %d times", i, n)
		}
	}
}

// settings tells the state of each of PgBouncer's sessions for the database.
func settings(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	ctx := context.Background()
	states := map[int32]string{}
	for try := 0; try < 1000 && len(states) < serverConns; try++ {
		// Transactions at the same time are on different sessions.
		var txs [serverConns]pgx.Tx
		for i := range txs {
			tx, err := pool.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			txs[i] = tx
			var pid int32
			var state string
			if err := tx.QueryRow(ctx, `SELECT pg_backend_pid(), concat_ws(' ',
				(SELECT string_agg(s.name || '=' || s.setting, ',' ORDER BY s.name) FROM pg_settings AS s WHERE s.source = 'session' AND s.name NOT IN ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings')),
				(SELECT 'prepared ' || count(*) FROM pg_prepared_statements),
				(SELECT 'listens ' || count(*) FROM pg_listening_channels()),
				(SELECT 'locks ' || count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'))`).Scan(&pid, &state); err != nil {
				t.Fatal(err)
			}
			states[pid] = state
		}
		for _, tx := range txs {
			if err := tx.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	var all []string
	for _, state := range states {
		all = append(all, state)
	}
	return all
}
