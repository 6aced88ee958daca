//go:build unix

package crashtest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// ownerWrite is what only the owner of a job may write, with a handler that makes
// a worker send it.
type ownerWrite struct {
	name    string
	handler queue.Handler[any]
	drain   bool // the worker must be asked to stop
	frees   bool // its success frees the job's key
}

var ownerWrites = []ownerWrite{
	{name: "CompletePlain", handler: func(context.Context, *queue.Job[any]) error { return nil }},
	{name: "CompleteJobs", frees: true, handler: func(context.Context, *queue.Job[any]) error { return nil }},
	{name: "FailJob", handler: func(context.Context, *queue.Job[any]) error { return errors.New("no") }},
	{name: "ReleaseJobs", drain: true, handler: untilEnd},
	{name: "RenewLeases", handler: untilEnd},
	{name: "SaveCheckpoint", handler: func(ctx context.Context, job *queue.Job[any]) error {
		_, err := queue.Checkpoint(ctx, job, "stage", func(context.Context) (int, error) { return 1, nil })
		return err
	}},
}

func untilEnd(ctx context.Context, _ *queue.Job[any]) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// An owner's write that is late, as if it had been on its way while the lease
// ran out, finds PostgreSQL's clock and the fence against it and changes nothing.
// The writes are those that a worker really sent, held up on the way.
func TestOwnerWrite_late(t *testing.T) {
	t.Parallel()
	for _, tt := range ownerWrites {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLetter(t, staleLease, tt)
			l.lapse(t)
			l.wantNothing(t, "the lease has run out and nobody has taken the job back")
			end := l.takeBack(t, "other")
			l.wantNothing(t, "another worker runs the job")
			end()
			l.wantNothing(t, "another worker has ended the job")
		})
		t.Run(tt.name+" meets its own successor", func(t *testing.T) {
			t.Parallel()
			l := newLetter(t, staleLease, tt)
			l.lapse(t)
			end := l.takeBack(t, "sender")
			l.wantNothing(t, "the same worker runs the job again")
			end()
		})
		if tt.name == "RenewLeases" {
			continue // It passes by what is locked.
		}
		t.Run(tt.name+" waits for a lock while the lease runs out", func(t *testing.T) {
			t.Parallel()
			l := newLetter(t, 8*time.Second, tt)
			l.wantClockAfterLock(t)
		})
	}
}

// A success whose statement waits for its row until the lease has run out is not
// recorded, and the job runs again.
func TestWorker_completionWaitsTooLong(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	watched, tap := tapped(t, pool, "TakeUpkeep") // maintenance could take the job back before the completion asks again
	c := newClient(t, watched)
	w := newWorker(t, c, queue.WorkerConfig{Lease: time.Hour}) // of which the handler takes most away
	holding := make(chan pgx.Tx, 1)
	queue.Handle(w, "late", func(ctx context.Context, job *queue.Job[any]) error {
		if job.Attempt > 1 {
			return nil
		}
		if _, err := pool.Exec(ctx, `UPDATE onceq.running SET lease_until = clock_timestamp() + interval '5 seconds'`); err != nil {
			return err
		}
		tx, err := pool.Begin(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `SELECT FROM onceq.running FOR UPDATE`)
		holding <- tx
		return err
	})
	stop := run(t, w)
	defer stop()
	id := enqueue(t, c, queue.Request{Type: "late"})
	tx := <-holding
	defer func() { _ = tx.Rollback(context.Background()) }()
	awaitRow(t, pool, "the completion to wait", `SELECT FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%CompletePlain%'`)
	awaitRow(t, pool, "the lease to run out", `SELECT FROM onceq.running WHERE lease_until < clock_timestamp()`)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	tap.await(t, "CompleteJobs") // what CompletePlain could not record is asked for again
	if _, err := newClient(t, pool).Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitRow(t, pool, "the second attempt to succeed", `SELECT FROM onceq.finished WHERE job_id = $1 AND state = 1 AND attempt = 2`, string(id))
}

// letter is an owner's write that has not arrived.
type letter struct {
	pool *pgxpool.Pool
	c    *queue.Client
	id   queue.JobID
	sent sent
	stop func() // the sender
}

