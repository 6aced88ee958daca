package workertest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

func asConflict(err error, target **queue.EnqueueIdempotencyConflictError) bool {
	return errors.As(err, target)
}

func TestRetention_ofEndedJobs(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		keep                       queue.Retention
		succeeded, dead, cancelled time.Duration
	}{
		"by default": {queue.Retention{}, 7 * day, 30 * day, 30 * day},
		"as asked":   {queue.Retention{Succeeded: time.Hour, Dead: 2 * time.Hour, Cancelled: 3 * time.Hour}, time.Hour, 2 * time.Hour, 3 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			c := newClient(t, pool, queue.Config{Retention: tt.keep})
			w := newWorker(t, c, one("a"))
			work := handle(t, workType, w)
			start(t, w)
			type kept struct {
				id   queue.JobID
				keep bool
				req  queue.Request
			}
			var all []kept
			for state, limit := range map[queue.State]time.Duration{queue.StateSucceeded: tt.succeeded, queue.StateDead: tt.dead, queue.StateCancelled: tt.cancelled} {
				for _, keep := range []bool{true, false} {
					req := keyed(fmt.Sprint(state, keep), queue.ReleaseExpiry)
					req.Admission = queue.Idempotency{Key: fmt.Sprint(state, keep), TTL: 300 * day}
					id := accept(t, c, req)
					got := work.next(t)
					if _, err := queue.Checkpoint(got.ctx, got.job, "stage", func(context.Context) (int, error) { return 1, nil }); err != nil {
						t.Fatal(err)
					}
					switch state {
					case queue.StateSucceeded:
						got.end(nil)
					case queue.StateDead:
						got.end(queue.Permanent(errNotYet))
					default:
						cancel(t, c, id, queue.CancelRequested)
						got.end(errNotYet)
					}
					awaitState(t, c, id, state)
					age := limit + time.Minute
					if keep {
						age = limit - time.Minute
					}
					pgtest.Exec(t, pool, `UPDATE onceq.finished SET finished_at = finished_at - $2::bigint * interval '1 microsecond' WHERE job_id = $1`, string(id), age.Microseconds())
					all = append(all, kept{id, keep, req})
				}
			}
			maintain(t, c)
			for _, k := range all {
				_, err := c.Job(t.Context(), k.id)
				if k.keep && err != nil || !k.keep && !errors.Is(err, queue.ErrJobNotFound) {
					t.Errorf("%s must be kept: %t, but reading it says: %v", k.req.Admission, k.keep, err)
				}
				if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.checkpoint WHERE job_id = $1`, string(k.id)); (n == 1) != k.keep {
					t.Errorf("%s must be kept: %t, and it has %d checkpoints", k.req.Admission, k.keep, n)
				}
				// The key lives on its own.
				got, err := c.EnqueueWithResult(t.Context(), k.req)
				if err != nil || got.JobID != k.id || got.Outcome != queue.OutcomeReplayed {
					t.Errorf("a live key must replay with its job's id, also when the job is gone: (%+v, %v)", got, err)
				}
			}
		})
	}
}

// A key that outlives its job says so in every way, and the job is gone for good.
func TestRetention_ofAJobWhoseKeyLives(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	req := queue.Request{Type: workType, Admission: queue.Idempotency{Key: "k", TTL: 365 * 24 * time.Hour}}
	id := accept(t, c, req)
	cancel(t, c, id, queue.CancelledNow)
	pgtest.Exec(t, pool, `UPDATE onceq.finished SET finished_at = finished_at - interval '31 days'`)
	maintain(t, c)
	wantAnswer(t, c, req, queue.Result{JobID: id, Outcome: queue.OutcomeReplayed, Dead: true})
	cancel(t, c, id, queue.CancelNotFound)
	if _, err := c.Events(t.Context(), id); !errors.Is(err, queue.ErrJobNotFound) {
		t.Errorf("events of a job that is gone: %v, want ErrJobNotFound", err)
	}
	different := req
	different.Payload = "other"
	_, err := c.EnqueueWithResult(t.Context(), different)
	var conflict *queue.EnqueueIdempotencyConflictError
	if !asConflict(err, &conflict) || conflict.JobID != id {
		t.Errorf("a different request under the key: %v, want a conflict with job %s", err, id)
	}
}

func TestRetention_ofBindings(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	var reqs []queue.Request
	for i := range 5000 { // more than one step of a walk
		reqs = append(reqs, keyed(fmt.Sprint(i), queue.ReleaseExpiry))
	}
	acceptMany(t, c, reqs)
	pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp() WHERE get_byte(key_hash, 0) % 2 = 0`)
	live := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.binding WHERE expires_at > clock_timestamp()`)
	maintain(t, c)
	if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.binding`); n != live {
		t.Errorf("%d bindings are left, want the %d live ones", n, live)
	}
	if n := states(t, pool)["waiting"]; n != 5000 {
		t.Errorf("the jobs of expired keys are not touched, but %d of 5,000 wait", n)
	}
}

