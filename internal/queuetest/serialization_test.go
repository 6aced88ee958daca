package queuetest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// Under a snapshot that is too old the library never answers wrongly: it finds
// the job, or hands back PostgreSQL's refusal as ErrRetryTransaction.
func TestClient_oldSnapshot(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	everyTransaction(t, pool, func(t *testing.T, begin begin, level sql.IsolationLevel) {
		for name, send := range map[string]func(tx queue.Tx, req queue.Request) (queue.Result, error){
			"alone": func(tx queue.Tx, req queue.Request) (queue.Result, error) { return c.EnqueueTx(t.Context(), tx, req) },
			"in a batch": func(tx queue.Tx, req queue.Request) (queue.Result, error) {
				return middle(c.EnqueueManyTx(t.Context(), tx, around(req)))
			},
		} {
			for _, fresh := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, fresh key %t", name, fresh), func(t *testing.T) {
					req := scoped(invoice("k"), t.Name())
					if !fresh {
						expired(t, pool, c, req)
					}
					tx := begin(t, level)
					tx.do(t, `SELECT count(*) FROM pg_class`) // takes the snapshot
					id := accept(t, c, req)
					res, err := send(tx, req)
					switch {
					case err == nil && res.Outcome == queue.OutcomeReplayed && res.JobID == id:
						tx.mustCommit(t)
					case level == sql.LevelReadCommitted || !errors.Is(err, queue.ErrRetryTransaction):
						t.Errorf("the key is owned by %s; neither a replay nor ErrRetryTransaction: %+v, %v", id, res, err)
					case sqlState(err) != "40001":
						t.Errorf("the driver's error is not reachable through ErrRetryTransaction: SQLSTATE %q in %v", sqlState(err), err)
					default:
						tx.mustRollback(t)
						again := begin(t, level)
						res, err := send(again, req)
						if err != nil {
							t.Fatalf("the repeated transaction: %v", err)
						}
						wantResult(t, res, queue.Result{JobID: id, Outcome: queue.OutcomeReplayed})
						again.mustCommit(t)
					}
				})
			}
		}
	})

	t.Run("pgx callers reach the PgError", func(t *testing.T) {
		req := invoice("pgerror")
		expired(t, pool, c, req)
		tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		if _, err := tx.Exec(t.Context(), `SELECT count(*) FROM pg_class`); err != nil {
			t.Fatal(err)
		}
		accept(t, c, req)
		_, err = c.EnqueueTx(t.Context(), tx, req)
		var pg *pgconn.PgError
		if !errors.Is(err, queue.ErrRetryTransaction) || !errors.As(err, &pg) || pg.Code != "40001" {
			t.Errorf("a takeover of a row that changed after the snapshot must be refused as ErrRetryTransaction with the *pgconn.PgError reachable: %v", err)
		}
	})
}

// B-057: a whole transaction that PostgreSQL refuses at commit is run again, on
// the connections that are there.
func TestClient_refusedAtCommit(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	pgtest.Exec(t, pool, `CREATE TABLE counter (n int); INSERT INTO counter VALUES (0), (0)`)
	c := newClient(t, pool, queue.Config{})

	// Two transactions that each read what the other writes.
	skewed := func(key string) (tx pgx.Tx, res queue.Result) {
		tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.Serializable})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		if _, err := tx.Exec(t.Context(), `SELECT sum(n) FROM counter`); err != nil {
			t.Fatal(err)
		}
		res, err = c.EnqueueTx(t.Context(), tx, invoice(key))
		if err != nil {
			t.Fatal(err)
		}
		return tx, res
	}
	one, _ := skewed("skew-1")
	other, _ := skewed("skew-2")
	for _, tx := range []pgx.Tx{one, other} {
		if _, err := tx.Exec(t.Context(), `INSERT INTO counter VALUES (1)`); err != nil {
			t.Fatal(err)
		}
	}
	before := pool.Stat().NewConnsCount()
	if err := one.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := other.Commit(t.Context()); sqlState(err) != "40001" {
		t.Fatalf("the second commit should have been refused: %v", err)
	}
	again, res := skewed("skew-2")
	if err := again.Commit(t.Context()); err != nil || res.Outcome != queue.OutcomeAccepted {
		t.Errorf("the transaction run again is accepted: %+v, %v", res, err)
	}
	if opened := pool.Stat().NewConnsCount() - before; opened >= 2 {
		t.Errorf("the refusal cost %d new connections", opened)
	}
	wantCounts(t, pool, 2, 2)
}

