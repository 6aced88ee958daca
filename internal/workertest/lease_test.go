package workertest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// takeover is a job whose first attempt, of worker a, has lost its lease and
// doesn't know yet, and which worker b runs now.
type takeover struct {
	pool          *pgxpool.Pool
	c             *queue.Client
	id            queue.JobID
	first, second *call
}

func takenOver(t *testing.T, req queue.Request) *takeover {
	t.Helper()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	a, b := newWorker(t, c, calm("a")), newWorker(t, c, calm("b"))
	ofA, ofB := handle(t, workType, a), handle(t, workType, b)
	o := &takeover{pool: pool, c: c, id: accept(t, c, req)}
	start(t, a)
	o.first = ofA.next(t)
	reclaim(t, pool, c, o.id)
	start(t, b)
	o.second = ofB.next(t)
	if o.second.job.ID != o.id || o.second.job.Attempt != 2 {
		t.Fatalf("the next attempt after a lost lease is attempt %d of job %s", o.second.job.Attempt, o.second.job.ID)
	}
	return o
}

// wantUntouched fails the test unless the job is still the second attempt's.
func (o *takeover) wantUntouched(t *testing.T) {
	t.Helper()
	if job := info(t, o.c, o.id); job.State != queue.StateRunning || job.WorkerID != "b" || job.Attempt != 2 {
		t.Errorf("a worker that lost its lease has changed the job: it is %s, attempt %d, of worker %q", job.State, job.Attempt, job.WorkerID)
	}
	if n := pgtest.Scan[int](t, o.pool, `SELECT count(*) FROM onceq.checkpoint`); n != 0 {
		t.Errorf("a worker that lost its lease has saved %d checkpoints", n)
	}
}

// wantSecond ends the second attempt and fails the test unless it is the one
// recorded.
func (o *takeover) wantSecond(t *testing.T) {
	t.Helper()
	o.second.wantAlive(t, "the first attempt's end is nothing to the second")
	o.second.end(nil)
	if job := awaitState(t, o.c, o.id, queue.StateSucceeded); job.Attempt != 2 || job.WorkerID != "b" {
		t.Errorf("recorded is attempt %d of worker %q, not the second run's success", job.Attempt, job.WorkerID)
	}
	wantKinds(t, o.c, o.id, queue.EventAccepted, queue.EventClaimed, queue.EventLeaseExpired, queue.EventClaimed, queue.EventSucceeded)
}

func TestLease_staleAttemptRecordsNothing(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]error{
		"success":   nil,
		"failure":   errors.New("stale failure"),
		"permanent": queue.Permanent(errors.New("stale failure")),
		"later":     queue.RetryAfter(errors.New("stale failure"), time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := takenOver(t, queue.Request{})
			o.first.end(result)
			// A batched write would be made by the time another job is recorded.
			other := accept(t, o.c, queue.Request{Type: workType})
			awaitState(t, o.c, other, queue.StateRunning)
			o.wantUntouched(t)
			o.wantSecond(t)
		})
	}
	t.Run("also after the second has ended", func(t *testing.T) {
		t.Parallel()
		o := takenOver(t, queue.Request{})
		o.wantSecond(t)
		o.first.end(queue.Permanent(errors.New("stale failure")))
		other := accept(t, o.c, queue.Request{})
		awaitState(t, o.c, other, queue.StateRunning)
		if job := info(t, o.c, o.id); job.State != queue.StateSucceeded || job.LastError != "" {
			t.Errorf("a stale failure has changed the job that succeeded: %s, %q", job.State, job.LastError)
		}
	})
}

func TestLease_staleAttemptMaySaveNothing(t *testing.T) {
	t.Parallel()
	o := takenOver(t, queue.Request{})
	pgtest.Exec(t, o.pool, `CREATE TABLE effect (n int)`)
	ctx, job := o.first.ctx, o.first.job
	_, err := queue.Checkpoint(ctx, job, "stage", func(context.Context) (int, error) { return 1, nil })
	if !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("Checkpoint after a lost lease: %v, want ErrLeaseLost", err)
	}
	_, err = queue.CheckpointTx(ctx, job, "tx", func(ctx context.Context, tx pgx.Tx) (int, error) {
		_, err := tx.Exec(context.WithoutCancel(ctx), `INSERT INTO effect VALUES (1)`)
		return 1, err
	})
	if !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("CheckpointTx after a lost lease: %v, want ErrLeaseLost", err)
	}
	err = pgx.BeginFunc(t.Context(), o.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `INSERT INTO effect VALUES (2)`); err != nil {
			return err
		}
		return queue.CompleteTx(t.Context(), tx, job)
	})
	if !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("CompleteTx after a lost lease: %v, want ErrLeaseLost", err)
	}
	if n := pgtest.Scan[int](t, o.pool, `SELECT count(*) FROM effect`); n != 0 {
		t.Errorf("%d effects of a stale attempt were committed", n)
	}
	o.wantUntouched(t)
	o.first.end(err)
	o.wantSecond(t)
}

// The lease is over by PostgreSQL's clock, but nobody has taken the job yet.
func TestLease_overIsOver(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, calm("a"))
	work := handle(t, workType, w)
	id := accept(t, c, queue.Request{MaxAttempts: 1})
	start(t, w)
	first := work.next(t)
	expire(t, pool, id)
	if _, err := queue.Checkpoint(first.ctx, first.job, "stage", func(context.Context) (int, error) { return 1, nil }); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("Checkpoint under a lease that is over: %v, want ErrLeaseLost", err)
	}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return queue.CompleteTx(t.Context(), tx, first.job) })
	if !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("CompleteTx under a lease that is over: %v, want ErrLeaseLost", err)
	}
	first.end(nil)
	other := accept(t, c, queue.Request{})
	work.next(t).end(nil)
	awaitState(t, c, other, queue.StateSucceeded)
	if job := info(t, c, id); job.State == queue.StateSucceeded {
		t.Error("a success that came after the lease was recorded")
	}
	maintain(t, c)
	if job := info(t, c, id); job.State != queue.StateDead || job.Attempt != 1 || job.LastError == "" {
		t.Errorf("the only attempt's lease ended: the job must be dead with a reason, it is %s after %d attempts, error %q", job.State, job.Attempt, job.LastError)
	}
}

