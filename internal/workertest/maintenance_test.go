package workertest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// abandon makes every waiting job one of a worker that is gone for good.
func abandon(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	pgtest.Exec(t, pool, `WITH gone AS (DELETE FROM onceq.pending RETURNING *)
		INSERT INTO onceq.running (claimed_at, lease_until, deadline, job_id, fence, attempt, slot, queue, worker_id, concurrency_key)
		SELECT clock_timestamp() - interval '1 h', clock_timestamp() - interval '1 min', deadline, job_id, fence + 1, attempt + 1,
			CASE WHEN concurrency_key IS NOT NULL THEN 1 END, queue, 'gone', concurrency_key
		FROM gone`)
}

// states counts jobs by where they stand.
func states(t testing.TB, pool *pgxpool.Pool) map[string]int {
	t.Helper()
	return map[string]int{
		"waiting":   pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.pending`),
		"running":   pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.running`),
		"succeeded": pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.finished WHERE state = 1`),
		"dead":      pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.finished WHERE state = 2`),
		"cancelled": pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.finished WHERE state = 3`),
	}
}

func TestMaintain_reportsEachTask(t *testing.T) {
	t.Parallel()
	c := newClient(t, pgtest.New(t), queue.Config{})
	report, err := c.Maintain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, task := range report.Tasks {
		if task.Name == "" || names[task.Name] || task.Err != nil || task.Rows != 0 || task.Took <= 0 {
			t.Errorf("a pass over empty tables reports %+v", task)
		}
		names[task.Name] = true
	}
	if len(names) < 5 {
		t.Errorf("expired leases, deadlines, expired bindings, ended jobs and events make five tasks, the report has %v", names)
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	report, err = c.Maintain(ended)
	failed := err != nil
	for _, task := range report.Tasks {
		failed = failed || task.Err != nil
	}
	if !failed {
		t.Error("a pass whose context has ended must say that nothing was done")
	}
}

func TestMaintain_inBulk(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	// At the head, leases that are fine and must not be in the way.
	acceptMany(t, c, many(1000, queue.Request{}))
	abandon(t, pool)
	pgtest.Exec(t, pool, `UPDATE onceq.running SET lease_until = clock_timestamp() + interval '1 h', worker_id = 'alive'`)
	var reqs []queue.Request
	for i := range 1000 {
		reqs = append(reqs, queue.Request{Type: workType, MaxAttempts: 1 + i%2, Admission: queue.Idempotency{Key: fmt.Sprint("lease ", i)}})
	}
	stuck := acceptMany(t, c, reqs)
	abandon(t, pool)
	late := reqs[:0:0]
	for i := range 1000 {
		late = append(late, queue.Request{Type: workType, Deadline: time.Now().Add(-time.Second), RunAt: time.Now().Add(time.Duration(i%2) * time.Hour),
			Admission: queue.Idempotency{Key: fmt.Sprint("deadline ", i), Release: queue.Release(i % 2)}})
	}
	acceptMany(t, c, late)
	acceptMany(t, c, many(500, queue.Request{Deadline: time.Now().Add(time.Hour)}))
	begin := time.Now()
	rows := maintain(t, c)
	t.Logf("1,000 ended leases and 1,000 passed deadlines: %v, %v", time.Since(begin).Round(time.Millisecond), rows)
	want := map[string]int{"waiting": 500 + 500, "running": 1000, "succeeded": 0, "dead": 500 + 1000, "cancelled": 0}
	if diff := cmp.Diff(want, states(t, pool)); diff != "" {
		t.Errorf("one pass must handle all of 1,000 ended leases and 1,000 passed deadlines (-want +got):\n%s", diff)
	}
	for i, id := range stuck[:4] {
		wantAnswer(t, c, reqs[i], queue.Result{JobID: id, Outcome: queue.OutcomeReplayed, Dead: i%2 == 0})
	}
	if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.binding`); n != 1000+500 {
		t.Errorf("%d bindings are left, want 1,500: those with ReleaseFinished go with their dead jobs", n)
	}
}

