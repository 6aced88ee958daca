package workertest_test

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

// completeIn writes an effect and completes the job in one open transaction.
func completeIn(t testing.TB, pool *pgxpool.Pool, c *call) pgx.Tx {
	t.Helper()
	pgtest.Exec(t, pool, `CREATE TABLE IF NOT EXISTS effect (job_id text)`)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = tx.Exec(t.Context(), `INSERT INTO effect VALUES ($1)`, string(c.job.ID)); err == nil {
		err = queue.CompleteTx(t.Context(), tx, c.job)
	}
	if err != nil {
		t.Fatalf("CompleteTx: %v", err)
	}
	return tx
}

func effects(t testing.TB, pool *pgxpool.Pool, id queue.JobID) int {
	t.Helper()
	return pgtest.Scan[int](t, pool, `SELECT count(*) FROM effect WHERE job_id = $1`, string(id))
}

// Once committed, the job has succeeded, whatever the handler does next.
func TestCompleteTx_committed(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]error{
		"nothing":   nil,
		"error":     errors.New("too late"),
		"permanent": queue.Permanent(errors.New("too late")),
		"later":     queue.RetryAfter(errors.New("too late"), 0),
	} {
		t.Run("then "+name, func(t *testing.T) {
			t.Parallel()
			pool, c, work, first := oneCall(t, queue.Request{Retry: queue.Fixed{}})
			id := first.job.ID
			tx := completeIn(t, pool, first)
			if job := info(t, c, id); job.State != queue.StateRunning || effects(t, pool, id) != 0 {
				t.Errorf("before the commit nobody may see the end: the job is %s, with %d effects", job.State, effects(t, pool, id))
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if job := info(t, c, id); job.State != queue.StateSucceeded || effects(t, pool, id) != 1 {
				t.Errorf("with the commit the job must have succeeded: it is %s, with %d effects", job.State, effects(t, pool, id))
			}
			cancel(t, c, id, queue.CancelTooLate)
			first.end(result)
			other := accept(t, c, queue.Request{})
			got := work.next(t)
			if got.job.ID != other {
				t.Fatalf("job %s runs again although it has succeeded", got.job.ID)
			}
			got.end(nil)
			awaitState(t, c, other, queue.StateSucceeded)
			if job := info(t, c, id); job.State != queue.StateSucceeded || job.LastError != "" || job.Attempt != 1 {
				t.Errorf("what the handler returned after the commit has changed the job: %s, %q, attempt %d", job.State, job.LastError, job.Attempt)
			}
			wantKinds(t, c, id, queue.EventAccepted, queue.EventClaimed, queue.EventSucceeded)
		})
	}
	t.Run("then a panic", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.New(t)
		c := newClient(t, pool, queue.Config{})
		w := newWorker(t, c, one("a"))
		ran := make(chan struct{}, 10)
		queue.Handle(w, workType, func(ctx context.Context, job *queue.Job[any]) error {
			ran <- struct{}{}
			if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return queue.CompleteTx(ctx, tx, job) }); err != nil {
				return err
			}
			panic("too late")
		})
		start(t, w)
		id := accept(t, c, queue.Request{Retry: queue.Fixed{}})
		awaitState(t, c, id, queue.StateSucceeded)
		other := accept(t, c, queue.Request{})
		awaitState(t, c, other, queue.StateSucceeded)
		if n := len(ran); n != 2 {
			t.Errorf("two jobs were run %d times", n)
		}
	})
}

// Not committed, the attempt fails, even when the handler says nothing.
func TestCompleteTx_rolledBack(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]error{"and nothing returned": nil, "and an error returned": errNotYet} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, c, work, first := oneCall(t, queue.Request{Retry: queue.Fixed{}, MaxAttempts: 2})
			id := first.job.ID
			if err := completeIn(t, pool, first).Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			first.end(result)
			second := work.next(t)
			if second.job.ID != id || second.job.Attempt != 2 || effects(t, pool, id) != 0 {
				t.Errorf("after the rollback attempt %d of job %s runs, with %d effects", second.job.Attempt, second.job.ID, effects(t, pool, id))
			}
			job := info(t, c, id)
			if job.LastError == "" || (result != nil && job.LastError != result.Error()) {
				t.Errorf("the attempt failed with error %q", job.LastError)
			}
			if err := completeIn(t, pool, second).Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			second.end(nil)
			if job := awaitState(t, c, id, queue.StateSucceeded); job.Attempt != 2 || effects(t, pool, id) != 1 {
				t.Errorf("succeeded at attempt %d with %d effects, want 2 and 1", job.Attempt, effects(t, pool, id))
			}
		})
	}
	t.Run("and the budget spent", func(t *testing.T) {
		t.Parallel()
		pool, c, _, first := oneCall(t, queue.Request{MaxAttempts: 1})
		if err := completeIn(t, pool, first).Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		first.end(nil)
		awaitState(t, c, first.job.ID, queue.StateDead)
	})
}

