//go:build unix

package crashtest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

const (
	// staleLease is short, so that what is sent under it is soon late, and long
	// enough for a claim and a heartbeat on a machine that stands still for a while.
	staleLease = 6 * time.Second
	// pausedLease is one that a worker also has to keep, with the machine busy.
	pausedLease = 6 * time.Second
)

// A worker is paused past its lease and wakes up when its job is another's: it
// can neither complete, fail, checkpoint nor renew it. The second run is the one
// that is recorded.
func TestWorker_paused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		act  act
		said string // to the stale attempt, while the second runs
	}{
		{complete, "ok"}, // what the handler returns goes nowhere
		{fail, "ok"},
		{checkpoint, "lease lost"},
		{checkpointTx, "lease lost"},
		{completeTx, "lease lost"},
	} {
		t.Run(string(tt.act)+" while the second run is under way", func(t *testing.T) {
			t.Parallel()
			d := newDuel(t, tt.act)
			d.first.resume(t)
			d.permit(t, 1)
			if said := d.reported(t, 1); said != tt.said {
				t.Errorf("the stale attempt was told %q, want %q", said, tt.said)
			}
			d.settled(t)
			if !d.owns(t, "second") {
				t.Error("the second attempt lost its lease to a stale one")
			}
			d.permit(t, d.next)
			if said := d.reported(t, d.next); said != "ok" {
				t.Errorf("the second attempt was told %q", said)
			}
			d.wantSecond(t)
		})
		t.Run(string(tt.act)+" after the second run", func(t *testing.T) {
			t.Parallel()
			d := newDuel(t, tt.act)
			d.permit(t, d.next)
			awaitRow(t, d.pool, "the second run to be recorded", `SELECT FROM onceq.finished WHERE job_id = $1`, string(d.id))
			d.second.stop(t)
			d.first.resume(t)
			d.permit(t, 1)
			said := d.reported(t, 1)
			if saved := (tt.act == checkpoint || tt.act == checkpointTx) && said == "ok"; said != tt.said && !saved { // it may read what the second saved
				t.Errorf("the stale attempt was told %q, want %q", said, tt.said)
			}
			d.settled(t)
			d.wantSecond(t)
		})
	}

	t.Run("a stale heartbeat renews nothing", func(t *testing.T) {
		t.Parallel()
		d := newDuel(t, wait)
		d.second.pause(t)
		until := pgtest.Scan[time.Time](t, d.pool, `SELECT lease_until FROM onceq.running WHERE job_id = $1`, string(d.id))
		d.first.resume(t)
		if said := d.reported(t, 1); said != "lease lost" {
			t.Errorf("the stale attempt's context ended with %q, want a lost lease", said)
		}
		// The first worker goes on with whatever heartbeats it has, and takes the
		// job back only when the second worker's lease has run out.
		awaitRow(t, d.pool, "a third attempt", `SELECT FROM started WHERE job_id = $1 AND attempt > $3 AND worker = 'first' AND at >= $2`, string(d.id), until, d.next)
		if early := pgtest.Scan[int](t, d.pool, `SELECT count(*) FROM onceq.event WHERE job_id = $1 AND attempt = $3 AND kind = 'lease_expired' AND at < $2`, string(d.id), until, d.next); early != 0 {
			t.Error("the second attempt's lease ended early")
		}
	})
}

// Two attempts of one job meet in one process when a worker that was away takes
// its own job back. Only the fence tells them apart.
func TestWorker_pausedAndItsOwnSuccessor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		act  act
		said string
	}{{complete, "ok"}, {fail, "ok"}, {checkpoint, "lease lost"}, {checkpointTx, "lease lost"}, {completeTx, "lease lost"}} {
		t.Run(string(tt.act), func(t *testing.T) {
			t.Parallel()
			d := &duel{pool: pgtest.New(t), act: tt.act}
			makeTables(t, d.pool)
			d.c = newClient(t, d.pool)
			d.first = start(t, spec{URL: d.pool.Config().ConnString(), ID: "second", Lease: pausedLease, Handlers: 2})
			d.id = enqueue(t, d.c, queue.Request{Type: staleType, Payload: staleWork{Act: tt.act}})
			d.began(t, 1)
			d.first.pause(t)
			d.lapse(t)
			d.first.resume(t)
			d.followed(t)
			d.permit(t, 1)
			if said := d.reported(t, 1); said != tt.said {
				t.Errorf("the stale attempt was told %q, want %q", said, tt.said)
			}
			// Another job of the same worker ends after what the stale attempt returned.
			d.settled(t)
			if !d.owns(t, "second") {
				t.Error("the second attempt lost its lease to a stale one")
			}
			d.permit(t, d.next)
			d.wantSecond(t)
		})
	}
}

// duel is a job that the first worker, paused, still believes to be its own,
// while the second runs it.
type duel struct {
	pool          *pgxpool.Pool
	c             *queue.Client
	act           act
	id            queue.JobID
	first, second *process
	next          int // the number of the attempt that runs beside the stale one
}

