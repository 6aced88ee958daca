package workertest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

func TestCancel_waitingJobs(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	work := handle(t, workType, w)
	key := func(name string) queue.Admission { return queue.Idempotency{Key: name} }
	reqs := map[string]queue.Request{
		"ready":             {Type: workType, Admission: key("ready")},
		"scheduled":         {Type: workType, RunAt: time.Now().Add(time.Hour), Admission: key("scheduled")},
		"waiting for retry": {Type: workType, Retry: queue.Fixed{Delay: time.Hour}, Admission: key("retry")},
		"with everything": {Type: workType, Priority: 9, Deadline: time.Now().Add(time.Hour), ConcurrencyKey: "ck", Queue: "side",
			Admission: queue.Throttle{Key: "throttle", Window: time.Hour}},
	}
	ids := map[string]queue.JobID{"waiting for retry": accept(t, c, reqs["waiting for retry"])}
	start(t, w)
	work.next(t).end(errNotYet)
	awaitState(t, c, ids["waiting for retry"], queue.StateScheduled)
	accept(t, c, queue.Request{})
	defer work.next(t).end(nil) // keeps the worker busy
	for _, name := range []string{"scheduled", "ready", "with everything"} {
		ids[name] = accept(t, c, reqs[name])
	}
	for name, req := range reqs {
		id := ids[name]
		attempt := info(t, c, id).Attempt
		cancel(t, c, id, queue.CancelledNow)
		job := info(t, c, id)
		if job.State != queue.StateCancelled || job.FinishedAt.IsZero() || job.Attempt != attempt {
			t.Errorf("%s: after the cancel the job is %s, attempt %d, finished %v", name, job.State, job.Attempt, job.FinishedAt)
		}
		cancel(t, c, id, queue.CancelTooLate)
		if n := count(t, c, id, queue.EventCancelled); n != 1 {
			t.Errorf("%s: the timeline tells of %d cancellations", name, n)
		}
		outcome := queue.OutcomeReplayed
		if name == "with everything" {
			outcome = queue.OutcomeCoalesced
		}
		wantAnswer(t, c, req, queue.Result{JobID: id, Outcome: outcome, Dead: true})
	}
}

func TestCancel_aReadyJobIsNotStarted(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	cancelled, other := accept(t, c, queue.Request{}), accept(t, c, queue.Request{})
	cancel(t, c, cancelled, queue.CancelledNow)
	w := newWorker(t, c, one("a"))
	work := handle(t, workType, w)
	start(t, w)
	if got := work.next(t); got.job.ID != other {
		t.Errorf("the cancelled job was started")
	} else {
		got.end(nil)
	}
	wantKinds(t, c, cancelled, queue.EventAccepted, queue.EventCancelled)
}

func TestCancel_endedAndUnknownJobs(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	work := handle(t, workType, w)
	start(t, w)
	for want, result := range map[queue.State]error{queue.StateSucceeded: nil, queue.StateDead: queue.Permanent(errNotYet)} {
		id := accept(t, c, queue.Request{})
		work.next(t).end(result)
		awaitState(t, c, id, want)
		cancel(t, c, id, queue.CancelTooLate)
		awaitState(t, c, id, want)
	}
	for _, id := range []queue.JobID{"", "nonsense", "018f0000-0000-7000-8000-000000000000"} {
		cancel(t, c, id, queue.CancelNotFound)
	}
	id := accept(t, c, queue.Request{})
	defer work.next(t).end(nil)
	for _, reason := range []string{"", strings.Repeat("ü", 2001), "\xff", "a\x00b"} {
		_, err := c.Cancel(t.Context(), id, reason)
		wantInvalid(t, err, fmt.Sprintf("reason %.20q", reason))
	}
	if n := count(t, c, id, queue.EventCancelRequested); n != 0 {
		t.Errorf("refused cancels were recorded %d times", n)
	}
	if got, err := c.Cancel(t.Context(), id, strings.Repeat("ü", 2000)); got != queue.CancelRequested || err != nil {
		t.Errorf("a reason of 2,000 characters: (%q, %v)", got, err)
	}
}

// The handler hears of it with the next heartbeat, also without notifications.
func TestCancel_runningJob(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]queue.Config{"with notifications": {}, "polling only": {PollOnly: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			c, remote := newClient(t, pool, cfg), newClient(t, pool, cfg)
			wcfg := one("a")
			wcfg.Lease = 3 * shortLease / 2
			w := newWorker(t, c, wcfg)
			work := handle(t, workType, w)
			req := queue.Request{Type: workType, Retry: queue.Fixed{}, Admission: queue.Idempotency{Key: "k"}}
			id := accept(t, c, req)
			start(t, w)
			first := work.next(t)
			cancel(t, remote, id, queue.CancelRequested)
			first.wantCause(t, queue.ErrCancelled)
			cancel(t, remote, id, queue.CancelRequested)
			if job := info(t, c, id); job.State != queue.StateRunning {
				t.Errorf("until the worker acknowledges the job runs, it is %s", job.State)
			}
			first.end(first.ctx.Err())
			if job := awaitState(t, c, id, queue.StateCancelled); job.Attempt != 1 || job.FinishedAt.IsZero() {
				t.Errorf("cancelled at attempt %d, finished %v", job.Attempt, job.FinishedAt)
			}
			work.none(t, 100*time.Millisecond, "a cancelled job does not run again")
			wantKinds(t, c, id, queue.EventAccepted, queue.EventClaimed, queue.EventCancelRequested, queue.EventCancelled)
			wantAnswer(t, c, req, queue.Result{JobID: id, Outcome: queue.OutcomeReplayed, Dead: true})
		})
	}
}

