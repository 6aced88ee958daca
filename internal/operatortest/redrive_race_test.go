package operatortest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// together runs all of them at once and returns when the last has ended.
func together(n int, do func(i int)) {
	var all sync.WaitGroup
	gate := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-gate
			do(i)
		})
	}
	close(gate)
	all.Wait()
}

// answers gives orders for one source at once and counts the answers.
func answers(t *testing.T, w *world, id queue.JobID, n int, order func(i int) queue.RedriveRequest) (map[queue.RedriveStatus]int, map[queue.JobID]bool) {
	t.Helper()
	var mu sync.Mutex
	statuses, targets := map[queue.RedriveStatus]int{}, map[queue.JobID]bool{}
	together(n, func(i int) {
		r := order(i)
		r.JobID, r.Actor, r.Reason = id, "oncall", "again"
		res, err := w.client.Redrive(w.ctx, r)
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		statuses[res.Status]++
		if res.Target != "" {
			targets[res.Target] = true
		}
	})
	return statuses, targets
}

func TestRedrive_atOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const callers = 12
	for range pgtest.Rounds(15) {
		id := w.dead("no paper", queue.Request{})[0]
		statuses, targets := answers(t, w, id, callers, func(int) queue.RedriveRequest { return queue.RedriveRequest{RequestID: "one", Again: true} })
		if len(targets) != 1 || statuses[queue.Redriven] != 1 || statuses[queue.RedriveReplayed] != callers-1 {
			t.Errorf("one request id makes one target: %v, %d targets", statuses, len(targets))
		}

		id = w.dead("no paper", queue.Request{})[0]
		statuses, targets = answers(t, w, id, callers, func(i int) queue.RedriveRequest { return queue.RedriveRequest{RequestID: fmt.Sprint(i)} })
		if len(targets) != 1 || statuses[queue.Redriven] != 1 || statuses[queue.RedriveAlready] != callers-1 {
			t.Errorf("without Again a source has one target: %v, %d targets", statuses, len(targets))
		}

		id = w.dead("no paper", queue.Request{})[0]
		statuses, targets = answers(t, w, id, callers, func(i int) queue.RedriveRequest {
			return queue.RedriveRequest{RequestID: fmt.Sprint(i % 4), Again: true}
		})
		if len(targets) != 4 || statuses[queue.Redriven] != 4 || statuses[queue.RedriveReplayed] != callers-4 {
			t.Errorf("four request ids with Again make four targets: %v, %d targets", statuses, len(targets))
		}
	}
	if n := scan[int](w, `SELECT count(*) FROM onceq.pending`); n != pgtest.Rounds(15)*6 {
		t.Errorf("%d jobs wait, want %d", n, pgtest.Rounds(15)*6)
	}
}

// The same on databases whose transactions are stricter than usual: PostgreSQL
// may refuse to fit an order between others, and it is asked again.
func TestRedrive_atOnceIsolated(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			w := worldOf(t, pgtest.NewWith(t, func(cfg *pgxpool.Config) {
				cfg.MaxConns = 6
				cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
			}), queue.Config{})
			for range pgtest.Rounds(10) {
				id := w.dead("no paper", queue.Request{})[0]
				statuses, targets := answers(t, w, id, 6, func(i int) queue.RedriveRequest { return queue.RedriveRequest{RequestID: fmt.Sprint(i % 2)} })
				if len(targets) != 1 || statuses[queue.Redriven] != 1 {
					t.Errorf("without Again a source has one target: %v, %d targets", statuses, len(targets))
				}
			}
			w.lot(250)
			together(3, func(int) {
				if res, err := w.client.RedriveMany(w.ctx, manyOf(queue.RedriveManyRequest{Filter: queue.JobFilter{Error: "error"}})); err != nil || res.Redriven+res.Replayed != 250 {
					t.Errorf("%+v, %v", res, err)
				}
			})
			if n := scan[int](w, `SELECT count(*) FROM onceq.redrive`); n != 250+pgtest.Rounds(10) {
				t.Errorf("%d redrives, want %d", n, 250+pgtest.Rounds(10))
			}
		})
	}
}

