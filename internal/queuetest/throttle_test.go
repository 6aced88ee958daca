package queuetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

func TestThrottle(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	coalesce := func(t *testing.T, req queue.Request, id queue.JobID) {
		t.Helper()
		wantResult(t, enqueue(t, c, req), queue.Result{JobID: id, Outcome: queue.OutcomeCoalesced})
	}

	t.Run("the window starts with the acceptance and does not slide", func(t *testing.T) {
		id := accept(t, c, notice("slide"))
		before, err := c.Binding(t.Context(), "", "slide")
		if err != nil {
			t.Fatal(err)
		}
		if before.Mode != "throttle" || before.ExpiresAt.Sub(before.AcceptedAt) != day {
			t.Errorf("the window is %+v, want a day", before)
		}
		for range 3 {
			coalesce(t, notice("slide"), id)
		}
		if after, err := c.Binding(t.Context(), "", "slide"); err != nil || after != before {
			t.Errorf("a coalesced request moved the window: %+v, was %+v, %v", after, before, err)
		}
	})

	t.Run("the window starts at the acceptance, not at the run time", func(t *testing.T) {
		req := notice("run-time") // B-020
		req.RunAt = pgtest.Clock(t, pool).Add(10 * day)
		id := accept(t, c, req)
		binding, err := c.Binding(t.Context(), "", "run-time")
		if err != nil || binding.ExpiresAt.Sub(binding.AcceptedAt) != day {
			t.Errorf("the window is %+v, want a day from the acceptance: %v", binding, err)
		}
		coalesce(t, req, id)
		later := req
		later.RunAt = req.RunAt.Add(time.Hour)
		_, err = c.EnqueueWithResult(t.Context(), later)
		wantConflict(t, err, id, queue.FieldRunAt)
	})

	t.Run("a different request in the window is a conflict", func(t *testing.T) {
		id := accept(t, c, notice("different"))
		other := notice("different")
		other.Payload, other.Admission = nil, queue.Throttle{Key: "different", Window: time.Hour}
		_, err := c.EnqueueWithResult(t.Context(), other)
		wantConflict(t, err, id, queue.FieldPayload, queue.FieldRetention)
	})

	t.Run("coalesces whatever state the first job is in", func(t *testing.T) {
		id := accept(t, c, notice("state"))
		pgtest.Exec(t, pool, `DELETE FROM onceq.pending WHERE job_id = $1`, string(id))
		coalesce(t, notice("state"), id)
		pgtest.Exec(t, pool, `DELETE FROM onceq.job WHERE id = $1`, string(id))
		coalesce(t, notice("state"), id)
	})

	t.Run("after the window a fresh job is accepted", func(t *testing.T) {
		req := queue.Request{Type: "t", Admission: queue.Throttle{Key: "after", Window: 50 * time.Millisecond}}
		id := accept(t, c, req)
		var ends time.Time
		for _, at := range boundTimes(t, pool, id) {
			ends = at[1]
		}
		pgtest.AwaitClock(t, pool, ends)
		if fresh := accept(t, c, req); fresh == id {
			t.Error("the job of the window before was given again")
		}
	})

	t.Run("shares its keys with idempotency and not with concurrency keys", func(t *testing.T) {
		id := accept(t, c, notice("acme"))
		_, err := c.EnqueueWithResult(t.Context(), invoice("acme"))
		wantConflict(t, err, id, queue.FieldAdmission)
		accept(t, c, queue.Request{Type: "t", ConcurrencyKey: "acme"}) // B-113
		accept(t, c, scoped(invoice("acme"), "another scope"))
	})

	t.Run("in a transaction", func(t *testing.T) {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			id := enqueueTx(t, c, tx, notice("tx"), queue.OutcomeAccepted)
			if again := enqueueTx(t, c, tx, notice("tx"), queue.OutcomeCoalesced); again != id {
				t.Errorf("coalesced with %s, accepted was %s", again, id)
			}
			return errors.New("roll back")
		})
		if err == nil {
			t.Fatal("not rolled back")
		}
		accept(t, c, notice("tx"))
	})
}

// B-004: two processes never both get through in one window.
func TestThrottle_twoProcesses(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	one, other := newClient(t, pool, queue.Config{}), newClient(t, pool, queue.Config{})

	const rounds = 150
	for i := range rounds {
		var results [2]queue.Result
		var errs [2]error
		together(2, func(n int) {
			req := notice(fmt.Sprint("window-", i))
			if n == 0 {
				results[n], errs[n] = one.EnqueueWithResult(context.Background(), req)
				return
			}
			var list []queue.Result
			if list, errs[n] = other.EnqueueMany(context.Background(), []queue.Request{{Type: "t"}, req}); errs[n] == nil {
				results[n] = list[1]
			}
		})
		outcomes := map[queue.Outcome]int{results[0].Outcome: 1}
		outcomes[results[1].Outcome]++
		if errors.Join(errs[:]...) != nil || outcomes[queue.OutcomeAccepted] != 1 || outcomes[queue.OutcomeCoalesced] != 1 || results[0].JobID != results[1].JobID {
			t.Fatalf("round %d: %+v, %v; want one accepted and one coalesced with it", i, results, errs)
		}
	}
	wantCounts(t, pool, 2*rounds, rounds)
}
