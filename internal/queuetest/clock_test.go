package queuetest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// An acceptance that had to wait counts its retention from when the wait was
// over, also when the wait was longer than the TTL.
func TestClient_clockAfterTheWait(t *testing.T) {
	t.Parallel()
	const ttl, wait = 300 * time.Millisecond, 600 * time.Millisecond
	each(t, func(t *testing.T, pool *pgxpool.Pool, c *queue.Client, fresh bool, send func(queue.Request) (queue.Result, error)) {
		for try := range 5 {
			req := invoice(fmt.Sprint("waited-", try))
			req.Admission = queue.Idempotency{Key: keyOf(req), TTL: ttl}
			if !fresh {
				expired(t, pool, c, req)
			}
			tx, _ := held(t, c, pool, req)
			second := sendBehind(t, pool, func() (queue.Result, error) { return send(req) })
			pgtest.AwaitClock(t, pool, pgtest.Clock(t, pool).Add(wait))
			ended := pgtest.Clock(t, pool)
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := <-second
			third, thirdErr := c.EnqueueWithResult(t.Context(), req)
			late := pgtest.Clock(t, pool).Sub(ended) >= ttl // the machine was too slow to tell
			if got.err != nil || got.Outcome != queue.OutcomeAccepted {
				t.Fatalf("behind a rollback the second producer is accepted, got %+v", got)
			}
			var bindings int
			for key, times := range boundTimes(t, pool, got.JobID) {
				bindings++
				if times[0].Before(ended) {
					t.Errorf("key %s was accepted at %s, but had to wait until after %s", key, times[0], ended)
				}
				if lives := times[1].Sub(times[0]); lives != ttl {
					t.Errorf("key %s lives for %s from its acceptance, want %s", key, lives, ttl)
				}
			}
			if job, err := c.Job(t.Context(), got.JobID); err != nil || job.AcceptedAt.Before(ended) || job.RunAt.Before(ended) {
				t.Errorf("the job was accepted at %s and is ready at %s, but waited until after %s: %v", job.AcceptedAt, job.RunAt, ended, err)
			}
			if late && (bindings == 0 || thirdErr == nil && third.Outcome == queue.OutcomeAccepted) {
				continue
			}
			if bindings == 0 {
				t.Error("the accepted job owns no key")
			}
			if thirdErr != nil {
				t.Fatal(thirdErr)
			}
			wantResult(t, third, queue.Result{JobID: got.JobID, Outcome: queue.OutcomeReplayed})
			return
		}
		t.Error("the machine was too slow five times")
	})
}

// slack is how much of a wait may be missing from a key's window, see "Expiry" in
// docs/architecture.md. The job is stamped after any wait, to the microsecond.
const slack = 250 * time.Millisecond

// After a short wait the clock is read when it is over, but for the slack.
func TestClient_clockAfterAShortWait(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, pool *pgxpool.Pool, c *queue.Client, fresh bool, send func(queue.Request) (queue.Result, error)) {
		req := invoice("short")
		if !fresh {
			expired(t, pool, c, req)
		}
		tx, _ := held(t, c, pool, req)
		second := sendBehind(t, pool, func() (queue.Result, error) { return send(req) })
		ended := pgtest.Clock(t, pool)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := <-second
		if got.err != nil || got.Outcome != queue.OutcomeAccepted {
			t.Fatalf("behind a rollback the second producer is accepted, got %+v", got)
		}
		binding, err := c.Binding(t.Context(), "", "short")
		if err != nil {
			t.Fatal(err)
		}
		job, err := c.Job(t.Context(), got.JobID)
		if err != nil {
			t.Fatal(err)
		}
		if binding.AcceptedAt.Before(ended.Add(-slack)) {
			t.Errorf("the key counts from %s, %s before the wait was over", binding.AcceptedAt, ended.Sub(binding.AcceptedAt))
		}
		if job.AcceptedAt.Before(ended) {
			t.Errorf("the job counts from %s, %s before the wait was over", job.AcceptedAt, ended.Sub(job.AcceptedAt))
		}
		if lives := binding.ExpiresAt.Sub(binding.AcceptedAt); lives != queue.DefaultTTL {
			t.Errorf("the key lives for %s, want %s", lives, queue.DefaultTTL)
		}
	})
}

