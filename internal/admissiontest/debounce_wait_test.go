package admissiontest

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// The clock that ends a window is read when the request is decided, not when the
// caller's transaction began.
func TestDebounce_clockTrap(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			first := w.enqueue(debounce("trap", 1, queue.Debounce{}))
			tx := w.begin(level)
			w.leave(0)
			var trapped bool
			if err := tx.QueryRow(w.ctx, "SELECT expires_at > now() AND expires_at <= clock_timestamp() FROM onceq.binding").Scan(&trapped); err != nil || !trapped {
				t.Fatalf("the window did not end after the transaction's start (%v)", err)
			}
			res, err := w.client.EnqueueTx(w.ctx, tx, debounce("trap", 2, queue.Debounce{Window: time.Minute}))
			if err != nil || res != (queue.Result{JobID: first.JobID, Outcome: queue.OutcomeNonReplaceable, Reason: queue.ReasonWindowElapsed}) {
				t.Errorf("got %+v, %v, want window_elapsed", res, err)
			}
			if level == pgx.ReadCommitted { // others lock what their snapshot can't tell
				wroteNothing(t, tx)
			}
		})
	}
	t.Run("the window ends while the binding is waited for", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		first := w.enqueue(debounce("trap", 1, queue.Debounce{Window: 400 * time.Millisecond}))
		holder := w.begin()
		if _, err := holder.Exec(w.ctx, "SELECT FROM onceq.binding FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		answer := make(chan queue.Result, 1)
		go func() {
			res, err := w.client.EnqueueWithResult(w.ctx, debounce("trap", 2, queue.Debounce{Window: time.Minute}))
			if err != nil {
				t.Error(err)
			}
			answer <- res
		}()
		w.await("SELECT count(*) FROM onceq.binding WHERE expires_at <= clock_timestamp()", 1)
		if err := holder.Commit(w.ctx); err != nil {
			t.Fatal(err)
		}
		if res := <-answer; res != (queue.Result{JobID: first.JobID, Outcome: queue.OutcomeNonReplaceable, Reason: queue.ReasonWindowElapsed}) {
			t.Errorf("got %+v, want window_elapsed", res)
		}
	})
}

// A claim that is under way when the replacement comes: the replacement waits for
// it, and what it then finds decides, by the clock after the wait.
func TestDebounce_waitsForTheClaim(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"alone", "batch"} {
		for _, claimed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, claimed %t", way, claimed), func(t *testing.T) {
				t.Parallel()
				for window := 2 * time.Second; !waitsForTheClaim(t, way, claimed, window); window *= 2 {
					if window == 8*time.Second {
						t.Fatal("the request was always made too late to wait")
					}
				}
			})
		}
	}
}

