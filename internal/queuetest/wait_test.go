package queuetest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// producers are the ways to send a request in a call of one's own. Batches hold
// others around it.
var producers = map[string]func(ctx context.Context, c *queue.Client, pool *pgxpool.Pool, req queue.Request) (queue.Result, error){
	"alone": func(ctx context.Context, c *queue.Client, _ *pgxpool.Pool, req queue.Request) (queue.Result, error) {
		return c.EnqueueWithResult(ctx, req)
	},
	"in a batch": func(ctx context.Context, c *queue.Client, _ *pgxpool.Pool, req queue.Request) (queue.Result, error) {
		return middle(c.EnqueueMany(ctx, around(req)))
	},
	"in a transaction": func(ctx context.Context, c *queue.Client, pool *pgxpool.Pool, req queue.Request) (res queue.Result, err error) {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { res, err = c.EnqueueTx(ctx, tx, req); return err })
		return res, err
	},
	"in a batch in a transaction": func(ctx context.Context, c *queue.Client, pool *pgxpool.Pool, req queue.Request) (res queue.Result, err error) {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { res, err = middle(c.EnqueueManyTx(ctx, tx, around(req))); return err })
		return res, err
	},
}

// around puts the request between ten others whose keys lie around its own in
// any order of locking.
func around(req queue.Request) []queue.Request {
	reqs := make([]queue.Request, 11)
	for i := range reqs {
		reqs[i] = req
		if i != 5 {
			reqs[i] = withKey(req, fmt.Sprintf("%s around %d", keyOf(req), i))
		}
	}
	return reqs
}

func middle(results []queue.Result, err error) (queue.Result, error) {
	if err != nil {
		return queue.Result{}, err
	}
	return results[5], nil
}

func keyOf(req queue.Request) string {
	switch a := req.Admission.(type) {
	case queue.Idempotency:
		return a.Key
	case queue.Throttle:
		return a.Key
	}
	return ""
}

// answer is what a call returned.
type answer struct {
	queue.Result
	err error
}

// sendBehind sends a request from another session and returns once that waits
// for a lock.
func sendBehind(t *testing.T, pool *pgxpool.Pool, send func() (queue.Result, error)) <-chan answer {
	t.Helper()
	done := make(chan answer, 1)
	go func() {
		res, err := send()
		done <- answer{res, err}
	}()
	pgtest.AwaitBlocked(t, pool, 1)
	return done
}

// held is a pgx transaction that has accepted the request.
func held(t *testing.T, c *queue.Client, pool *pgxpool.Pool, req queue.Request) (pgx.Tx, queue.JobID) {
	t.Helper()
	tx, err := pool.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx, enqueueTx(t, c, tx, req, queue.OutcomeAccepted)
}

// each runs f for every producer, on a fresh key and on an expired one, which
// the first transaction then takes over.
func each(t *testing.T, f func(t *testing.T, pool *pgxpool.Pool, c *queue.Client, fresh bool, send func(queue.Request) (queue.Result, error))) {
	t.Helper()
	for name, produce := range producers {
		for _, fresh := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, fresh key %t", name, fresh), func(t *testing.T) {
				t.Parallel()
				pool := pgtest.New(t)
				c := newClient(t, pool, queue.Config{})
				f(t, pool, c, fresh, func(req queue.Request) (queue.Result, error) {
					return produce(context.Background(), c, pool, req)
				})
			})
		}
	}
}

// expired leaves an expired binding of the request's key behind.
func expired(t *testing.T, pool *pgxpool.Pool, c *queue.Client, req queue.Request) {
	t.Helper()
	id := accept(t, c, req)
	pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp() WHERE job_id = $1`, string(id))
}

// A second producer waits for the first transaction and learns how it ended.
func TestClient_secondProducer(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, pool *pgxpool.Pool, c *queue.Client, fresh bool, send func(queue.Request) (queue.Result, error)) {
		for _, req := range []queue.Request{invoice("held"), notice("held-throttle")} {
			repeated := queue.OutcomeReplayed
			if _, ok := req.Admission.(queue.Throttle); ok {
				repeated = queue.OutcomeCoalesced
			}
			if !fresh {
				expired(t, pool, c, req)
			}
			tx, first := held(t, c, pool, req)
			second := sendBehind(t, pool, func() (queue.Result, error) { return send(req) })
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := <-second
			if got.err != nil || got.Outcome != queue.OutcomeAccepted || got.JobID == first || got.JobID == "" {
				t.Errorf("behind a rollback the second producer is accepted with a job of its own, got %+v", got)
			}

			req = withKey(req, "committed-"+keyOf(req))
			if !fresh {
				expired(t, pool, c, req)
			}
			tx, first = held(t, c, pool, req)
			second = sendBehind(t, pool, func() (queue.Result, error) { return send(req) })
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			got = <-second
			if got.err != nil || got.Outcome != repeated || got.JobID != first {
				t.Errorf("behind a commit the second producer is %s with job %s, got %+v", repeated, first, got)
			}

			req = withKey(req, "conflict-"+keyOf(req))
			if !fresh {
				expired(t, pool, c, req)
			}
			tx, first = held(t, c, pool, req)
			other := req
			other.Priority = 9
			second = sendBehind(t, pool, func() (queue.Result, error) { return send(other) })
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantConflict(t, (<-second).err, first, queue.FieldPriority)
		}

		// What went before the wait was given up whole: each key has one job, and
		// besides these there are only those whose keys had expired.
		if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.binding b WHERE NOT EXISTS (SELECT FROM onceq.job j WHERE j.id = b.job_id)`); n != 0 {
			t.Errorf("%d keys are owned by jobs that don't exist", n)
		}
		want := 0
		if !fresh {
			want = 6
		}
		if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.job j WHERE NOT EXISTS (SELECT FROM onceq.binding b WHERE b.job_id = j.id)`); n != want {
			t.Errorf("%d jobs own no key, want the %d whose keys had expired", n, want)
		}
	})
}

// A key that expired while the second producer waited for the first to commit
// is taken over: the clock is read after the wait.
func TestClient_expiredDuringTheWait(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, pool *pgxpool.Pool, c *queue.Client, fresh bool, send func(queue.Request) (queue.Result, error)) {
		req := invoice("expired-in-wait")
		req.Admission = queue.Idempotency{Key: "expired-in-wait", TTL: 20 * time.Millisecond}
		if !fresh {
			expired(t, pool, c, req)
		}
		tx, first := held(t, c, pool, req)
		second := sendBehind(t, pool, func() (queue.Result, error) { return send(req) })
		pgtest.AwaitClock(t, pool, pgtest.Clock(t, pool).Add(100*time.Millisecond))
		ended := pgtest.Clock(t, pool)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := <-second
		if got.err != nil || got.Outcome != queue.OutcomeAccepted || got.JobID == first {
			t.Fatalf("the first job's key had expired by the commit, so the second is accepted, got %+v", got)
		}
		if job, err := c.Job(t.Context(), got.JobID); err != nil || job.AcceptedAt.Before(ended) {
			t.Errorf("the job was accepted at %s, but waited until after %s: %v", job.AcceptedAt, ended, err)
		}
	})
}
