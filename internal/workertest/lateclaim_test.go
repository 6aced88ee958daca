package workertest_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// lateLease is long beside what is left of it when a claim that took a third
// comes back.
const lateLease = 3 * shortLease

// lateClaim is a claim whose answer is on its way until arrive is called.
type lateClaim struct {
	pool   *pgxpool.Pool
	watch  *queue.Client
	id     queue.JobID
	work   *calls // of worker a, whose claim it is
	arrive func()
}

// newLateClaim returns with a third of the lease gone.
func newLateClaim(t *testing.T, cut bool) *lateClaim {
	t.Helper()
	l := &lateClaim{pool: pgtest.New(t)}
	l.watch = newClient(t, l.pool, queue.Config{})
	claims := &turnstile{name: "ClaimPlain", answers: true}
	claims.armed.Store(true)
	l.arrive = claims.open
	traced := guarded(t, l.pool, claims)
	if cut {
		traced = pgtest.Reconnect(t, l.pool, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = noHeartbeats{claims} })
	}
	w := newWorker(t, newClient(t, traced, queue.Config{}), queue.WorkerConfig{ID: "a", Lease: lateLease, Queues: map[string]int{"default": 2}})
	l.work = handle(t, workType, w)
	l.id = accept(t, l.watch, queue.Request{})
	start(t, w)
	t.Cleanup(l.arrive) // before the worker's stop waits for it
	awaitClosed(t, "the claim to be answered", claims.came)
	pgtest.AwaitClock(t, l.pool, pgtest.Scan[time.Time](t, l.pool, `SELECT claimed_at FROM onceq.running`).Add(lateLease/3))
	return l
}

// noHeartbeats cuts heartbeats off.
type noHeartbeats struct{ *turnstile }

func (n noHeartbeats) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	ctx = n.turnstile.TraceQueryStart(ctx, conn, data)
	if strings.HasPrefix(data.SQL, "-- name: RenewLeases ") {
		cut, cancel := context.WithCancel(ctx)
		cancel()
		return cut
	}
	return ctx
}

// renewed tells whether a lease reaches further than its claim gave it.
func (l *lateClaim) renewed(t *testing.T) bool {
	t.Helper()
	return pgtest.Scan[bool](t, l.pool, `SELECT lease_until > claimed_at + $1 * interval '1 microsecond' FROM onceq.running WHERE job_id = $2`, lateLease.Microseconds(), string(l.id))
}

// A job must not begin on what a slow claim has left of its lease: it would lose
// it with the first heartbeat that is slow too.
func TestLateClaim_beginsOnAWholeLease(t *testing.T) {
	t.Parallel()
	l := newLateClaim(t, false)
	if l.renewed(t) {
		t.Fatal("the lease was renewed before the worker knew of it")
	}
	l.arrive()
	first := l.work.next(t)
	if !l.renewed(t) {
		t.Error("a job began a third of a lease after its claim, and its lease was not renewed before")
	}
	first.end(nil)
	awaitState(t, l.watch, l.id, queue.StateSucceeded)
}

// What was taken back in the meantime does not begin.
func TestLateClaim_leavesWhatIsLost(t *testing.T) {
	t.Parallel()
	l := newLateClaim(t, false)
	b := newWorker(t, l.watch, calm("b"))
	ofB := handle(t, workType, b)
	reclaim(t, l.pool, l.watch, l.id)
	start(t, b)
	second := ofB.next(t)
	l.arrive()
	// It would begin before a job that is claimed after it.
	other := accept(t, l.watch, queue.Request{})
	got := l.work.next(t)
	if got.job.ID != other {
		t.Errorf("attempt %d of the job that was taken back began, beside its attempt %d", got.job.Attempt, second.job.Attempt)
	}
	got.end(nil)
	second.end(nil)
	if job := awaitState(t, l.watch, l.id, queue.StateSucceeded); job.Attempt != 2 || job.WorkerID != "b" {
		t.Errorf("attempt %d of worker %q was recorded, want 2 of b", job.Attempt, job.WorkerID)
	}
}

// A lease that could not be renewed is still a lease: the attempt is spent either
// way, so its job begins.
func TestLateClaim_beginsOnWhatIsLeft(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cut    bool // heartbeats
		locked bool // the lease's row
	}{"its row is locked": {locked: true}, "heartbeats fail": {cut: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLateClaim(t, tt.cut)
			tx, err := l.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			if tt.locked {
				if _, err := tx.Exec(t.Context(), `SELECT FROM onceq.running FOR UPDATE`); err != nil {
					t.Fatal(err)
				}
			}
			l.arrive()
			first := l.work.next(t)
			if first.job.Attempt != 1 {
				t.Errorf("attempt %d began, want the first", first.job.Attempt)
			}
			if l.renewed(t) {
				t.Error("the test is weak: the lease was renewed")
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			first.end(nil)
			awaitState(t, l.watch, l.id, queue.StateSucceeded)
		})
	}
}

// The wait for a connection is no part of the time that a claim has. One that is
// given up in the middle may leave its jobs leased to nobody.
func TestLateClaim_hasItsWholeTime(t *testing.T) {
	t.Parallel()
	direct := pgtest.New(t)
	pool, way := linked(t, direct)
	var late atomic.Bool
	came, gate := make(chan struct{}, 100), make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	slow := pgtest.Reconnect(t, pool, func(cfg *pgxpool.Config) {
		cfg.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
			if late.Load() {
				came <- struct{}{}
				<-gate
			}
			return nil
		}
	})
	cfg, log := logged()
	watch := newClient(t, direct, queue.Config{})
	w := newWorker(t, newClient(t, slow, cfg), queue.WorkerConfig{ID: "a", Lease: lateLease})
	work := handle(t, workType, w)
	first := accept(t, watch, queue.Request{})
	start(t, w)
	work.next(t).end(nil)
	awaitState(t, watch, first, queue.StateSucceeded)

	late.Store(true)
	way.sever()
	way.restore()
	awaitClosed(t, "a connection to be made anew", came)
	began := pgtest.Clock(t, direct)
	tx, err := direct.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `LOCK onceq.running IN SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	id := accept(t, watch, queue.Request{})
	pgtest.AwaitClock(t, direct, began.Add(lateLease*2/3))
	open()
	pgtest.AwaitClock(t, direct, began.Add(lateLease*4/3))
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	work.next(t).end(nil)
	awaitState(t, watch, id, queue.StateSucceeded)
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "claim failed") && strings.Contains(line, "deadline") {
			t.Errorf("a claim was given up before its time was over, counted from when it had a connection: %s", line)
		}
	}
}