func newLetter(t *testing.T, lease time.Duration, write ownerWrite) *letter {
	t.Helper()
	l := &letter{pool: pgtest.New(t)}
	l.c = newClient(t, l.pool)
	// TakeUpkeep begins the worker's maintenance, which would take the job back.
	pool, tap := tapped(t, l.pool, "CompletePlain", "CompleteJobs", "FailJob", "ReleaseJobs", "RenewLeases", "SaveCheckpoint", "TakeUpkeep")
	// Asked to stop, it hands its job back at once.
	w := newWorker(t, newClient(t, pool), queue.WorkerConfig{ID: "sender", Lease: lease, ShutdownTimeout: 1})
	queue.Handle(w, "late", write.handler)
	l.stop = run(t, w)
	request := queue.Request{Type: "late"}
	if write.frees {
		request.Admission = queue.Idempotency{Key: "key", TTL: time.Hour, Release: queue.ReleaseFinished}
	}
	l.id = enqueue(t, l.c, request)
	if write.drain {
		awaitRow(t, l.pool, "the job to run", `SELECT FROM onceq.running WHERE job_id = $1`, string(l.id))
		go l.stop()
	}
	l.sent = tap.await(t, write.name)
	return l
}

func (l *letter) lapse(t *testing.T) {
	t.Helper()
	awaitRow(t, l.pool, "the lease to run out", `SELECT FROM onceq.running WHERE job_id = $1 AND lease_until < clock_timestamp()`, string(l.id))
}

// takeBack lets a worker of that name run the job again, until the function that
// it returns is called. It sends no heartbeat in that time.
func (l *letter) takeBack(t *testing.T, worker string) (end func()) {
	t.Helper()
	l.stop()
	if _, err := l.c.Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	began, release := make(chan struct{}, 1), make(chan struct{})
	w := newWorker(t, l.c, queue.WorkerConfig{ID: worker, Lease: time.Hour})
	queue.Handle(w, "late", func(ctx context.Context, job *queue.Job[any]) error {
		began <- struct{}{}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	stop := run(t, w)
	select {
	case <-began:
	case <-time.After(pgtest.Patience):
		t.Fatal("the job was not taken back")
	}
	return func() {
		close(release)
		awaitRow(t, l.pool, "the job to end", `SELECT FROM onceq.finished WHERE job_id = $1 AND state = 1 AND attempt = 2`, string(l.id))
		stop()
	}
}

// wantNothing delivers the write, in a transaction that is then rolled back, and
// wants no row to differ.
func (l *letter) wantNothing(t *testing.T, when string) {
	t.Helper()
	tx, err := l.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	before := rowsOfJobs(t, tx)
	if err := l.deliver(tx); err != nil {
		t.Fatalf("%s, when %s: %v", l.sent.name, when, err)
	}
	if diff := cmp.Diff(before, rowsOfJobs(t, tx)); diff != "" {
		t.Errorf("%s that comes when %s changes (-before +after):\n%s", l.sent.name, when, diff)
	}
}

// wantClockAfterLock delivers the write in time, but to a row that is locked
// until after the lease.
func (l *letter) wantClockAfterLock(t *testing.T) {
	t.Helper()
	tx, err := l.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	before := rowsOfJobs(t, tx)
	pgtest.Exec(t, tx, `SELECT FROM onceq.running FOR UPDATE`)
	delivered := make(chan error, 1)
	go func() { delivered <- l.deliver(l.pool) }()
	pgtest.AwaitBlocked(t, l.pool, 1)
	if !pgtest.Scan[bool](t, tx, `SELECT lease_until > clock_timestamp() FROM onceq.running`) {
		t.Fatal("the lease ran out before the write was there: the machine is too slow for this test")
	}
	l.lapse(t)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	// CompletePlain has deleted the row when it finds out, so it refuses itself.
	if err := <-delivered; (err != nil) != (l.sent.name == "CompletePlain") || err != nil && !strings.Contains(err.Error(), "asks again") {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, rowsOfJobs(t, l.pool)); diff != "" {
		t.Errorf("%s that got the lock after the lease had run out changes (-before +after):\n%s", l.sent.name, diff)
	}
}

func (l *letter) deliver(q pgtest.Querier) error {
	rows, err := q.Query(context.Background(), l.sent.sql, l.sent.args...)
	if err != nil {
		return err
	}
	rows.Close()
	return rows.Err()
}

// rowsOfJobs is every row that tells where jobs stand, line by line.
func rowsOfJobs(t *testing.T, q pgtest.Querier) []string {
	t.Helper()
	return strings.Split(pgtest.Scan[string](t, q, `SELECT jsonb_pretty(jsonb_build_object(
		'running', (SELECT jsonb_agg(r ORDER BY r.job_id) FROM onceq.running AS r),
		'pending', (SELECT jsonb_agg(p ORDER BY p.job_id) FROM onceq.pending AS p),
		'finished', (SELECT jsonb_agg(f ORDER BY f.job_id) FROM onceq.finished AS f),
		'binding', (SELECT jsonb_agg(b ORDER BY b.key_hash) FROM onceq.binding AS b),
		'checkpoint', (SELECT jsonb_agg(c ORDER BY c.job_id) FROM onceq.checkpoint AS c),
		'event', (SELECT jsonb_agg(e ORDER BY e.at, e.id) FROM onceq.event AS e)))`), "\n")
}