// Two callers who enqueue two keys in opposite order deadlock by themselves; the
// one that PostgreSQL ends is told to run its transaction again.
func TestClient_callersDeadlock(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	for name, open := range drivers {
		t.Run(name, func(t *testing.T) {
			begin := open(t, pool)
			one, other := begin(t, sql.LevelReadCommitted), begin(t, sql.LevelReadCommitted)
			keys := [2]queue.Request{scoped(invoice("a"), name), scoped(invoice("b"), name)}
			for i, tx := range []transaction{one, other} {
				tx.do(t, `SET LOCAL deadlock_timeout = '20ms'`)
				enqueueTx(t, c, tx, keys[i], queue.OutcomeAccepted)
			}
			var errs [2]error
			together(2, func(i int) {
				tx := [2]transaction{one, other}[i]
				if _, errs[i] = c.EnqueueTx(context.Background(), tx, keys[1-i]); errs[i] != nil {
					_ = tx.rollback() // lets the other go on
				}
			})
			refused := errs[0]
			if refused == nil {
				refused = errs[1]
			}
			if errs[0] != nil && errs[1] != nil || !errors.Is(refused, queue.ErrRetryTransaction) || sqlState(refused) != "40P01" {
				t.Errorf("one of two must be refused as ErrRetryTransaction with 40P01 reachable: %v, %v", errs[0], errs[1])
			}
		})
	}
}

// The library's own transactions are retried inside, whatever level the
// database or the role makes the default.
func TestClient_defaultIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"serializable", "repeatable read"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Reconnect(t, pgtest.New(t), func(cfg *pgxpool.Config) {
				cfg.MaxConns = 16
				cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
			})
			if got := pgtest.Scan[string](t, pool, `SHOW transaction_isolation`); got != level {
				t.Fatalf("the default is %s", got)
			}
			c := newClient(t, pool, queue.Config{})
			const callers, each = 16, 30

			t.Run("plain requests of 16 callers are all accepted", func(t *testing.T) {
				together(callers, func(caller int) {
					for i := range each {
						if res, err := c.EnqueueWithResult(context.Background(), queue.Request{Type: "t", Payload: i}); err != nil || res.Outcome != queue.OutcomeAccepted {
							t.Errorf("caller %d: %+v, %v", caller, res, err)
						}
						if i%10 == 0 {
							if _, err := c.EnqueueMany(context.Background(), []queue.Request{{Type: "t"}, {Type: "t"}}); err != nil {
								t.Errorf("caller %d, batch: %v", caller, err)
							}
						}
					}
				})
				wantCounts(t, pool, callers*(each+6), 0)
			})
			t.Run("keys of their own are all accepted, then replayed", func(t *testing.T) {
				together(callers, func(caller int) {
					for i := range each {
						req := invoice(fmt.Sprint("own-", caller, "-", i))
						first, err := c.EnqueueWithResult(context.Background(), req)
						if err != nil || first.Outcome != queue.OutcomeAccepted {
							t.Errorf("caller %d: %+v, %v", caller, first, err)
						}
						again, err := c.EnqueueWithResult(context.Background(), req)
						if err != nil || again.Outcome != queue.OutcomeReplayed || again.JobID != first.JobID {
							t.Errorf("caller %d, again: %+v, %v", caller, again, err)
						}
					}
				})
			})
			t.Run("one key of all has one owner", func(t *testing.T) {
				for i := range 15 {
					race(t, []*queue.Client{c}, callers, invoice(fmt.Sprint("shared-", i)), queue.OutcomeReplayed)
				}
				pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp()`)
				for i := range 15 {
					race(t, []*queue.Client{c}, callers, invoice(fmt.Sprint("shared-", i)), queue.OutcomeReplayed)
				}
			})
			t.Run("overlapping batches have one owner a key", func(t *testing.T) {
				for i := range 5 {
					reqs := batch(fmt.Sprint("batch-", i, "-"), 0, 20)
					all := make([][]queue.Result, 8)
					together(len(all), func(caller int) {
						var err error
						if all[caller], err = c.EnqueueMany(context.Background(), reqs); err != nil {
							t.Errorf("caller %d: %v", caller, err)
						}
					})
					for caller, results := range all {
						for k, res := range results {
							if len(all[0]) > 0 && res.JobID != all[0][k].JobID {
								t.Errorf("caller %d was told job %s for request %d, caller 0 %s", caller, res.JobID, k, all[0][k].JobID)
							}
						}
					}
				}
			})
		})
	}
}