// One task that can't do its work keeps no other from doing its own.
func TestMaintain_tasksFailAlone(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		table, op string
		left      string // what the failing task leaves behind
	}{
		"expired leases":   {"running", "DELETE", "lease"},
		"deadlines":        {"pending", "DELETE", "deadline"},
		"expired bindings": {"binding", "DELETE", "binding"},
		"ended jobs":       {"finished", "DELETE", "finished"},
		"events":           {"event", "DELETE", "event"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			c := newClient(t, pool, queue.Config{})
			work := agedWork(t, pool, c)
			pgtest.Exec(t, pool, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$`)
			pgtest.Exec(t, pool, fmt.Sprintf(`CREATE TRIGGER refuse BEFORE %s ON onceq.%s FOR EACH ROW EXECUTE FUNCTION refuse()`, tt.op, tt.table))
			report, err := c.Maintain(t.Context())
			if err != nil {
				t.Fatalf("Maintain: %v", err)
			}
			failed := 0
			for _, task := range report.Tasks {
				if task.Err != nil {
					failed++
				}
			}
			if failed != 1 {
				t.Errorf("%d tasks report an error, want the one that can't do its work: %+v", failed, report.Tasks)
			}
			for what, left := range work.left(t) {
				if left != (what == tt.left) {
					t.Errorf("after a pass in which only %s fail, %s is left: %t", name, what, left)
				}
			}
			pgtest.Exec(t, pool, fmt.Sprintf(`DROP TRIGGER refuse ON onceq.%s`, tt.table))
			maintain(t, c)
			for what, left := range work.left(t) {
				if left {
					t.Errorf("the next pass leaves %s", what)
				}
			}
		})
	}
}

// aged is one piece of work for each task of maintenance.
type aged struct {
	pool             *pgxpool.Pool
	stuck, late, old queue.JobID
}

func agedWork(t testing.TB, pool *pgxpool.Pool, c *queue.Client) aged {
	t.Helper()
	a := aged{pool: pool, stuck: accept(t, c, queue.Request{})}
	abandon(t, pool)
	a.old = accept(t, c, queue.Request{Admission: queue.Idempotency{Key: "expired"}})
	cancel(t, c, a.old, queue.CancelledNow)
	pgtest.Exec(t, pool, `UPDATE onceq.finished SET finished_at = finished_at - interval '31 days'`)
	pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp() - interval '1 s'`)
	pgtest.Exec(t, pool, `UPDATE onceq.event SET at = at - interval '31 days'`)
	a.late = accept(t, c, queue.Request{Deadline: time.Now().Add(-time.Second)})
	return a
}

// left tells which pieces of work are still to do.
func (a aged) left(t testing.TB) map[string]bool {
	t.Helper()
	left := func(sql string, args ...any) bool {
		return pgtest.Scan[bool](t, a.pool, `SELECT EXISTS (`+sql+`)`, args...)
	}
	return map[string]bool{
		"lease":    left(`SELECT FROM onceq.running WHERE job_id = $1`, string(a.stuck)),
		"deadline": left(`SELECT FROM onceq.pending WHERE job_id = $1`, string(a.late)),
		"binding":  left(`SELECT FROM onceq.binding WHERE job_id = $1`, string(a.old)),
		"finished": left(`SELECT FROM onceq.finished WHERE job_id = $1`, string(a.old)),
		"event":    left(`SELECT FROM onceq.event WHERE job_id = $1`, string(a.old)),
	}
}

// A row that somebody works on is passed by, and so is one that makes no sense.
func TestMaintain_oneBadRowStopsNoOther(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	ids := acceptMany(t, c, many(20, queue.Request{}))
	abandon(t, pool)
	pgtest.Exec(t, pool, `DELETE FROM onceq.job WHERE id = $1`, string(ids[3]))
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `SELECT FROM onceq.running WHERE job_id = $1 FOR UPDATE`, string(ids[7])); err != nil {
		t.Fatal(err)
	}
	maintain(t, c)
	if got := states(t, pool); got["waiting"] != 18 {
		t.Errorf("of 20 jobs whose worker is gone, one without its definition and one that is locked, 18 must be ready again: %v", got)
	}
	commit(t, tx)
	maintain(t, c)
	if got := states(t, pool); got["waiting"] != 19 || got["running"] != 0 {
		t.Errorf("once nobody works on it, the last one must be ready again: %v", got)
	}
}

