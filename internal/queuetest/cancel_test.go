package queuetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// A call cut short at any moment left all of its request or nothing, the repeat
// works, and no session is left inside a transaction.
func TestClient_cutShort(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]func(*testing.T, *pgxpool.Pool) *queue.Client{
		"plain": func(t *testing.T, pool *pgxpool.Pool) *queue.Client { return newClient(t, pool, queue.Config{}) },
		"while rotating": func(t *testing.T, pool *pgxpool.Pool) *queue.Client {
			return newClient(t, pool, queue.Config{KeySecret: newSecret, PreviousKeySecrets: [][]byte{oldSecret}})
		},
		"one exec protocol": func(t *testing.T, pool *pgxpool.Pool) *queue.Client {
			return newClient(t, inMode(t, pool, pgx.QueryExecModeExec), queue.Config{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			client := c(t, pool)
			accept(t, client, invoice("warm-up"))
			for produced, produce := range producers {
				cut := 0
				for i := range 60 {
					req := invoice(fmt.Sprint("cut-", produced, i))
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*150*time.Microsecond)
					_, err := produce(ctx, client, pool, req)
					cancel()
					if err != nil {
						cut++
					}
					wantWhole(t, pool)
					first, again := err, error(nil)
					var res queue.Result
					if res, again = produce(t.Context(), client, pool, req); again != nil {
						t.Fatalf("cut short after %s (%v), the repeat fails: %v", time.Duration(i)*150*time.Microsecond, first, again)
					}
					if first == nil && res.Outcome != queue.OutcomeReplayed {
						t.Errorf("the first call succeeded, its repeat is %s", res.Outcome)
					}
					wantWhole(t, pool)
					if _, err := client.Job(t.Context(), res.JobID); err != nil {
						t.Errorf("the repeat names job %s: %v", res.JobID, err)
					}
				}
				if cut == 0 {
					t.Errorf("%s: no call was cut short: this test tries nothing", produced)
				}
			}
			wantNoOpenTransactions(t, pool)
		})
	}
}

// wantWhole fails the test unless every job has its place and, in this test, its
// binding, and nothing else is there. All is read at one moment.
func wantWhole(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	halves := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.job j
		FULL JOIN onceq.pending p ON p.job_id = j.id
		FULL JOIN (SELECT DISTINCT job_id FROM onceq.binding) b ON b.job_id = j.id
		WHERE j.id IS NULL OR p.job_id IS NULL OR b.job_id IS NULL`)
	if halves != 0 {
		t.Errorf("a call cut short left %d halves of an acceptance", halves)
	}
}

func wantNoOpenTransactions(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	pgtest.Await(t, "no session to be idle in a transaction", func() bool {
		return pgtest.Scan[int](t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'`) == 0
	})
}

// A call cut short while it waits for a lock lets go at once (B-061).
func TestClient_cutShortWhileWaiting(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	for name, produce := range producers {
		t.Run(name, func(t *testing.T) {
			req := invoice("waiting-" + name)
			tx, id := held(t, c, pool, req)
			ctx, cancel := context.WithCancel(t.Context())
			done := sendBehind(t, pool, func() (queue.Result, error) { return produce(ctx, c, pool, req) })
			cancel()
			if got := <-done; !errors.Is(got.err, context.Canceled) {
				t.Errorf("the cancelled call ends with %v, want context.Canceled", got.err)
			}
			pgtest.Await(t, "nobody to wait for the key any more", func() bool {
				return pgtest.Scan[int](t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 0
			})
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			replay(t, c, req, id)
		})
	}
	wantNoOpenTransactions(t, pool)
}

// A connection that is lost in the middle leaves all or nothing, too.
func TestClient_lostConnection(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	for name, produce := range producers {
		t.Run(name, func(t *testing.T) {
			req := invoice("lost-" + name)
			tx, _ := held(t, c, pool, req)
			done := sendBehind(t, pool, func() (queue.Result, error) { return produce(context.Background(), c, pool, req) })
			// Again and again: who looks for deadlocks does not seem to wait.
			pgtest.Await(t, "the waiting session to be ended", func() bool {
				pgtest.Exec(t, pool, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
				return len(done) > 0
			})
			got := <-done
			if got.err == nil {
				t.Fatalf("the connection was lost and the answer is %+v", got)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			accept(t, c, req)
		})
	}
}
