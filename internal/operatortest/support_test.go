package operatortest

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
	"github.com/onceq/onceq/schema"
)

// world is a test's database and a client on it.
type world struct {
	t      testing.TB
	ctx    context.Context
	pool   *pgxpool.Pool
	client *queue.Client
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return worldOf(t, pgtest.NewWith(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 12 }), queue.Config{})
}

func worldOf(t testing.TB, pool *pgxpool.Pool, cfg queue.Config) *world {
	t.Helper()
	return &world{t: t, ctx: context.Background(), pool: pool, client: clientOf(t, pool, cfg)}
}

func clientOf(t testing.TB, pool *pgxpool.Pool, cfg queue.Config) *queue.Client {
	t.Helper()
	client, err := queue.New(pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// accept enqueues a request that must make a new job.
func (w *world) accept(r queue.Request) queue.JobID {
	w.t.Helper()
	if r.Type == "" {
		r.Type = "work.do"
	}
	res, err := w.client.EnqueueWithResult(w.ctx, r)
	if err != nil || res.Outcome != queue.OutcomeAccepted {
		w.t.Fatalf("the request must make a new job, got %+v, %v", res, err)
	}
	return res.JobID
}

func (w *world) job(id queue.JobID) queue.JobInfo {
	w.t.Helper()
	job, err := w.client.Job(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return job
}

// exec runs a statement of the test's own.
func (w *world) exec(sql string, args ...any) pgconn.CommandTag {
	w.t.Helper()
	return pgtest.Exec(w.t, w.pool, sql, args...)
}

// scan answers a question that has one answer.
func scan[T any](w *world, sql string, args ...any) T {
	w.t.Helper()
	return pgtest.Scan[T](w.t, w.pool, sql, args...)
}

func texts(w *world, sql string, args ...any) []string {
	w.t.Helper()
	return pgtest.List[string](w.t, w.pool, sql, args...)
}

// start makes waiting jobs running, as a claim does, for a worker that is not there.
func (w *world) start(ids ...queue.JobID) {
	w.t.Helper()
	tag := w.exec(`
		WITH taken AS (DELETE FROM onceq.pending WHERE job_id = ANY ($1::uuid[]) RETURNING *)
		INSERT INTO onceq.running (claimed_at, lease_until, job_id, fence, attempt, queue, worker_id)
		SELECT clock_timestamp(), clock_timestamp() + interval '1 hour', job_id, fence + 1, attempt + 1, queue, 'nobody' FROM taken`, ids)
	if int(tag.RowsAffected()) != len(ids) {
		w.t.Fatalf("only %d of %d jobs waited", tag.RowsAffected(), len(ids))
	}
}

// finish ends running jobs, each a moment after the one before: succeeded (1),
// dead (2) or cancelled (3).
func (w *world) finish(state int, text string, ids ...queue.JobID) {
	w.t.Helper()
	for _, id := range ids {
		tag := w.exec(`
			WITH ended AS (DELETE FROM onceq.running WHERE job_id = $1 RETURNING *)
			INSERT INTO onceq.finished (finished_at, claimed_at, job_id, state, attempt, worker_id, error)
			SELECT clock_timestamp(), claimed_at, job_id, $2, attempt, worker_id, nullif($3, '') FROM ended`, string(id), state, text)
		if tag.RowsAffected() != 1 {
			w.t.Fatalf("job %s did not run", id)
		}
	}
}

// dead accepts requests and lets their jobs die in their order.
func (w *world) dead(text string, rs ...queue.Request) []queue.JobID {
	w.t.Helper()
	ids := make([]queue.JobID, len(rs))
	for i, r := range rs {
		ids[i] = w.accept(r)
		w.start(ids[i])
		w.finish(2, text, ids[i])
	}
	return ids
}

// age lets time pass: see [pgtest.Age].
func (w *world) age(by time.Duration) {
	w.t.Helper()
	pgtest.Age(w.t, w.pool, by)
}

func (w *world) maintain() {
	w.t.Helper()
	report, err := w.client.Maintain(w.ctx)
	for _, task := range report.Tasks {
		err = errors.Join(err, task.Err)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// redrive gives an order that must get an answer.
func (w *world) redrive(id queue.JobID, request string, want queue.RedriveStatus) queue.JobID {
	w.t.Helper()
	return w.order(queue.RedriveRequest{JobID: id, RequestID: request}, want)
}

func (w *world) order(r queue.RedriveRequest, want queue.RedriveStatus) queue.JobID {
	w.t.Helper()
	if r.Actor == "" {
		r.Actor = "oncall"
	}
	if r.Reason == "" {
		r.Reason = "the printer is mended"
	}
	res, err := w.client.Redrive(w.ctx, r)
	if err != nil {
		w.t.Fatal(err)
	}
	if res.Status != want {
		w.t.Fatalf("the answer must be %s, got %+v", want, res)
	}
	return res.Target
}

// many runs a RedriveMany that must not fail.
func (w *world) many(r queue.RedriveManyRequest) queue.RedriveManyResult {
	w.t.Helper()
	res, err := w.client.RedriveMany(w.ctx, manyOf(r))
	if err != nil {
		w.t.Fatal(err)
	}
	return res
}

func manyOf(r queue.RedriveManyRequest) queue.RedriveManyRequest {
	if r.RequestID == "" {
		r.RequestID = "the whole lot"
	}
	r.Actor, r.Reason = "oncall", "the printer is mended"
	if r.Limit == 0 {
		r.Limit = 1000
	}
	return r
}

// ids are the jobs that a list yields; an error fails the test.
func ids(t testing.TB, list iter.Seq2[queue.JobInfo, error]) []queue.JobID {
	t.Helper()
	var all []queue.JobID
	for job, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, job.ID)
	}
	return all
}

// last is the last job that a list yields, and its error.
func last(list iter.Seq2[queue.JobInfo, error]) (job queue.JobInfo, err error) {
	for next, failed := range list {
		if failed != nil {
			return job, failed
		}
		job = next
	}
	return job, nil
}

// firstError is the error that a list ends with, which must come once and last.
func firstError(t testing.TB, list iter.Seq2[queue.JobInfo, error]) error {
	t.Helper()
	var first error
	for job, err := range list {
		if first != nil {
			t.Fatalf("the list goes on after its error, with %+v, %v", job, err)
		}
		first = err
	}
	return first
}

func kinds(t testing.TB, w *world, id queue.JobID) string {
	t.Helper()
	events, err := w.client.Events(w.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range events {
		names = append(names, string(e.Kind))
	}
	return strings.Join(names, " ")
}

// eventOf is the only event of the kind.
func eventOf(t testing.TB, w *world, id queue.JobID, kind queue.EventKind) map[string]any {
	t.Helper()
	events, err := w.client.Events(w.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	var found []queue.Event
	for _, e := range events {
		if e.Kind == kind {
			found = append(found, e)
		}
	}
	if len(found) != 1 {
		t.Fatalf("job %s must have one event %s, got %d", id, kind, len(found))
	}
	var details map[string]any
	if err := json.Unmarshal(found[0].Details, &details); err != nil {
		t.Fatal(err)
	}
	return details
}

// snapshotOf is every row with its place, creator and locker: what a call that
// writes and locks nothing leaves as it was.
func snapshotOf(w *world) []string {
	w.t.Helper()
	var all []string
	for _, table := range texts(w, `SELECT format('%I.%I', table_schema, table_name) FROM information_schema.tables WHERE table_schema = 'onceq' ORDER BY 1`) {
		all = append(all, texts(w, `SELECT '`+table+` ' || r.ctid || ' ' || r.xmin || ' ' || r.xmax || ' ' || r::text FROM `+table+` AS r`)...)
	}
	return all
}

func migrate(t testing.TB, pool *pgxpool.Pool, name string) {
	t.Helper()
	if err := schema.Migrate(context.Background(), pool, schema.Named(name)); err != nil {
		t.Fatal(err)
	}
}
