package queuetest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// race sends the same request from n callers on two pools at once and wants one
// acceptance, all others answered with its id.
func race(t *testing.T, clients []*queue.Client, n int, req queue.Request, repeated queue.Outcome) {
	t.Helper()
	results, errs := make([]queue.Result, n), make([]error, n)
	together(n, func(i int) { results[i], errs[i] = clients[i%len(clients)].EnqueueWithResult(t.Context(), req) })
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("identical requests sent at once are no errors: %v", err)
	}
	var accepted queue.JobID
	count := map[queue.Outcome]int{}
	for _, res := range results {
		count[res.Outcome]++
		if res.Outcome == queue.OutcomeAccepted {
			accepted = res.JobID
		}
	}
	if count[queue.OutcomeAccepted] != 1 || count[repeated] != n-1 {
		t.Fatalf("%d callers at once: got %v, want 1 accepted and %d %s", n, count, n-1, repeated)
	}
	for i, res := range results {
		if res.JobID != accepted {
			t.Errorf("caller %d was told job %q, the accepted one is %q", i, res.JobID, accepted)
		}
	}
}

func TestClient_callersAtOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	wider := func(cfg *pgxpool.Config) { cfg.MaxConns = 16 }
	clients := []*queue.Client{
		newClient(t, pgtest.Reconnect(t, pool, wider), queue.Config{}),
		newClient(t, pgtest.Reconnect(t, pool, wider), queue.Config{}),
	}
	const rounds, callers = 60, 32

	t.Run("one is accepted and all others are replayed", func(t *testing.T) {
		for i := range rounds {
			race(t, clients, callers, invoice(fmt.Sprint("race-", i)), queue.OutcomeReplayed)
		}
	})
	t.Run("one is accepted and all others are coalesced", func(t *testing.T) {
		for i := range rounds {
			race(t, clients, callers, notice(fmt.Sprint("race-throttle-", i)), queue.OutcomeCoalesced)
		}
	})
	wantCounts(t, pool, 2*rounds, 2*rounds)

	t.Run("one takes an expired key over", func(t *testing.T) {
		pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp()`)
		for i := range rounds {
			race(t, clients, callers, invoice(fmt.Sprint("race-", i)), queue.OutcomeReplayed)
		}
	})
	wantCounts(t, pool, 3*rounds, 2*rounds)

	t.Run("different requests: one is accepted, its equals replayed, the others are conflicts", func(t *testing.T) {
		for i := range rounds {
			var mu sync.Mutex
			seen := map[string]int{}
			together(callers, func(n int) {
				req := invoice(fmt.Sprint("race-two-", i))
				req.Payload = n % 2
				res, err := clients[n%2].EnqueueWithResult(t.Context(), req)
				var conflict *queue.EnqueueIdempotencyConflictError
				mu.Lock()
				defer mu.Unlock()
				switch {
				case errors.As(err, &conflict):
					seen["conflict "+string(conflict.JobID)]++
				case err != nil:
					t.Errorf("neither an answer nor a conflict: %v", err)
				default:
					seen[string(res.Outcome)+" "+string(res.JobID)]++
				}
			})
			if len(seen) != 3 {
				t.Fatalf("two requests under one key must end as accepted, replayed and conflict about one job: %v", seen)
			}
		}
	})

	t.Run("two admissions: the key has one owner", func(t *testing.T) {
		for i := range rounds {
			var accepted atomic.Int64
			together(8, func(n int) {
				key := fmt.Sprint("race-modes-", i)
				req := queue.Request{Type: "a", Admission: queue.Idempotency{Key: key}}
				if n%2 == 0 {
					req.Admission = queue.Throttle{Key: key, Window: day}
				}
				res, err := clients[n%2].EnqueueWithResult(t.Context(), req)
				var conflict *queue.EnqueueIdempotencyConflictError
				if err != nil && !errors.As(err, &conflict) {
					t.Errorf("neither an answer nor a conflict: %v", err)
				}
				if res.Outcome == queue.OutcomeAccepted {
					accepted.Add(1)
				}
			})
			if n := accepted.Load(); n != 1 {
				t.Fatalf("one key was accepted %d times under two admissions", n)
			}
		}
	})
}

// B-001: nobody is told the id of a job that was rolled back.
func TestClient_losersOfARollback(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	for round := range 10 {
		var order atomic.Int64
		var committed atomic.Value
		together(5, func(int) {
			ctx := context.Background()
			tx, err := pool.Begin(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = tx.Rollback(ctx) }()
			res, err := c.EnqueueTx(ctx, tx, invoice(fmt.Sprint("five-", round)))
			if err != nil {
				t.Error(err)
				return
			}
			if res.Outcome != queue.OutcomeAccepted {
				t.Errorf("every earlier transaction rolled back, and still this one is %s as job %s", res.Outcome, res.JobID)
			}
			if order.Add(1) < 5 {
				return // rolls back; the next one gets the key
			}
			committed.Store(res.JobID)
			if err := tx.Commit(ctx); err != nil {
				t.Error(err)
			}
		})
		id, _ := committed.Load().(queue.JobID)
		if _, err := c.Job(t.Context(), id); err != nil {
			t.Errorf("the one transaction that committed was told job %q, which can't be read: %v", id, err)
		}
	}
	wantCounts(t, pool, 10, 10)
}

// B-047: keys that differ in one character never meet.
func TestClient_manyNearKeys(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	const callers, batches = 4, 5
	together(callers, func(caller int) {
		for b := range batches {
			reqs := make([]queue.Request, 1000)
			for i := range reqs {
				reqs[i] = queue.Request{Type: "a", Admission: queue.Idempotency{Key: fmt.Sprintf("customer-%06d", (caller*batches+b)*1000+i)}}
			}
			results, err := c.EnqueueMany(context.Background(), reqs)
			if err != nil {
				t.Error(err)
				return
			}
			for i, res := range results {
				if res.Outcome != queue.OutcomeAccepted {
					t.Errorf("%s was %s though nobody had sent it", reqs[i].Admission, res.Outcome)
				}
			}
		}
	})
	wantCounts(t, pool, callers*batches*1000, callers*batches*1000)
}