// waitsForTheClaim is false where the window was over before the request was there.
func waitsForTheClaim(t *testing.T, way string, claimed bool, window time.Duration) bool {
	w := newWorld(t)
	if claimed {
		window = time.Minute
	}
	first := w.enqueue(debounce("k", 1, queue.Debounce{Window: window}))
	before := w.binding("k").ExpiresAt
	claim := w.begin()
	if _, err := claim.Exec(w.ctx, "DELETE FROM onceq.pending"); err != nil {
		t.Fatal(err)
	}
	answer := make(chan queue.Result, 1)
	go func() {
		res, err := w.send(way, debounce("k", 2, queue.Debounce{}))
		if err != nil {
			t.Error(err)
		}
		answer <- res
	}()
	over := "SELECT count(*) FROM onceq.binding WHERE expires_at <= clock_timestamp()"
	for ; pgtest.Blocked(t, w.pool) == 0; time.Sleep(5 * time.Millisecond) {
		select {
		case got := <-answer:
			if claimed || w.count(over) == 0 {
				t.Fatalf("got %+v without a wait for the claim", got)
			}
			return false
		default:
		}
	}
	want := queue.Result{JobID: first.JobID, Outcome: queue.OutcomeNonReplaceable, Reason: queue.ReasonNotPending}
	var err error
	if claimed {
		err = claim.Commit(w.ctx)
	} else {
		want.Reason = queue.ReasonWindowElapsed
		w.await(over, 1)
		err = claim.Rollback(w.ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	var after time.Time
	if err := w.pool.QueryRow(w.ctx, "SELECT expires_at FROM onceq.binding").Scan(&after); err != nil || !after.Equal(before) {
		t.Errorf("the window was moved from %s to %s (%v)", before, after, err)
	}
	if n := w.count("SELECT count(*) FROM onceq.job WHERE payload = '1'"); n != 1 || w.count("SELECT count(*) FROM onceq.event") != 0 {
		t.Error("the job was changed")
	}
	return true
}

// A request that had to wait for another transaction counts its window from the
// end of the wait, and is accepted when the other was rolled back.
func TestDebounce_waitedForAnother(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"alone", "in a transaction", "batch", "batch in a transaction"} {
		for _, hold := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, hold %t", way, hold), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				other := w.begin()
				if _, err := w.client.EnqueueTx(w.ctx, other, debounce("k", 1, queue.Debounce{})); err != nil {
					t.Fatal(err)
				}
				answer := make(chan queue.Result, 1)
				go func() {
					r := debounce("k", 2, queue.Debounce{Window: time.Second, Hold: hold, MaxWait: 500 * time.Millisecond})
					res, err := w.send(way, r)
					if err != nil {
						t.Error(err)
					}
					answer <- res
				}()
				pgtest.AwaitBlocked(t, w.pool, 1)
				time.Sleep(1500 * time.Millisecond)
				released := pgtest.Clock(t, w.pool)
				if err := other.Rollback(w.ctx); err != nil {
					t.Fatal(err)
				}
				res := <-answer
				// The table tells of the window, which may have ended meanwhile.
				var b queue.BindingInfo
				if err := w.pool.QueryRow(w.ctx, "SELECT job_id::text, accepted_at, expires_at FROM onceq.binding").Scan(&b.JobID, &b.AcceptedAt, &b.ExpiresAt); err != nil {
					t.Fatal(err)
				}
				job := w.job(res.JobID)
				if res.Outcome != queue.OutcomeAccepted || b.JobID != res.JobID || !job.RunAt.Equal(b.ExpiresAt) || string(job.Payload) != "2" {
					t.Errorf("got %+v, binding %+v, job %+v", res, b, job)
				}
				if b.AcceptedAt.Before(released) || b.ExpiresAt.Sub(b.AcceptedAt) != time.Second {
					t.Errorf("the window from %s to %s began before the wait ended at %s", b.AcceptedAt, b.ExpiresAt, released)
				}
				if n := w.count("SELECT count(*) FROM onceq.pending WHERE ready_at = $1", job.RunAt); n != 1 {
					t.Errorf("the job's place does not have its run time")
				}
				if n := w.count("SELECT count(*) FROM onceq.event"); n != 0 {
					t.Errorf("an acceptance left %d events", n)
				}
			})
		}
	}
}

// send hands over one request by one of the four ways there are.
func (w *world) send(way string, r queue.Request) (res queue.Result, err error) {
	var all []queue.Result
	switch way {
	case "alone":
		return w.client.EnqueueWithResult(w.ctx, r)
	case "batch":
		all, err = w.client.EnqueueMany(w.ctx, []queue.Request{r})
	default:
		err = pgx.BeginFunc(w.ctx, w.pool, func(tx pgx.Tx) (err error) {
			if way == "in a transaction" {
				res, err = w.client.EnqueueTx(w.ctx, tx, r)
				return err
			}
			all, err = w.client.EnqueueManyTx(w.ctx, tx, []queue.Request{r})
			return err
		})
	}
	if len(all) == 1 {
		res = all[0]
	}
	return res, err
}

// await waits until a question's answer is n.
func (w *world) await(sql string, n int) {
	w.t.Helper()
	pgtest.Await(w.t, fmt.Sprintf("%d to be the answer of %s", n, sql), func() bool { return w.count(sql) == n })
}

// Isolation levels that can't follow a changed binding say so, and the same
// transaction run again succeeds.
func TestDebounce_serialization(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			first := w.enqueue(debounce("k", 1, queue.Debounce{}))
			try := func(between func()) (res queue.Result, err error) {
				err = pgx.BeginTxFunc(w.ctx, w.pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
					if _, err := tx.Exec(w.ctx, "SELECT FROM onceq.binding"); err != nil {
						return err
					}
					between()
					res, err = w.client.EnqueueTx(w.ctx, tx, debounce("k", 3, queue.Debounce{}))
					return err
				})
				return res, err
			}
			_, err := try(func() { w.enqueue(debounce("k", 2, queue.Debounce{})) })
			if !errors.Is(err, queue.ErrRetryTransaction) {
				t.Errorf("got %v, want ErrRetryTransaction", err)
			}
			if res, err := try(func() {}); err != nil || res != (queue.Result{JobID: first.JobID, Outcome: queue.OutcomeReplaced}) {
				t.Errorf("run again: %+v, %v", res, err)
			}
			if got := w.job(first.JobID).Payload; string(got) != "3" || !json.Valid(got) {
				t.Errorf("got payload %s", got)
			}
		})
	}
}