// However an attempt ends after a cancel was recorded, it is the last, and only
// a success is none.
func TestCancel_runningJobThatEnds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		err  error
		want queue.State
	}{
		{"well", nil, queue.StateSucceeded},
		{"in failure", errNotYet, queue.StateCancelled},
		{"in an early retry", queue.RetryAfter(errNotYet, 0), queue.StateCancelled},
		{"in the end of its budget", queue.Permanent(errNotYet), queue.StateCancelled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			c := newClient(t, pool, queue.Config{})
			w := newWorker(t, c, calm("a")) // no heartbeat tells the handler
			work := handle(t, workType, w)
			id := accept(t, c, queue.Request{Retry: queue.Fixed{}})
			start(t, w)
			first := work.next(t)
			cancel(t, c, id, queue.CancelRequested)
			first.end(tt.err)
			awaitState(t, c, id, tt.want)
			work.none(t, 50*time.Millisecond, "a job that was cancelled does not run again")
		})
	}
	t.Run("well, told by its context", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.New(t)
		c := newClient(t, pool, queue.Config{})
		cfg := one("a")
		cfg.Lease = shortLease
		w := newWorker(t, c, cfg)
		work := handle(t, workType, w)
		req := keyed("k", queue.ReleaseExpiry)
		id := accept(t, c, req)
		start(t, w)
		first := work.next(t)
		cancel(t, c, id, queue.CancelRequested)
		first.wantCause(t, queue.ErrCancelled)
		first.end(nil)
		awaitState(t, c, id, queue.StateSucceeded)
		wantAnswer(t, c, req, queue.Result{JobID: id, Outcome: queue.OutcomeReplayed})
	})
}

// A worker that is gone can't acknowledge; maintenance cancels instead of
// retrying.
func TestCancel_ignoredUntilTheLeaseEnds(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, calm("a"))
	work := handle(t, workType, w)
	req := keyed("k", queue.ReleaseExpiry)
	id := accept(t, c, req)
	start(t, w)
	stuck := work.next(t)
	cancel(t, c, id, queue.CancelRequested)
	maintain(t, c)
	if job := info(t, c, id); job.State != queue.StateRunning {
		t.Errorf("under its lease the job is the worker's, but it is %s", job.State)
	}
	reclaim(t, pool, c, id)
	if job := info(t, c, id); job.State != queue.StateCancelled {
		t.Errorf("after the lease maintenance must cancel, the job is %s", job.State)
	}
	wantKinds(t, c, id, queue.EventAccepted, queue.EventClaimed, queue.EventCancelRequested, queue.EventLeaseExpired, queue.EventCancelled)
	stuck.end(errors.New("late"))
	work.none(t, 50*time.Millisecond, "a cancelled job does not run again")
	wantAnswer(t, c, req, queue.Result{JobID: id, Outcome: queue.OutcomeReplayed, Dead: true})
}

// A job that is handed back at shutdown takes the cancel with it.
func TestCancel_handedBack(t *testing.T) {
	t.Parallel()
	for release, dead := range map[queue.Release]bool{queue.ReleaseExpiry: true, queue.ReleaseDead: false} {
		t.Run(fmt.Sprintf("release %d", release), func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			c := newClient(t, pool, queue.Config{})
			cfg := calm("a")
			cfg.ShutdownTimeout = 10 * time.Millisecond
			w := newWorker(t, c, cfg)
			work := handle(t, workType, w)
			req := keyed("k", release)
			id := accept(t, c, req)
			r := start(t, w)
			first := work.next(t)
			cancel(t, c, id, queue.CancelRequested)
			r.cancel()
			first.cause(t)
			first.end(first.ctx.Err())
			if err := r.stop(t); err != nil {
				t.Error(err)
			}
			if job := info(t, c, id); job.State != queue.StateCancelled {
				t.Errorf("a cancel was answered with %q, and then the job was handed back: it must be cancelled, it is %s", queue.CancelRequested, job.State)
			}
			if dead {
				wantAnswer(t, c, req, queue.Result{JobID: id, Outcome: queue.OutcomeReplayed, Dead: true})
			} else {
				wantAnswer(t, c, req, queue.Result{Outcome: queue.OutcomeAccepted})
			}
		})
	}
}

// Cancels and claims at once: every job is either cancelled and never run, or
// asked to stop.
func TestCancel_againstClaims(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{Queues: map[string]int{"default": 20}})
	started := recorded(w)
	start(t, w)
	now := 0
	for i := range 200 {
		id := accept(t, c, named(fmt.Sprint(i)))
		status, err := c.Cancel(t.Context(), id, "race")
		if err != nil {
			t.Fatalf("cancel against a claim: %v", err)
		}
		var job queue.JobInfo
		pgtest.Await(t, "the job to end", func() bool { job = info(t, c, id); return ended(job.State) })
		if status == queue.CancelledNow {
			now++
			if job.State != queue.StateCancelled || job.Attempt != 0 {
				t.Errorf("cancelled at once, and then the job is %s after %d attempts", job.State, job.Attempt)
			}
		}
	}
	if n := len(started.names()); n != 200-now {
		t.Errorf("%d jobs were cancelled before they ran, and %d of 200 ran", now, n)
	}
}
