package workertest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/pkg/queue"
)

// workType is the type of most jobs here.
const workType = "work.do"

// patience is how long a condition is awaited before the test fails.
const patience = pace * 30 * time.Second

// newClient returns a client on pool; it must be a good Config.
func newClient(t testing.TB, pool *pgxpool.Pool, cfg queue.Config) *queue.Client {
	t.Helper()
	c, err := queue.New(pool, cfg)
	if err != nil {
		t.Fatalf("queue.New refuses a good Config: %v", err)
	}
	return c
}

// accept enqueues a request that must make a new job.
func accept(t testing.TB, c *queue.Client, req queue.Request) queue.JobID {
	t.Helper()
	if req.Type == "" {
		req.Type = workType
	}
	res, err := c.EnqueueWithResult(t.Context(), req)
	if err != nil {
		t.Fatalf("EnqueueWithResult: %v", err)
	}
	if res.Outcome != queue.OutcomeAccepted || res.Dead {
		t.Fatalf("the request must make a new job, got %+v", res)
	}
	return res.JobID
}

// many is n times the request.
func many(n int, req queue.Request) []queue.Request {
	if req.Type == "" {
		req.Type = workType
	}
	return slices.Repeat([]queue.Request{req}, n)
}

// acceptMany enqueues batches that must make new jobs.
func acceptMany(t testing.TB, c *queue.Client, reqs []queue.Request) []queue.JobID {
	t.Helper()
	var ids []queue.JobID
	for len(reqs) > 0 {
		n := min(len(reqs), 1000)
		results, err := c.EnqueueMany(t.Context(), reqs[:n])
		if err != nil {
			t.Fatalf("EnqueueMany: %v", err)
		}
		for _, res := range results {
			ids = append(ids, res.JobID)
		}
		reqs = reqs[n:]
	}
	return ids
}

// keyed is a small idempotent request with the key.
func keyed(key string, release queue.Release) queue.Request {
	return queue.Request{Type: workType, Admission: queue.Idempotency{Key: key, Release: release}}
}

// wantAnswer enqueues the request and fails the test unless the answer is this.
func wantAnswer(t testing.TB, c *queue.Client, req queue.Request, want queue.Result) {
	t.Helper()
	got, err := c.EnqueueWithResult(t.Context(), req)
	if err != nil {
		t.Fatalf("EnqueueWithResult: %v", err)
	}
	if want.JobID == "" {
		want.JobID = got.JobID
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the answer is another one than promised (-want +got):\n%s", diff)
	}
}

// info reads a job.
func info(t testing.TB, c *queue.Client, id queue.JobID) queue.JobInfo {
	t.Helper()
	job, err := c.Job(context.Background(), id)
	if err != nil {
		t.Fatalf("read job %s: %v", id, err)
	}
	return job
}

// awaitState waits until the job is in the state.
func awaitState(t testing.TB, c *queue.Client, id queue.JobID, want queue.State) queue.JobInfo {
	t.Helper()
	var job queue.JobInfo
	for give := time.Now().Add(patience); ; time.Sleep(3 * time.Millisecond) {
		if job = info(t, c, id); job.State == want {
			return job
		}
		if time.Now().After(give) || ended(job.State) {
			t.Fatalf("the job must become %s, but it is %s (attempt %d of %d, error %q)", want, job.State, job.Attempt, job.MaxAttempts, job.LastError)
		}
	}
}

func ended(s queue.State) bool {
	return s == queue.StateSucceeded || s == queue.StateDead || s == queue.StateCancelled
}

// await polls until cond holds.
func await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for give := time.Now().Add(patience); !cond(); time.Sleep(3 * time.Millisecond) {
		if time.Now().After(give) {
			t.Fatalf("waited %v in vain for: %s", patience, what)
		}
	}
}

// awaitClosed waits until the channel is closed or sends.
func awaitClosed[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %v in vain for: %s", patience, what)
		panic("unreachable")
	}
}

// maintain runs a pass of maintenance in which no task may fail.
func maintain(t testing.TB, c *queue.Client) map[string]int64 {
	t.Helper()
	report, err := c.Maintain(t.Context())
	if err != nil {
		t.Fatalf("Maintain: %v", err)
	}
	rows := map[string]int64{}
	for _, task := range report.Tasks {
		if task.Err != nil {
			t.Errorf("maintenance task %s failed: %v", task.Name, task.Err)
		}
		rows[task.Name] = task.Rows
	}
	return rows
}

