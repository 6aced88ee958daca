package queuetest_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

func enqueueTx(t testing.TB, c *queue.Client, tx queue.Tx, req queue.Request, outcome queue.Outcome) queue.JobID {
	t.Helper()
	res, err := c.EnqueueTx(t.Context(), tx, req)
	if err != nil {
		t.Fatalf("EnqueueTx: %v", err)
	}
	wantResult(t, res, queue.Result{JobID: res.JobID, Outcome: outcome})
	if res.JobID == "" {
		t.Fatal("JobID is empty on success")
	}
	return res.JobID
}

// jobsOf counts the jobs that were accepted in a scope.
func jobsOf(t testing.TB, pool *pgxpool.Pool, scope string) int {
	t.Helper()
	return pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.job WHERE key_scope = $1`, scope)
}

// scoped puts the request's key into the scope.
func scoped(req queue.Request, scope string) queue.Request {
	a, ok := req.Admission.(queue.Idempotency)
	if !ok {
		panic("scoped is for idempotent requests")
	}
	a.Scope = scope
	req.Admission = a
	return req
}

// business gives the caller a table of its own.
func business(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	pgtest.Exec(t, pool, `CREATE TABLE orders (scope text NOT NULL)`)
}

func ordersOf(t testing.TB, pool *pgxpool.Pool, scope string) int {
	t.Helper()
	return pgtest.Scan[int](t, pool, `SELECT count(*) FROM orders WHERE scope = $1`, scope)
}

func TestClient_EnqueueTx(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	business(t, pool)
	c := newClient(t, pool, queue.Config{})

	everyTransaction(t, pool, func(t *testing.T, begin begin, level sql.IsolationLevel) {
		t.Run("job and business row commit together", func(t *testing.T) {
			scope := t.Name()
			tx := begin(t, level)
			tx.do(t, `INSERT INTO orders VALUES ('`+scope+`')`)
			id := enqueueTx(t, c, tx, scoped(everything("k"), scope), queue.OutcomeAccepted)
			if _, err := c.Job(t.Context(), id); !errors.Is(err, queue.ErrJobNotFound) {
				t.Errorf("others see the job before the commit: %v", err)
			}
			tx.mustCommit(t)
			if ordersOf(t, pool, scope) != 1 || jobsOf(t, pool, scope) != 1 {
				t.Errorf("after the commit there are %d business rows and %d jobs, want 1 and 1", ordersOf(t, pool, scope), jobsOf(t, pool, scope))
			}
			replay(t, c, scoped(everything("k"), scope), id)
		})

		t.Run("a rollback removes job and binding, and the next request is accepted", func(t *testing.T) {
			scope := t.Name()
			tx := begin(t, level)
			tx.do(t, `INSERT INTO orders VALUES ('`+scope+`')`)
			id := enqueueTx(t, c, tx, scoped(invoice("k"), scope), queue.OutcomeAccepted)
			tx.mustRollback(t)
			if ordersOf(t, pool, scope) != 0 || jobsOf(t, pool, scope) != 0 {
				t.Errorf("after the rollback there are %d business rows and %d jobs, want none", ordersOf(t, pool, scope), jobsOf(t, pool, scope))
			}
			if _, err := c.Binding(t.Context(), scope, "k"); !errors.Is(err, queue.ErrBindingNotFound) {
				t.Errorf("the key is still owned after the rollback: %v", err)
			}
			if fresh := accept(t, c, scoped(invoice("k"), scope)); fresh == id {
				t.Error("the id of the rolled-back job was given again")
			}
		})

		t.Run("a conflict leaves the transaction usable and its other work commits", func(t *testing.T) {
			scope := t.Name()
			id := accept(t, c, scoped(invoice("k"), scope))
			tx := begin(t, level)
			tx.do(t, `INSERT INTO orders VALUES ('`+scope+`')`)
			first := enqueueTx(t, c, tx, scoped(invoice("before"), scope), queue.OutcomeAccepted)
			other := scoped(invoice("k"), scope)
			other.Priority = 1
			_, err := c.EnqueueTx(t.Context(), tx, other)
			wantConflict(t, err, id, queue.FieldPriority)
			tx.do(t, `INSERT INTO orders VALUES ('`+scope+`')`)
			second := enqueueTx(t, c, tx, scoped(invoice("after"), scope), queue.OutcomeAccepted)
			tx.mustCommit(t)
			if ordersOf(t, pool, scope) != 2 || jobsOf(t, pool, scope) != 3 {
				t.Errorf("after the commit there are %d business rows and %d jobs, want 2 and 3", ordersOf(t, pool, scope), jobsOf(t, pool, scope))
			}
			replay(t, c, scoped(invoice("before"), scope), first)
			replay(t, c, scoped(invoice("after"), scope), second)
		})

		t.Run("a transaction sees what it has accepted itself", func(t *testing.T) {
			scope := t.Name()
			tx := begin(t, level)
			id := enqueueTx(t, c, tx, scoped(invoice("k"), scope), queue.OutcomeAccepted)
			if again := enqueueTx(t, c, tx, scoped(invoice("k"), scope), queue.OutcomeReplayed); again != id {
				t.Errorf("the repeat names job %s, the transaction accepted %s", again, id)
			}
			other := scoped(invoice("k"), scope)
			other.Payload = nil
			_, err := c.EnqueueTx(t.Context(), tx, other)
			wantConflict(t, err, id, queue.FieldPayload)
			tx.mustCommit(t)
			replay(t, c, scoped(invoice("k"), scope), id)
		})

		t.Run("an expired key is taken over, and given back by a rollback", func(t *testing.T) {
			scope := t.Name()
			old := accept(t, c, scoped(invoice("k"), scope))
			pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp() WHERE job_id = $1`, string(old))
			tx := begin(t, level)
			enqueueTx(t, c, tx, scoped(invoice("k"), scope), queue.OutcomeAccepted)
			tx.mustRollback(t)
			tx = begin(t, level)
			id := enqueueTx(t, c, tx, scoped(invoice("k"), scope), queue.OutcomeAccepted)
			tx.mustCommit(t)
			replay(t, c, scoped(invoice("k"), scope), id)
			if got := jobsOf(t, pool, scope); got != 2 {
				t.Errorf("there are %d jobs, want the old one and the new one", got)
			}
		})

		t.Run("a bad request leaves the transaction usable", func(t *testing.T) {
			scope := t.Name()
			tx := begin(t, level)
			_, err := c.EnqueueTx(t.Context(), tx, queue.Request{})
			wantInvalid(t, err, "type")
			_, err = c.EnqueueManyTx(t.Context(), tx, []queue.Request{{}})
			wantInvalid(t, err, "type")
			tx.do(t, `INSERT INTO orders VALUES ('`+scope+`')`)
			tx.mustCommit(t)
		})
	})
}

