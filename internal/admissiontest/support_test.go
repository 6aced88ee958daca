package admissiontest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
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
	return newWorldWith(t, queue.Config{}, nil)
}

func newWorldWith(t testing.TB, cfg queue.Config, configure func(*pgxpool.Config)) *world {
	t.Helper()
	pool := pgtest.NewWith(t, func(cfg *pgxpool.Config) {
		cfg.MaxConns = 12
		if configure != nil {
			configure(cfg)
		}
	})
	client, err := queue.New(pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, ctx: context.Background(), pool: pool, client: client}
}

// enqueue hands over one request, which must not fail.
func (w *world) enqueue(r queue.Request) queue.Result {
	w.t.Helper()
	res, err := w.client.EnqueueWithResult(w.ctx, r)
	if err != nil {
		w.t.Fatal(err)
	}
	return res
}

// enqueueMany hands over a batch, which must not fail.
func (w *world) enqueueMany(rs ...queue.Request) []queue.Result {
	w.t.Helper()
	res, err := w.client.EnqueueMany(w.ctx, rs)
	if err != nil {
		w.t.Fatal(err)
	}
	return res
}

func (w *world) job(id queue.JobID) queue.JobInfo {
	w.t.Helper()
	job, err := w.client.Job(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return job
}

func (w *world) binding(key string) queue.BindingInfo {
	w.t.Helper()
	b, err := w.client.Binding(w.ctx, "", key)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// exec runs a statement of the test's own.
func (w *world) exec(sql string, args ...any) pgconn.CommandTag {
	w.t.Helper()
	return pgtest.Exec(w.t, w.pool, sql, args...)
}

// begin begins a transaction, which ends with the test at the latest.
func (w *world) begin(level ...pgx.TxIsoLevel) pgx.Tx {
	w.t.Helper()
	tx, err := w.pool.BeginTx(w.ctx, pgx.TxOptions{IsoLevel: append(level, "")[0]})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// count answers a question whose answer is one number.
func (w *world) count(sql string, args ...any) int {
	w.t.Helper()
	return pgtest.Scan[int](w.t, w.pool, sql, args...)
}

// age lets time pass: see [pgtest.Age].
func (w *world) age(by time.Duration) {
	w.t.Helper()
	pgtest.Age(w.t, w.pool, by)
}

// leave lets time pass, or takes it back, until so much is left of the windows.
func (w *world) leave(left time.Duration) {
	w.t.Helper()
	var rest time.Duration
	if err := w.pool.QueryRow(w.ctx, "SELECT min(expires_at) - clock_timestamp() FROM onceq.binding").Scan(&rest); err != nil {
		w.t.Fatal(err)
	}
	w.age(rest - left)
}

// start makes a job running, as a claim does, for a worker that is not there.
func (w *world) start(id queue.JobID) {
	w.t.Helper()
	tag := w.exec(`
		WITH taken AS (DELETE FROM onceq.pending WHERE job_id = $1 RETURNING *)
		INSERT INTO onceq.running (claimed_at, lease_until, job_id, fence, attempt, queue, worker_id)
		SELECT clock_timestamp(), clock_timestamp() + interval '1 hour', job_id, fence + 1, attempt + 1, queue, 'nobody' FROM taken`, string(id))
	if tag.RowsAffected() != 1 {
		w.t.Fatalf("job %s did not wait", id)
	}
}

// finish makes a running job succeeded (1), dead (2) or cancelled (3).
func (w *world) finish(id queue.JobID, state int) {
	w.t.Helper()
	tag := w.exec(`
		WITH ended AS (DELETE FROM onceq.running WHERE job_id = $1 RETURNING *)
		INSERT INTO onceq.finished (finished_at, claimed_at, job_id, state, attempt)
		SELECT clock_timestamp(), claimed_at, job_id, $2, attempt FROM ended`, string(id), state)
	if tag.RowsAffected() != 1 {
		w.t.Fatalf("job %s did not run", id)
	}
}

// wroteNothing fails the test if a transaction wrote or locked a row. The
// write-ahead log would not tell, since others use the server too; but a
// transaction that writes has an id.
func wroteNothing(t testing.TB, tx pgx.Tx) {
	t.Helper()
	var id *string
	if err := tx.QueryRow(context.Background(), "SELECT pg_current_xact_id_if_assigned()::text").Scan(&id); err != nil {
		t.Fatal(err)
	}
	if id != nil {
		t.Errorf("transaction %s has an id, so it wrote or locked a row", *id)
	}
}

func debounce(key string, payload any, d queue.Debounce) queue.Request {
	d.Key = key
	if d.Window == 0 {
		d.Window = time.Minute
	}
	return queue.Request{Type: "report.build", Payload: payload, Admission: d}
}

func idempotent(key string, payload any) queue.Request {
	return queue.Request{Type: "report.build", Payload: payload, Admission: queue.Idempotency{Key: key}}
}

func throttle(key string, payload any) queue.Request {
	return queue.Request{Type: "report.build", Payload: payload, Admission: queue.Throttle{Key: key, Window: time.Minute}}
}

// near fails unless two instants are within the time that a test may dawdle.
func near(t testing.TB, what string, got, want time.Time) {
	t.Helper()
	if d := got.Sub(want).Abs(); d > 10*time.Second {
		t.Errorf("%s: got %s, want %s within 10 s", what, got.Format(time.RFC3339Nano), want.Format(time.RFC3339Nano))
	}
}

func short(r queue.Result) string { return fmt.Sprintf("%s %s", r.Outcome, r.Reason) }