// cancel cancels the job and fails the test unless the answer is this.
func cancel(t testing.TB, c *queue.Client, id queue.JobID, want queue.CancelStatus) {
	t.Helper()
	got, err := c.Cancel(t.Context(), id, "no longer wanted")
	if err != nil || got != want {
		t.Fatalf("Cancel answers (%q, %v), want %q", got, err, want)
	}
}

// kinds lists the job's events in the order in which they are read.
func kinds(t testing.TB, c *queue.Client, id queue.JobID) []queue.EventKind {
	t.Helper()
	events, err := c.Events(context.Background(), id)
	if err != nil {
		t.Fatalf("read the events of job %s: %v", id, err)
	}
	var list []queue.EventKind
	for _, e := range events {
		list = append(list, e.Kind)
	}
	return list
}

// count is how many of the job's events are of the kind.
func count(t testing.TB, c *queue.Client, id queue.JobID, kind queue.EventKind) int {
	t.Helper()
	n := 0
	for _, k := range kinds(t, c, id) {
		if k == kind {
			n++
		}
	}
	return n
}

// wantKinds fails the test unless the job's timeline is this.
func wantKinds(t testing.TB, c *queue.Client, id queue.JobID, want ...queue.EventKind) {
	t.Helper()
	if diff := cmp.Diff(want, kinds(t, c, id)); diff != "" {
		t.Errorf("the timeline of the job is not what happened to it (-want +got):\n%s", diff)
	}
}

// wantInvalid fails the test unless err wraps ErrInvalidRequest.
func wantInvalid(t testing.TB, err error, what string) {
	t.Helper()
	if !errors.Is(err, queue.ErrInvalidRequest) {
		t.Errorf("%s must be refused with an error that wraps ErrInvalidRequest, got %v", what, err)
	}
}

// scan reads one value.
func scan[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := pool.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// texts reads a list of texts.
func texts(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) []string {
	t.Helper()
	rows, err := pool.Query(context.Background(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return list
}

// clock reads PostgreSQL's clock.
func clock(t testing.TB, pool *pgxpool.Pool) time.Time {
	t.Helper()
	return scan[time.Time](t, pool, `SELECT clock_timestamp()`)
}

// awaitClock waits until PostgreSQL's clock has passed the instant.
func awaitClock(t testing.TB, pool *pgxpool.Pool, at time.Time) {
	t.Helper()
	await(t, "PostgreSQL's clock to pass "+at.String(), func() bool { return clock(t, pool).After(at) })
}

// expire ends the job's lease, as if its worker had been away for too long.
func expire(t testing.TB, pool *pgxpool.Pool, id queue.JobID) {
	t.Helper()
	tag, err := pool.Exec(context.Background(), `UPDATE onceq.running SET lease_until = clock_timestamp() - interval '1 s' WHERE job_id = $1`, string(id))
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("end the lease of job %s: %d rows, %v", id, tag.RowsAffected(), err)
	}
}

// reclaim ends the job's lease and has maintenance see it.
func reclaim(t testing.TB, pool *pgxpool.Pool, c *queue.Client, id queue.JobID) {
	t.Helper()
	expire(t, pool, id)
	maintain(t, c)
}

// reconnect opens another pool on pool's database, adjusted by change.
func reconnect(t testing.TB, pool *pgxpool.Pool, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg := pool.Config()
	change(cfg)
	other, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	return other
}

// standstill watches the machine: what it returns tells for how long, at most, a
// few milliseconds' sleep and the work went on since.
func standstill(t testing.TB, work func(context.Context)) (longest func() time.Duration) {
	t.Helper()
	answers := make(chan time.Duration)
	go func() {
		var longest time.Duration
		for last := time.Now(); t.Context().Err() == nil; {
			time.Sleep(5 * time.Millisecond)
			work(t.Context())
			now := time.Now()
			longest, last = max(longest, now.Sub(last)), now
			select {
			case answers <- longest:
			default:
			}
		}
	}()
	return func() time.Duration { return awaitClosed(t, "the machine to be looked at", answers) }
}