// The transaction may take longer than the lease: it holds the lease's row, so
// nobody can take the job, and all other jobs of the worker keep theirs.
func TestCompleteTx_longTransaction(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{ID: "a", Lease: shortLease, Queues: map[string]int{"default": 2}})
	work := handle(t, workType, w)
	id := accept(t, c, queue.Request{MaxAttempts: 1})
	start(t, w)
	first := work.next(t)
	other := accept(t, c, queue.Request{MaxAttempts: 1})
	second := work.next(t)
	tx := completeIn(t, pool, first)
	until := pgtest.Clock(t, pool).Add(5 * shortLease / 2)
	pgtest.Await(t, "two and a half leases to pass", func() bool {
		maintain(t, c)
		return pgtest.Clock(t, pool).After(until) || second.ctx.Err() != nil
	})
	second.wantAlive(t, "another job's long transaction is no reason to lose the lease")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.end(nil)
	second.end(nil)
	awaitState(t, c, id, queue.StateSucceeded)
	awaitState(t, c, other, queue.StateSucceeded)
}

// Handlers that return with the transaction still open keep final writes
// waiting, but no other job's heartbeat.
func TestCompleteTx_leftOpen(t *testing.T) {
	t.Parallel()
	pool := pgtest.NewWith(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 12 })
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{ID: "a", Lease: shortLease, Queues: map[string]int{"default": 10}})
	work := handle(t, workType, w)
	start(t, w)
	healthy := accept(t, c, queue.Request{MaxAttempts: 1})
	alive := work.next(t)
	for range 6 {
		accept(t, c, queue.Request{Retry: queue.Fixed{Delay: time.Hour}})
		leaves := work.next(t)
		tx := completeIn(t, pool, leaves)
		defer func() { _ = tx.Rollback(context.Background()) }()
		leaves.end(nil)
	}
	until := pgtest.Clock(t, pool).Add(5 * shortLease / 2)
	pgtest.Await(t, "two and a half leases to pass", func() bool { return pgtest.Clock(t, pool).After(until) || alive.ctx.Err() != nil })
	alive.wantAlive(t, "other jobs' open transactions are no reason to lose the lease")
	alive.end(nil)
	// The completion itself may have to wait for the others' turn.
	awaitState(t, c, healthy, queue.StateSucceeded)
}

// With the success the job's key is freed, if asked for, and its slot.
func TestCompleteTx_freesKeyAndSlot(t *testing.T) {
	t.Parallel()
	req := queue.Request{Type: workType, ConcurrencyKey: "slot", Admission: queue.Idempotency{Key: "k", Release: queue.ReleaseFinished}}
	pool, c, work, first := oneCall(t, req)
	tx := completeIn(t, pool, first)
	waiting := accept(t, c, queue.Request{ConcurrencyKey: "slot"})
	wantAnswer(t, c, queue.Request{Type: workType, ConcurrencyKey: "slot", Admission: queue.Idempotency{Key: "other", Release: queue.ReleaseFinished}},
		queue.Result{Outcome: queue.OutcomeAccepted})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, c, req, queue.Result{Outcome: queue.OutcomeAccepted})
	first.end(nil)
	got := work.next(t)
	if got.job.ID != waiting {
		t.Errorf("job %s has the slot, want the oldest that waited", got.job.ID)
	}
	for range 2 {
		got.end(nil)
		got = work.next(t)
	}
	got.end(nil)
}

func TestCompleteTx_inACancelledJob(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprintf("commit %t", commit), func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			c := newClient(t, pool, queue.Config{})
			w := newWorker(t, c, calm("a"))
			work := handle(t, workType, w)
			id := accept(t, c, queue.Request{})
			start(t, w)
			first := work.next(t)
			cancel(t, c, id, queue.CancelRequested)
			tx := completeIn(t, pool, first)
			want, err := queue.StateCancelled, error(nil)
			if commit {
				want, err = queue.StateSucceeded, tx.Commit(t.Context())
			} else {
				err = tx.Rollback(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			first.end(nil)
			awaitState(t, c, id, want)
		})
	}
}

// A worker that stops between CompleteTx and Commit hands the job back like any
// other: no attempt is spent.
func TestCompleteTx_stoppedBeforeTheCommit(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, stopping(50*time.Millisecond))
	work := handle(t, workType, w)
	id := accept(t, c, queue.Request{MaxAttempts: 1})
	r := start(t, w)
	first := work.next(t)
	tx := completeIn(t, pool, first)
	r.cancel()
	<-first.ctx.Done()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.end(first.ctx.Err())
	if err := r.wait(t); err != nil {
		t.Fatal(err)
	}
	if job := info(t, c, id); job.State != queue.StateReady || job.Attempt != 0 {
		t.Errorf("handed back by a worker that stops, the job is %s with %d attempts spent, error %q", job.State, job.Attempt, job.LastError)
	}
	wantKinds(t, c, id, queue.EventAccepted, queue.EventClaimed, queue.EventReleased)
}

// Under a stricter level a heartbeat that came after the snapshot is in the way,
// which the handler is told as such.
func TestCompleteTx_repeatableRead(t *testing.T) {
	t.Parallel()
	pool, c, _, first := oneCall(t, queue.Request{Retry: queue.Fixed{}})
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `SELECT 1`); err != nil { // takes the snapshot
		t.Fatal(err)
	}
	pgtest.Exec(t, pool, `UPDATE onceq.running SET lease_until = lease_until + interval '1 s'`)
	if err := queue.CompleteTx(first.ctx, tx, first.job); !errors.Is(err, queue.ErrRetryTransaction) {
		t.Errorf("CompleteTx in a REPEATABLE READ transaction, after a heartbeat: %v, want ErrRetryTransaction", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := completeIn(t, pool, first).Commit(t.Context()); err != nil {
		t.Errorf("the same once more, in a READ COMMITTED one: %v", err)
	}
	first.end(nil)
	awaitState(t, c, first.job.ID, queue.StateSucceeded)
}
