package workertest_test

import (
	"testing"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// A job can leave its worker while a cancel waits for the lease's row. Then
// "requested" would be a promise that nobody keeps.
func TestCancel_meetsAnAttemptThatEnds(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	id, err := c.Enqueue(t.Context(), queue.Request{Type: "t"})
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, pool, `
		WITH p AS (DELETE FROM onceq.pending RETURNING *)
		INSERT INTO onceq.running (claimed_at, lease_until, job_id, fence, attempt, queue, worker_id)
		SELECT now(), now() + interval '1 minute', p.job_id, p.fence + 1, p.attempt + 1, p.queue, 'w' FROM p`)

	ending, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ending.Rollback(t.Context())
	if _, err := ending.Exec(t.Context(), `
		WITH r AS (DELETE FROM onceq.running RETURNING *)
		INSERT INTO onceq.pending (ready_at, job_id, attempt, priority, fence, queue, type)
		SELECT greatest(j.run_at, j.accepted_at), j.id, r.attempt, j.priority, r.fence, j.queue, j.type
		FROM r JOIN onceq.job AS j ON j.id = r.job_id`); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		status queue.CancelStatus
		err    error
	}
	answered := make(chan answer, 1)
	go func() {
		status, err := c.Cancel(t.Context(), id, "test")
		answered <- answer{status, err}
	}()
	pgtest.AwaitBlocked(t, pool, 1)
	if err := ending.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-answered; got.err != nil || got.status != queue.CancelledNow {
		t.Errorf("the job waits for a retry by now and is cancelled at once; got %q, %v", got.status, got.err)
	}
	if job, err := c.Job(t.Context(), id); err != nil || job.State != queue.StateCancelled {
		t.Errorf("the cancelled job is %q, %v", job.State, err)
	}
}