func TestRetention_ofEvents(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	failing(w, func(int) error { return errNotYet })
	start(t, w)
	old, fresh := accept(t, c, queue.Request{}), accept(t, c, queue.Request{})
	delay(t, c, old)
	delay(t, c, fresh)
	pgtest.Exec(t, pool, `UPDATE onceq.event SET at = at - interval '30 days 1 minute' WHERE job_id = $1`, string(old))
	pgtest.Exec(t, pool, `UPDATE onceq.event SET at = at - interval '29 days 23 hours' WHERE job_id = $1`, string(fresh))
	maintain(t, c)
	if a, b := count(t, c, old, queue.EventRetryScheduled), count(t, c, fresh, queue.EventRetryScheduled); a != 0 || b != 1 {
		t.Errorf("events are kept for 30 days: of one that is older %d are left, of one that is younger %d", a, b)
	}
	if job := info(t, c, old); job.State != queue.StateScheduled || job.Attempt != 1 {
		t.Errorf("the job of old events is untouched, but it is %s, attempt %d", job.State, job.Attempt)
	}
}

// What waits or runs is nothing for retention, however old it is.
func TestRetention_neverOfWhatLives(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{Retention: queue.Retention{Succeeded: time.Millisecond, Dead: time.Millisecond, Cancelled: time.Millisecond, Events: time.Millisecond}})
	w := newWorker(t, c, calm("a"))
	work := handle(t, workType, w)
	accept(t, c, queue.Request{Admission: queue.Idempotency{Key: "running"}})
	start(t, w)
	running := work.next(t)
	if _, err := queue.Checkpoint(running.ctx, running.job, "stage", func(context.Context) (int, error) { return 1, nil }); err != nil {
		t.Fatal(err)
	}
	accept(t, c, queue.Request{Admission: queue.Idempotency{Key: "ready"}})
	accept(t, c, queue.Request{RunAt: time.Now().Add(2 * 365 * 24 * time.Hour), Deadline: time.Now().Add(3 * 365 * 24 * time.Hour)})
	backdate(t, pool, 365*24*time.Hour)
	pgtest.Exec(t, pool, `UPDATE onceq.running SET claimed_at = claimed_at - interval '1 year'`)
	pgtest.Exec(t, pool, `UPDATE onceq.checkpoint SET saved_at = saved_at - interval '1 year'`)
	rows := func() (all []string) {
		for _, table := range []string{"job", "pending", "running", "binding", "checkpoint"} {
			all = append(all, pgtest.List[string](t, pool, `SELECT r.ctid::text || r.xmin::text || r::text FROM onceq.`+table+` AS r ORDER BY 1`)...)
		}
		return all
	}
	before := rows()
	if len(before) != 3+2+1+2+1 {
		t.Fatalf("the test made %d rows", len(before))
	}
	maintain(t, c)
	if diff := cmp.Diff(before, rows()); diff != "" {
		t.Errorf("maintenance has touched what waits or runs (-before +after):\n%s", diff)
	}
	running.end(nil)
	work.next(t).end(nil)
}

// A worker does by itself what Maintain does by hand, several by turns.
func TestMaintenance_runsInEveryWorker(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	a := agedWork(t, pool, c)
	for i := range 2 {
		w := newWorker(t, c, queue.WorkerConfig{ID: fmt.Sprint("w", i), Queues: map[string]int{"elsewhere": 1}})
		handle(t, workType, w)
		start(t, w)
	}
	pgtest.Await(t, "workers to do the maintenance by themselves", func() bool {
		for _, left := range a.left(t) {
			if left {
				return false
			}
		}
		return true
	})
	if job := info(t, c, a.stuck); job.State != queue.StateReady || job.Attempt != 1 {
		t.Errorf("the job of a worker that is gone is %s, attempt %d", job.State, job.Attempt)
	}
	if job := info(t, c, a.late); job.State != queue.StateDead || !strings.Contains(job.LastError, "deadline exceeded") {
		t.Errorf("the job whose deadline passed is %s: %s", job.State, job.LastError)
	}
}

func TestRetention_bounds(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	longest := 3650 * 24 * time.Hour
	newClient(t, pool, queue.Config{Retention: queue.Retention{Succeeded: time.Millisecond, Dead: longest, Cancelled: longest, Events: longest}})
	_, err := queue.New(pool, queue.Config{Retention: queue.Retention{Succeeded: -time.Second, Dead: longest + time.Microsecond, Cancelled: time.Microsecond, Events: longest + time.Hour}})
	wantInvalid(t, err, "a retention out of bounds")
	for _, word := range []string{"Succeeded", "Dead", "Cancelled", "Events"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("a refusal must name every wrong field, %s is not in: %v", word, err)
		}
	}
}