// An order waits for another one's transaction on the same source, and then
// answers from what that one left.
func TestRedrive_waits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		name   string
		after  string // what the transaction does with the source that it has locked
		commit bool
		want   queue.RedriveStatus
	}{
		{"a source that is let go", ``, true, queue.Redriven},
		{"a source that retention deletes", `WITH gone AS (DELETE FROM onceq.finished WHERE job_id = $1) DELETE FROM onceq.job WHERE id = $1`, true, queue.RedriveNotFound},
		{"a source that retention wanted to delete", `WITH gone AS (DELETE FROM onceq.finished WHERE job_id = $1) DELETE FROM onceq.job WHERE id = $1`, false, queue.Redriven},
		{"a source that another order has", `INSERT INTO onceq.redrive (at, source_id, target_id, ordinal, request_hash, actor, reason)
			SELECT now(), $1, gen_random_uuid(), 1, sha256('other'), 'bob', 'why not'`, true, queue.RedriveAlready},
		{"a source that another order gave up", `INSERT INTO onceq.redrive (at, source_id, target_id, ordinal, request_hash, actor, reason)
			SELECT now(), $1, gen_random_uuid(), 1, sha256('other'), 'bob', 'why not'`, false, queue.Redriven},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := w.dead("no paper", queue.Request{})[0]
			tx, err := w.pool.Begin(w.ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			if _, err := tx.Exec(w.ctx, `SELECT FROM onceq.finished WHERE job_id = $1 FOR UPDATE`, string(id)); err != nil {
				t.Fatal(err)
			}
			answer := make(chan queue.RedriveResult, 1)
			go func() {
				res, err := w.client.Redrive(w.ctx, queue.RedriveRequest{JobID: id, RequestID: "mine", Actor: "oncall", Reason: "again"})
				if err != nil {
					t.Error(err)
				}
				answer <- res
			}()
			w.awaitWaiter(tx)
			if c.after != "" {
				if _, err := tx.Exec(w.ctx, c.after, string(id)); err != nil {
					t.Fatal(err)
				}
			}
			end := tx.Rollback
			if c.commit {
				end = tx.Commit
			}
			if err := end(w.ctx); err != nil {
				t.Fatal(err)
			}
			if res := <-answer; res.Status != c.want {
				t.Errorf("want %s, got %+v", c.want, res)
			}
		})
	}
}

// awaitWaiter returns when somebody waits for the transaction.
func (w *world) awaitWaiter(tx pgx.Tx) {
	w.t.Helper()
	pid := tx.Conn().PgConn().PID()
	for give := time.Now().Add(time.Minute); time.Now().Before(give); time.Sleep(2 * time.Millisecond) {
		if scan[bool](w, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))`, int32(pid)) {
			return
		}
	}
	w.t.Fatal("nobody waits for the transaction")
}

// Orders, single and for many, beside retention that deletes sources and
// targets: nothing deadlocks, and what an order said it made was made.
func TestRedrive_besideRetention(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	keeper := clientOf(t, w.pool, queue.Config{Retention: queue.Retention{Dead: time.Millisecond, Succeeded: time.Millisecond, Cancelled: time.Millisecond}})
	stop := make(chan struct{})
	var upkeep sync.WaitGroup
	for range 2 {
		upkeep.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				report, err := keeper.Maintain(w.ctx)
				if err != nil {
					t.Error(err)
				}
				for _, task := range report.Tasks {
					if task.Err != nil {
						t.Errorf("%s: %v", task.Name, task.Err)
					}
				}
			}
		})
	}
	made := 0
	for round := range pgtest.Rounds(40) {
		sources := w.dead("no paper", queue.Request{}, queue.Request{}, queue.Request{})
		var mu sync.Mutex
		together(6, func(i int) {
			if i == 5 {
				res, err := w.client.RedriveMany(w.ctx, manyOf(queue.RedriveManyRequest{RequestID: fmt.Sprint("many ", round)}))
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				made += int(res.Redriven)
				return
			}
			res, err := w.client.Redrive(w.ctx, queue.RedriveRequest{JobID: sources[i%3], RequestID: fmt.Sprint(i), Actor: "oncall", Reason: "again"})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if res.Status == queue.Redriven {
				made++
			}
		})
	}
	close(stop)
	upkeep.Wait()
	jobs := scan[int](w, `SELECT count(*) FROM onceq.pending AS p JOIN onceq.job AS j ON j.id = p.job_id JOIN onceq.redrive AS r ON r.target_id = j.id`)
	if jobs != made || made == 0 {
		t.Errorf("%d redriven jobs wait with their definitions and records, want the %d that the orders made", jobs, made)
	}
	if n := scan[int](w, `SELECT count(*) FROM (SELECT source_id FROM onceq.redrive GROUP BY source_id HAVING count(*) > 1) AS twice`); n != 0 {
		t.Errorf("%d sources have two targets without Again", n)
	}
}

// A redriven job is announced: a worker that listens is woken.
func TestRedrive_wakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn, err := w.pool.Acquire(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(w.ctx, "LISTEN onceq"); err != nil {
		t.Fatal(err)
	}
	heard := func(queueName string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
		defer cancel()
		for {
			n, err := conn.Conn().WaitForNotification(ctx)
			if err != nil {
				t.Fatalf("queue %s was not announced: %v", queueName, err)
			}
			if n.Payload == queueName {
				return
			}
		}
	}
	quiet := clientOf(t, w.pool, queue.Config{PollOnly: true})
	doomed := func(r queue.Request) queue.JobID {
		t.Helper()
		r.Type = "work.do"
		id, err := quiet.Enqueue(w.ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		w.start(id)
		w.finish(2, "no paper", id)
		return id
	}
	w.redrive(doomed(queue.Request{Queue: "one"}), "order", queue.Redriven)
	heard("one")
	doomed(queue.Request{Queue: "two"})
	doomed(queue.Request{Queue: "two"})
	doomed(queue.Request{Queue: "three"})
	if res := w.many(queue.RedriveManyRequest{}); res.Redriven != 3 {
		t.Fatalf("%+v", res)
	}
	heard("two")
	id, err := quiet.Enqueue(w.ctx, queue.Request{Type: "t", Queue: "four", RunAt: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.client.RunNow(w.ctx, id); err != nil {
		t.Fatal(err)
	}
	heard("four")
}