// boundTimes are acceptance and expiry of all bindings that were accepted
// together with the job, by key hash.
func boundTimes(t testing.TB, pool *pgxpool.Pool, id queue.JobID) map[string][2]time.Time {
	t.Helper()
	result, err := pool.Query(context.Background(), `SELECT left(encode(key_hash, 'hex'), 12), accepted_at, expires_at FROM onceq.binding
		WHERE xmin::text = (SELECT xmin::text FROM onceq.binding WHERE job_id = $1)`, string(id))
	if err != nil {
		t.Fatal(err)
	}
	times := map[string][2]time.Time{}
	var key string
	var accepted, expires time.Time
	if _, err := pgx.ForEachRow(result, []any{&key, &accepted, &expires}, func() error {
		times[key] = [2]time.Time{accepted, expires}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return times
}

// A batch that waits twice counts from the end of the second wait.
func TestClient_batchThatWaitsTwice(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	reqs := batch("twice-", 0, 30)
	for i := range reqs {
		reqs[i].Admission = queue.Idempotency{Key: keyOf(reqs[i]), TTL: time.Minute}
	}
	one, _ := held(t, c, pool, reqs[10])
	other, _ := held(t, c, pool, reqs[20])
	second := sendBehind(t, pool, func() (queue.Result, error) {
		results, err := c.EnqueueMany(context.Background(), reqs)
		if err != nil {
			return queue.Result{}, err
		}
		if i := slices.IndexFunc(results, func(r queue.Result) bool { return r.Outcome != queue.OutcomeAccepted }); i >= 0 {
			return queue.Result{}, fmt.Errorf("request %d is %+v", i, results[i])
		}
		return results[0], nil
	})
	var ended time.Time
	for _, tx := range []pgx.Tx{one, other} {
		pgtest.AwaitBlocked(t, pool, 1)
		ended = pgtest.Clock(t, pool)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got := <-second
	if got.err != nil {
		t.Fatalf("behind two rollbacks the whole batch is accepted: %v", got.err)
	}
	times := boundTimes(t, pool, got.JobID)
	if len(times) != 30 {
		t.Errorf("%d keys were bound, want 30", len(times))
	}
	readings := map[time.Time]bool{}
	for _, at := range times {
		readings[at[0]] = true
		if lives := at[1].Sub(at[0]); lives != time.Minute {
			t.Errorf("a key lives for %s, want a minute", lives)
		}
	}
	for at := range readings {
		if at.Before(ended.Add(-slack)) {
			t.Errorf("the batch counts from %s, %s before the second wait was over", at, ended.Sub(at))
		}
	}
	if len(readings) != 1 {
		t.Errorf("one clock reading classifies a batch, its keys show %d", len(readings))
	}
}

// B-059: the TTL counts from the call, not from the start of the transaction.
func TestClient_ttlInALongTransaction(t *testing.T) {
	t.Parallel()
	const ttl, open = 400 * time.Millisecond, 600 * time.Millisecond
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	for _, how := range []string{"a single request", "a batch"} {
		t.Run(how, func(t *testing.T) {
			for try := range 5 {
				req := queue.Request{Type: "t", Admission: queue.Idempotency{Key: fmt.Sprint(how, try), TTL: ttl}}
				tx, err := pool.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback(context.Background()) }()
				var began time.Time
				if err := tx.QueryRow(t.Context(), `SELECT now()`).Scan(&began); err != nil {
					t.Fatal(err)
				}
				pgtest.AwaitClock(t, pool, began.Add(open))
				before := pgtest.Clock(t, pool)
				if how == "a batch" {
					if _, err := c.EnqueueManyTx(t.Context(), tx, []queue.Request{req, {Type: "t"}}); err != nil {
						t.Fatal(err)
					}
				} else {
					enqueueTx(t, c, tx, req, queue.OutcomeAccepted)
				}
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				res, err := c.EnqueueWithResult(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				late := pgtest.Clock(t, pool).Sub(before) >= ttl
				if res.Outcome == queue.OutcomeAccepted && late {
					continue // the machine was too slow to tell
				}
				if res.Outcome != queue.OutcomeReplayed {
					t.Fatalf("right after a transaction of %s, a TTL of %s is over: %+v", open, ttl, res)
				}
				job, err := c.Job(t.Context(), res.JobID)
				if err != nil || job.AcceptedAt.Before(before) || job.RunAt.Before(before) {
					t.Errorf("accepted at %s, ready at %s, called after %s: %v", job.AcceptedAt, job.RunAt, before, err)
				}
				if at := boundTimes(t, pool, res.JobID); len(at) != 1 {
					t.Errorf("%d bindings, want 1", len(at))
				} else {
					for _, at := range at {
						if at[0].Before(before) || at[1].Sub(at[0]) != ttl {
							t.Errorf("bound from %s to %s, called after %s with a TTL of %s", at[0], at[1], before, ttl)
						}
					}
				}
				return
			}
			t.Error("the machine was too slow five times")
		})
	}
}