func newDuel(t *testing.T, act act) *duel {
	t.Helper()
	d := &duel{pool: pgtest.New(t), act: act}
	makeTables(t, d.pool)
	d.c = newClient(t, d.pool)
	s := spec{URL: d.pool.Config().ConnString(), ID: "first", Lease: pausedLease, Handlers: 1}
	d.first = start(t, s)
	d.id = enqueue(t, d.c, queue.Request{Type: staleType, Payload: staleWork{Act: act}})
	d.began(t, 1)
	d.first.pause(t)
	s.ID = "second"
	d.second = start(t, s)
	d.followed(t)
	return d
}

// began waits for an attempt's handler.
func (d *duel) began(t *testing.T, attempt int) {
	t.Helper()
	awaitRow(t, d.pool, "an attempt to begin", `SELECT FROM started WHERE job_id = $1 AND attempt = $2`, string(d.id), attempt)
}

// followed waits for the attempt that follows the stale one. It is the second,
// mostly: a process that is stopped while a claim is on its way may lose the
// answer, and with it an attempt.
func (d *duel) followed(t *testing.T) {
	t.Helper()
	awaitRow(t, d.pool, "another attempt to begin", `SELECT FROM started WHERE job_id = $1 AND attempt > 1`, string(d.id))
	d.next = pgtest.Scan[int](t, d.pool, `SELECT min(attempt) FROM started WHERE job_id = $1 AND attempt > 1`, string(d.id))
}

// lapse waits until the lease has run out by PostgreSQL's clock.
func (d *duel) lapse(t *testing.T) {
	t.Helper()
	awaitRow(t, d.pool, "the lease to run out", `SELECT FROM onceq.running WHERE job_id = $1 AND lease_until < clock_timestamp()`, string(d.id))
}

func (d *duel) permit(t *testing.T, attempt int) {
	t.Helper()
	pgtest.Exec(t, d.pool, `INSERT INTO permit (job_id, attempt) VALUES ($1, $2)`, string(d.id), attempt)
}

// reported waits for what an attempt was told and returns it.
func (d *duel) reported(t *testing.T, attempt int) string {
	t.Helper()
	awaitRow(t, d.pool, "an attempt's report", `SELECT FROM report WHERE job_id = $1 AND attempt = $2`, string(d.id), attempt)
	return pgtest.Scan[string](t, d.pool, `SELECT said FROM report WHERE job_id = $1 AND attempt = $2`, string(d.id), attempt)
}

// settled waits until the first worker has done with the stale attempt: it has a
// free handler again, and sends completions in order.
func (d *duel) settled(t *testing.T) {
	t.Helper()
	marker := enqueue(t, d.c, queue.Request{Type: flowType, Payload: flowWork{How: inNoTransaction}})
	awaitRow(t, d.pool, "another job of the first worker to succeed",
		`SELECT FROM onceq.finished WHERE job_id = $1 AND worker_id = $2`, string(marker), d.first.id)
}

// owns tells whether the attempt that follows the stale one holds the job under a
// lease.
func (d *duel) owns(t *testing.T, worker string) bool {
	t.Helper()
	return pgtest.Scan[bool](t, d.pool, `SELECT EXISTS (SELECT FROM onceq.running
		WHERE job_id = $1 AND attempt = $2 AND fence = $2 AND worker_id = $3 AND lease_until > clock_timestamp())`, string(d.id), d.next, worker)
}

// wantSecond wants the second run, and nothing of the first but its lost lease,
// to be recorded.
func (d *duel) wantSecond(t *testing.T) {
	t.Helper()
	awaitIdle(t, d.pool)
	job, err := d.c.Job(t.Context(), d.id)
	if err != nil {
		t.Fatal(err)
	}
	if job.State != queue.StateSucceeded || job.Attempt != d.next || job.WorkerID != "second" || job.LastError != "" {
		t.Errorf("recorded is %s by attempt %d of %q with error %q, want the success of the one that followed", job.State, job.Attempt, job.WorkerID, job.LastError)
	}
	events, err := d.c.Events(t.Context(), d.id)
	if err != nil {
		t.Fatal(err)
	}
	want := []queue.EventKind{queue.EventAccepted}
	for range d.next - 1 {
		want = append(want, queue.EventClaimed, queue.EventLeaseExpired)
	}
	want = append(want, queue.EventClaimed)
	if d.act == checkpoint || d.act == checkpointTx {
		want = append(want, queue.EventCheckpointSaved)
		if got := pgtest.Scan[int](t, d.pool, `SELECT (value::text)::int FROM onceq.checkpoint WHERE job_id = $1`, string(d.id)); got != d.next {
			t.Errorf("the checkpoint holds the value of attempt %d, want that of %d", got, d.next)
		}
	}
	want = append(want, queue.EventSucceeded)
	var got []queue.EventKind
	for _, e := range events {
		got = append(got, e.Kind)
		if e.Kind == queue.EventCheckpointSaved && e.Attempt != d.next {
			t.Errorf("attempt %d saved a checkpoint", e.Attempt)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the timeline (-want +got):\n%s", diff)
	}
	if n := pgtest.Scan[int](t, d.pool, `SELECT count(*) FROM effect WHERE job_id = $1 AND attempt <> $2`, string(d.id), d.next); n != 0 {
		t.Error("an effect in the transaction of the stale attempt was committed")
	}
}