// The next heartbeat tells the handler that its lease is lost.
func TestLease_lostLeaseEndsTheContext(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	cfg := one("a")
	cfg.Lease = 3 * shortLease
	w := newWorker(t, c, cfg)
	work := handle(t, workType, w)
	id := accept(t, c, queue.Request{})
	start(t, w)
	first := work.next(t)
	begin := time.Now()
	reclaim(t, pool, c, id)
	first.wantCause(t, queue.ErrLeaseLost)
	if took := time.Since(begin); took > 2*shortLease {
		t.Errorf("a lost lease was noticed after %v: heartbeats come every %v", took, cfg.Lease/3)
	}
	first.end(first.ctx.Err())
	second := work.next(t)
	if second.job.Attempt != 2 {
		t.Errorf("the attempt after a lost lease is number %d, want 2", second.job.Attempt)
	}
	second.end(nil)
	awaitState(t, c, id, queue.StateSucceeded)
}

// A healthy worker keeps a job for as long as the handler needs.
func TestLease_renewedWhileTheHandlerRuns(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	cfg := one("a")
	cfg.Lease = shortLease
	w := newWorker(t, c, cfg)
	work := handle(t, workType, w)
	id := accept(t, c, queue.Request{MaxAttempts: 1})
	start(t, w)
	first := work.next(t)
	until := pgtest.Clock(t, pool).Add(5 * shortLease / 2)
	pgtest.Await(t, "the lease to be renewed past two and a half times its length", func() bool {
		maintain(t, c)
		return pgtest.Scan[time.Time](t, pool, `SELECT coalesce(max(lease_until), clock_timestamp()) FROM onceq.running`).After(until.Add(shortLease/2)) || first.ctx.Err() != nil
	})
	first.wantAlive(t, "a healthy worker renews its leases")
	first.end(nil)
	if job := awaitState(t, c, id, queue.StateSucceeded); job.Attempt != 1 {
		t.Errorf("a healthy worker's job needed %d attempts", job.Attempt)
	}
}

// Heartbeats that fail lose nothing as long as one succeeds in time.
func TestLease_failedHeartbeatAloneLosesNothing(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(*link){"connections break": (*link).sever, "nothing gets through": (*link).hold} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := pgtest.New(t)
			pool, way := linked(t, direct)
			c, watch := newClient(t, pool, queue.Config{}), newClient(t, direct, queue.Config{})
			cfg := one("a")
			cfg.Lease = 4 * shortLease
			w := newWorker(t, c, cfg)
			work := handle(t, workType, w)
			id := accept(t, watch, queue.Request{MaxAttempts: 1})
			start(t, w)
			first := work.next(t)
			lease := `SELECT lease_until FROM onceq.running`
			before := pgtest.Scan[time.Time](t, direct, lease)
			pgtest.Await(t, "a first heartbeat", func() bool { return pgtest.Scan[time.Time](t, direct, lease).After(before) })
			before = pgtest.Scan[time.Time](t, direct, lease)
			disturb(way)
			pgtest.AwaitClock(t, direct, before.Add(-11*shortLease/5)) // a heartbeat was due in this time
			way.restore()
			pgtest.Await(t, "a heartbeat after the disturbance", func() bool {
				return pgtest.Scan[time.Time](t, direct, lease).After(before) || first.ctx.Err() != nil
			})
			first.wantAlive(t, "a failed heartbeat is not a lost lease")
			first.end(nil)
			awaitState(t, watch, id, queue.StateSucceeded)
		})
	}
}

// Without heartbeats the handler is told when the lease is over, no matter
// whether PostgreSQL can be reached.
func TestLease_lapsesOnTheWorkersOwnClock(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(*link){"connections break": (*link).sever, "nothing gets through": (*link).hold} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := pgtest.New(t)
			pool, way := linked(t, direct)
			c, watch := newClient(t, pool, queue.Config{}), newClient(t, direct, queue.Config{})
			cfg := one("a")
			cfg.Lease = 2 * shortLease
			w := newWorker(t, c, cfg)
			work := handle(t, workType, w)
			id := accept(t, watch, queue.Request{})
			start(t, w)
			first := work.next(t)
			ended := make(chan time.Time, 1) // PostgreSQL and this process have one clock
			context.AfterFunc(first.ctx, func() { ended <- time.Now() })
			disturb(way)
			first.wantCause(t, queue.ErrLeaseLost)
			until, now := pgtest.Scan[time.Time](t, direct, `SELECT lease_until FROM onceq.running`), awaitClosed(t, "the end of the context", ended)
			if early := until.Sub(now); early > 7*shortLease/10 {
				t.Errorf("the handler was stopped %v before its lease of %v was over", early, cfg.Lease)
			}
			if late := now.Sub(until); late > shortLease {
				t.Errorf("the handler went on for %v after its lease was over: another worker may run the job by then", late)
			}
			first.end(first.ctx.Err())
			way.restore()
			second := work.next(t)
			if second.job.ID != id || second.job.Attempt != 2 {
				t.Errorf("after the way is free again, attempt %d of job %s runs, want 2 of %s", second.job.Attempt, second.job.ID, id)
			}
			second.end(nil)
			awaitState(t, watch, id, queue.StateSucceeded)
		})
	}
}