func TestClient_EnqueueManyTx(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	business(t, pool)
	c := newClient(t, pool, queue.Config{})

	// many is a batch in which one of five requests is a plain one.
	many := func(scope string) []queue.Request {
		reqs := batch("k", 0, 50)
		for i := range reqs {
			reqs[i] = scoped(reqs[i], scope)
			if i%5 == 0 {
				reqs[i].Admission = nil
				reqs[i].ConcurrencyKey = scope
			}
		}
		return reqs
	}
	everyTransaction(t, pool, func(t *testing.T, begin begin, level sql.IsolationLevel) {
		t.Run("batch and business row commit together, and a repeat of the batch is replayed", func(t *testing.T) {
			scope := t.Name()
			tx := begin(t, level)
			tx.do(t, `INSERT INTO orders VALUES ('`+scope+`')`)
			results, err := c.EnqueueManyTx(t.Context(), tx, many(scope))
			if err != nil {
				t.Fatalf("EnqueueManyTx: %v", err)
			}
			tx.mustCommit(t)
			if ordersOf(t, pool, scope) != 1 || jobsOf(t, pool, scope) != 40 {
				t.Errorf("after the commit there are %d business rows and %d keyed jobs, want 1 and 40", ordersOf(t, pool, scope), jobsOf(t, pool, scope))
			}
			tx = begin(t, level)
			again, err := c.EnqueueManyTx(t.Context(), tx, many(scope))
			if err != nil {
				t.Fatalf("EnqueueManyTx: %v", err)
			}
			tx.mustCommit(t)
			for i, res := range again {
				if i%5 == 0 && (res.Outcome != queue.OutcomeAccepted || res.JobID == results[i].JobID) {
					t.Errorf("plain request %d is %+v, it always makes a new job", i, res)
				}
				if i%5 != 0 && (res.Outcome != queue.OutcomeReplayed || res.JobID != results[i].JobID) {
					t.Errorf("repeated request %d is %+v, the first made %s", i, res, results[i].JobID)
				}
			}
		})

		t.Run("a rollback removes all of the batch", func(t *testing.T) {
			scope := t.Name()
			tx := begin(t, level)
			if _, err := c.EnqueueManyTx(t.Context(), tx, many(scope)); err != nil {
				t.Fatalf("EnqueueManyTx: %v", err)
			}
			tx.mustRollback(t)
			if n := jobsOf(t, pool, scope); n != 0 {
				t.Errorf("%d jobs of the rolled-back batch are left", n)
			}
			for i, res := range enqueueMany(t, c, many(scope)) {
				if res.Outcome != queue.OutcomeAccepted {
					t.Errorf("after the rollback request %d is %s", i, res.Outcome)
				}
			}
		})

		t.Run("a conflict keeps nothing of the batch and the transaction goes on", func(t *testing.T) {
			scope := t.Name()
			id := accept(t, c, scoped(invoice("k33"), scope))
			tx := begin(t, level)
			tx.do(t, `INSERT INTO orders VALUES ('`+scope+`')`)
			first := enqueueTx(t, c, tx, scoped(invoice("before"), scope), queue.OutcomeAccepted)
			results, err := c.EnqueueManyTx(t.Context(), tx, many(scope))
			conflict := wantConflict(t, err, id, queue.FieldType, queue.FieldPayload)
			if conflict.Index != 33 || results != nil {
				t.Errorf("the conflict is request 33's and there are no results: %+v, %v", conflict, results)
			}
			tx.do(t, `INSERT INTO orders VALUES ('`+scope+`')`)
			rest := append(many(scope)[:33], many(scope)[34:]...)
			if _, err := c.EnqueueManyTx(t.Context(), tx, rest[:10]); err != nil {
				t.Fatalf("the next batch of the transaction: %v", err)
			}
			tx.mustCommit(t)
			if ordersOf(t, pool, scope) != 2 || jobsOf(t, pool, scope) != 2+8 {
				t.Errorf("after the commit there are %d business rows and %d keyed jobs, want 2 and 10", ordersOf(t, pool, scope), jobsOf(t, pool, scope))
			}
			if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.job WHERE concurrency_key = $1`, scope); n != 2 {
				t.Errorf("%d plain jobs are left, want only the second batch's 2", n)
			}
			replay(t, c, scoped(invoice("before"), scope), first)
			if _, err := c.Binding(t.Context(), scope, "k40"); !errors.Is(err, queue.ErrBindingNotFound) {
				t.Errorf("a key of the refused batch is owned: %v", err)
			}
		})

		t.Run("an empty batch makes no query", func(t *testing.T) {
			tx := begin(t, level)
			tx.mustRollback(t) // a query would fail now
			if results, err := c.EnqueueManyTx(t.Context(), tx, nil); err != nil || len(results) != 0 {
				t.Errorf("an empty batch: %v, %v", results, err)
			}
		})
	})
}
