package workertest_test

import (
	"context"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// How late jobs are is measured in bench/. Here is what makes them start: where
// only one thing does, a job that starts tells that it works.

// TestStart_scheduledJobs has workers that look by the clock once an hour.
func TestStart_scheduledJobs(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]queue.Config{"with notifications": {}, "polling only": {PollOnly: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			c := newClient(t, pool, cfg)
			at := pgtest.Clock(t, pool).Add(time.Second)
			var reqs []queue.Request
			for range 100 {
				at = at.Add(17 * time.Millisecond)
				reqs = append(reqs, queue.Request{Type: workType, RunAt: at})
			}
			ids := acceptMany(t, c, reqs)
			w := newWorker(t, c, queue.WorkerConfig{PollInterval: time.Hour})
			begun := make(chan queue.JobID, len(reqs))
			queue.Handle(w, workType, func(_ context.Context, job *queue.Job[any]) error {
				begun <- job.ID
				return nil
			})
			start(t, w)
			for range reqs {
				awaitClosed(t, "the next scheduled job to start when it is due", begun)
			}
			for i, id := range ids {
				awaitState(t, c, id, queue.StateSucceeded)
				if claimed := pgtest.Scan[time.Time](t, pool, `SELECT claimed_at FROM onceq.finished WHERE job_id = $1`, string(id)); claimed.Before(reqs[i].RunAt) {
					t.Errorf("job %d was claimed %v too early", i, reqs[i].RunAt.Sub(claimed))
				}
			}
		})
	}
}

// TestStart_readyJobs has an idle worker that only one of its ways can tell of a job.
func TestStart_readyJobs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		cfg  queue.Config
		poll time.Duration
	}{
		{"notifications wake it up", queue.Config{}, time.Hour},
		{"polling finds them", queue.Config{PollOnly: true}, 20 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			c := newClient(t, pool, tt.cfg)
			w := newWorker(t, c, queue.WorkerConfig{PollInterval: tt.poll})
			work := handle(t, workType, w)
			start(t, w)
			for range 60 {
				id := accept(t, c, queue.Request{})
				got := work.next(t)
				if got.job.ID != id {
					t.Errorf("job %s was started, want %s", got.job.ID, id)
				}
				got.end(nil)
			}
		})
	}
}