func TestMaintain_severalAtOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.NewWith(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 16 })
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, queue.WorkerConfig{})
	queue.Handle(w, workType, func(_ context.Context, job *queue.Job[int]) error {
		if job.Payload%3 == 0 {
			return errNotYet
		}
		return nil
	})
	start(t, w)
	var all sync.WaitGroup
	over := make(chan struct{})
	for range 4 {
		all.Go(func() {
			for {
				report, err := c.Maintain(context.Background())
				for _, task := range report.Tasks {
					if task.Err != nil {
						err = task.Err
					}
				}
				if err != nil {
					t.Errorf("maintenance of several processes at once, with traffic: %v", err)
					return
				}
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	for round := range 6 {
		var reqs []queue.Request
		for i := range 300 {
			req := queue.Request{Type: workType, Payload: i, MaxAttempts: 1, Admission: queue.Idempotency{Key: fmt.Sprint(i), TTL: time.Millisecond, Release: queue.Release(i % 3)}}
			if i%5 == 0 {
				req.Deadline = time.Now().Add(time.Duration(i%7) * time.Millisecond)
			}
			if i%2 == round%2 {
				reqs = append([]queue.Request{req}, reqs...)
			} else {
				reqs = append(reqs, req)
			}
		}
		var conflict *queue.EnqueueIdempotencyConflictError
		if _, err := c.EnqueueMany(t.Context(), reqs); err != nil && !asConflict(err, &conflict) {
			t.Errorf("a batch beside maintenance: %v", err)
		}
		pgtest.Exec(t, pool, `UPDATE onceq.running SET lease_until = clock_timestamp() - interval '1 ms' WHERE random() < 0.3`)
	}
	close(over)
	all.Wait()
	pgtest.Await(t, "all jobs to end", func() bool { maintain(t, c); s := states(t, pool); return s["waiting"]+s["running"] == 0 })
}

// The slow turn of the only worker may take minutes. Leases end meanwhile.
func TestMaintenance_slowTurnHoldsNothingUp(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	walks := &turnstile{name: "DeleteOldFinished"}
	w := newWorker(t, newClient(t, guarded(t, pool, walks), queue.Config{}), one("a"))
	handle(t, "other", w)
	accept(t, c, queue.Request{})
	walks.armed.Store(true)
	start(t, w)
	t.Cleanup(walks.open)
	awaitClosed(t, "the walk over ended jobs", walks.came)
	abandon(t, pool)
	pgtest.Await(t, "an expired lease to be ended during the walk", func() bool { return pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.running`) == 0 })
}

// A caller's open transaction that holds a job's key (a FollowUp, while the job
// runs or waits for its deadline) keeps maintenance from that job alone.
func TestMaintain_passesBindingsThatAreHeld(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]func(t testing.TB, pool *pgxpool.Pool){
		"expired leases": abandon,
		"deadlines": func(t testing.TB, pool *pgxpool.Pool) {
			pgtest.Exec(t, pool, `UPDATE onceq.pending SET deadline = clock_timestamp() - interval '1 s'`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			c := newClient(t, pool, queue.Config{})
			accept(t, c, queue.Request{MaxAttempts: 1, Admission: queue.Debounce{Key: "held", Window: time.Hour}})
			var free []queue.JobID
			for i := range 3 {
				free = append(free, accept(t, c, queue.Request{MaxAttempts: 1, Admission: queue.Debounce{Key: fmt.Sprint("free ", i), Window: time.Hour}}))
			}
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			if _, err := tx.Exec(t.Context(), `SELECT FROM onceq.binding AS b JOIN onceq.job AS j ON j.id = b.job_id WHERE j.id <> ALL ($1::uuid[]) FOR UPDATE OF b`, free); err != nil {
				t.Fatal(err)
			}
			gone(t, pool)
			if rows := maintain(t, c); rows["expired_leases"]+rows["deadlines"] != 3 {
				t.Errorf("of four jobs one is held, the others must be ended: %v", rows)
			}
			for _, id := range free {
				if job := info(t, c, id); job.State != queue.StateDead {
					t.Errorf("a job beside the held one is %s", job.State)
				}
			}
			if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.binding WHERE dead`); n != 3 {
				t.Errorf("%d keys tell of a death, want 3", n)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if rows := maintain(t, c); rows["expired_leases"]+rows["deadlines"] != 1 {
				t.Errorf("its key is no longer held, and the job must be ended: %v", rows)
			}
			if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.binding WHERE dead`); n != 4 {
				t.Errorf("%d keys tell of a death, want all 4", n)
			}
		})
	}
}
