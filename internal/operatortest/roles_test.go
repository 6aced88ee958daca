package operatortest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onceq/onceq/pkg/queue"
)

// cast is a database with the roles of docs/grants.sql, under names of the test's
// own, since roles belong to the whole server.
type cast struct {
	*world
	prefix string
}

func newCast(t *testing.T) *cast {
	t.Helper()
	text, err := os.ReadFile("../../docs/grants.sql")
	if err != nil {
		t.Fatal(err)
	}
	c := &cast{newWorld(t), "t" + strings.ToLower(rand.Text()[:10]) + "_"}
	grants := strings.ReplaceAll(string(text), "onceq_", c.prefix)
	t.Cleanup(func() {
		for _, role := range []string{"producer", "worker", "operator", "reader"} {
			c.exec(`DROP OWNED BY ` + c.prefix + role)
			c.exec(`DROP ROLE ` + c.prefix + role)
		}
	})
	for range 2 { // it can be repeated
		if _, err := c.pool.Exec(c.ctx, grants, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// as is the same database seen by some roles at once.
func (c *cast) as(cfg queue.Config, roles ...string) *world {
	c.t.Helper()
	name := c.prefix + roles[0]
	if len(roles) > 1 {
		name = c.prefix + strings.Join(roles, "_")
		c.exec(`CREATE ROLE ` + name + ` IN ROLE ` + c.prefix + strings.Join(roles, ", "+c.prefix))
		c.t.Cleanup(func() { c.exec(`DROP ROLE ` + name) })
	}
	config := c.pool.Config()
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET ROLE "+name)
		return err
	}
	pool, err := pgxpool.NewWithConfig(c.ctx, config)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(pool.Close)
	return worldOf(c.t, pool, cfg)
}

// may and mayNot run statements of a person who has the role.
func (w *world) may(statements ...string) {
	w.t.Helper()
	for _, s := range statements {
		if err := w.try(s); err != nil {
			w.t.Errorf("it must be allowed: %s: %v", s, err)
		}
	}
}

func (w *world) mayNot(statements ...string) {
	w.t.Helper()
	for _, s := range statements {
		if pg, ok := errors.AsType[*pgconn.PgError](w.try(s)); !ok || pg.Code != "42501" {
			w.t.Errorf("it must be refused for want of a right: %s: %v", s, pg)
		}
	}
}

var errUndone = errors.New("undone")

func (w *world) try(statement string) error {
	err := pgx.BeginFunc(w.ctx, w.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(w.ctx, statement); err != nil {
			return err
		}
		return errUndone
	})
	if errors.Is(err, errUndone) {
		return nil
	}
	return err
}

// denied wants errors of PostgreSQL's, for want of a right.
func denied(t *testing.T, what string, err error) {
	t.Helper()
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "42501" {
		t.Errorf("%s must be refused for want of a right, got %v", what, err)
	}
}

func TestRoles_producer(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	for i, cfg := range []queue.Config{{}, {KeySecret: []byte("a secret of 16 b"), PreviousKeySecrets: [][]byte{nil}}} {
		w := c.as(cfg, "producer")
		key := func(name string) string { return fmt.Sprint(name, i) }
		requests := []queue.Request{
			{Type: "t", Payload: "plain"},
			{Type: "t", Admission: queue.Idempotency{Key: key("idempotency")}},
			{Type: "t", Admission: queue.Throttle{Key: key("throttle"), Window: time.Hour}},
			{Type: "t", Admission: queue.Debounce{Key: key("debounce"), Window: time.Hour}},
			{Type: "t", Admission: queue.Debounce{Key: key("follow"), Window: time.Hour, FollowUp: true}},
			{Type: "t", ConcurrencyKey: "k", Tags: []string{"a"}, Deadline: time.Now().Add(time.Hour), RunAt: time.Now().Add(time.Minute)},
		}
		send := func(when string) {
			t.Helper()
			for _, r := range requests {
				if _, err := w.client.EnqueueWithResult(w.ctx, r); err != nil {
					t.Errorf("%s: %+v: %v", when, r, err)
				}
			}
			for _, batch := range [][]queue.Request{requests, requests[:3]} {
				if _, err := w.client.EnqueueMany(w.ctx, batch); err != nil {
					t.Errorf("%s: a batch: %v", when, err)
				}
			}
			err := pgx.BeginFunc(w.ctx, w.pool, func(tx pgx.Tx) error {
				_, err := w.client.EnqueueManyTx(w.ctx, tx, requests)
				_, single := w.client.EnqueueTx(w.ctx, tx, requests[1])
				return errors.Join(err, single)
			})
			if err != nil {
				t.Errorf("%s: in a transaction: %v", when, err)
			}
		}
		send("accepted and repeated")
		c.exec(`UPDATE onceq.binding SET expires_at = clock_timestamp()`)
		send("expired")
		c.exec(`WITH taken AS (DELETE FROM onceq.pending WHERE ready_at > now() RETURNING *)
			INSERT INTO onceq.running (claimed_at, lease_until, job_id, fence, attempt, queue, worker_id, concurrency_key, slot)
			SELECT now(), now() + interval '1 hour', job_id, 1, 1, queue, 'w', NULL, NULL FROM taken`)
		send("running")
		conflict := requests[1]
		conflict.Priority = 1
		if _, err := w.client.Enqueue(w.ctx, conflict); err == nil || !strings.Contains(err.Error(), "conflict") {
			t.Errorf("a conflict: %v", err)
		}
		db := stdlib.OpenDBFromPool(w.pool)
		tx, err := db.BeginTx(w.ctx, &sql.TxOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.client.EnqueueManyTx(w.ctx, queue.SQLTx(tx), requests); err != nil {
			t.Errorf("through database/sql: %v", err)
		}
		if err := errors.Join(tx.Commit(), db.Close()); err != nil {
			t.Error(err)
		}
	}
	w := c.as(queue.Config{}, "producer")
	id, err := w.client.Enqueue(w.ctx, queue.Request{Type: "t"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.client.Job(w.ctx, id)
	denied(t, "reading a job", err)
	_, err = w.client.Events(w.ctx, id)
	denied(t, "reading events", err)
	_, err = w.client.Stats(w.ctx)
	denied(t, "counting", err)
	_, err = w.client.Cancel(w.ctx, id, "no")
	denied(t, "cancelling", err)
	_, err = w.client.Purge(w.ctx, queue.PurgeFilter{All: true})
	denied(t, "purging", err)
	denied(t, "pausing", w.client.PauseQueue(w.ctx, "default"))
	denied(t, "running now", w.client.RunNow(w.ctx, id))
	denied(t, "listing", firstError(t, w.client.Jobs(w.ctx, queue.JobFilter{})))
	w.mayNot(
		`SELECT payload FROM onceq.job`, `SELECT * FROM onceq.job`, `UPDATE onceq.job SET type = payload::text`, `UPDATE onceq.job SET priority = 1 RETURNING payload`,
		`SELECT key_hash FROM onceq.job`, `UPDATE onceq.job SET id = gen_random_uuid()`, `DELETE FROM onceq.job`, `TRUNCATE onceq.job`,
		`SELECT FROM onceq.event`, `SELECT FROM onceq.checkpoint`, `SELECT FROM onceq.running`, `SELECT FROM onceq.finished`, `SELECT FROM onceq.redrive`, `SELECT FROM onceq.queue`,
		`DELETE FROM onceq.running`, `INSERT INTO onceq.finished (finished_at, job_id, state, attempt) VALUES (now(), gen_random_uuid(), 1, 1)`,
		`UPDATE onceq.queue SET paused = true`, `CREATE TABLE onceq.mine ()`, `DROP TABLE onceq.job`, `DELETE FROM onceq.goose_version`,
	)
}

func TestRoles_worker(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	w := c.as(queue.Config{Retention: queue.Retention{Succeeded: time.Hour}}, "worker")
	var all []queue.JobID
	for _, r := range []queue.Request{
		{Type: "ok"}, {Type: "ok", Admission: queue.Idempotency{Key: "a", Release: queue.ReleaseFinished}}, {Type: "ok", ConcurrencyKey: "k"}, {Type: "ok", Queue: "capped"},
		{Type: "stage"}, {Type: "retry", MaxAttempts: 2, Retry: queue.Fixed{}}, {Type: "dies", Admission: queue.Idempotency{Key: "b"}},
		{Type: "dies", Admission: queue.Idempotency{Key: "c", Release: queue.ReleaseDead}}, {Type: "tx"}, {Type: "late", Deadline: time.Now().Add(-time.Hour)},
	} {
		all = append(all, c.accept(r))
	}
	if err := c.client.SetQueue(c.ctx, "capped", queue.QueueSettings{MaxRunning: 1}); err != nil {
		t.Fatal(err)
	}
	lost := c.accept(queue.Request{Type: "ok"})
	c.start(lost)
	c.exec(`UPDATE onceq.running SET lease_until = now()`)
	all = append(all, lost)

	worker, err := queue.NewWorker(w.client, queue.WorkerConfig{Queues: map[string]int{"default": 5, "capped": 1}, PollInterval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	queue.Handle(worker, "ok", func(context.Context, *queue.Job[any]) error { return nil })
	queue.Handle(worker, "late", func(context.Context, *queue.Job[any]) error { return nil })
	queue.Handle(worker, "retry", func(context.Context, *queue.Job[any]) error { return errors.New("not yet") })
	queue.Handle(worker, "dies", func(context.Context, *queue.Job[any]) error { return queue.Permanent(errors.New("never")) })
	queue.Handle(worker, "stage", func(ctx context.Context, job *queue.Job[any]) error {
		_, first := queue.Checkpoint(ctx, job, "one", func(context.Context) (int, error) { return 1, nil })
		_, second := queue.CheckpointTx(ctx, job, "two", func(context.Context, pgx.Tx) (int, error) { return 2, nil })
		return errors.Join(first, second)
	})
	queue.Handle(worker, "tx", func(ctx context.Context, job *queue.Job[any]) error {
		return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error { return queue.CompleteTx(ctx, tx, job) })
	})
	ctx, cancel := context.WithCancel(c.ctx)
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	want := map[queue.State]int{queue.StateSucceeded: 7, queue.StateDead: 4}
	got := map[queue.State]int{}
	for give := time.Now().Add(time.Minute); time.Now().Before(give); time.Sleep(10 * time.Millisecond) {
		clear(got)
		for _, id := range all {
			got[c.job(id).State]++
		}
		if got[queue.StateSucceeded]+got[queue.StateDead] == len(all) {
			break
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the worker got on to %v, want %v", got, want)
	}

	c.redrive(all[6], "order", queue.Redriven)
	c.exec(`DELETE FROM onceq.pending`)
	c.age(400 * day)
	w.maintain()
	w.maintain()
	for _, table := range []string{"binding", "event", "finished", "checkpoint"} {
		if n := scan[int](c.world, `SELECT count(*) FROM onceq.`+table); n != 0 {
			t.Errorf("%d rows of %s are past their retention", n, table)
		}
	}
	_, err = w.client.Enqueue(w.ctx, queue.Request{Type: "t"})
	denied(t, "enqueueing", err)
	_, err = w.client.Enqueue(w.ctx, queue.Request{Type: "t", Admission: queue.Idempotency{Key: "k"}})
	denied(t, "enqueueing with a key", err)
	denied(t, "pausing", w.client.PauseQueue(w.ctx, "default"))
	_, err = w.client.Redrive(w.ctx, queue.RedriveRequest{JobID: all[0], RequestID: "r", Actor: "a", Reason: "b"})
	denied(t, "redriving", err)
	w.mayNot(`UPDATE onceq.job SET payload = '1'`, `SELECT fingerprint FROM onceq.binding`, `UPDATE onceq.binding SET job_id = gen_random_uuid()`,
		`UPDATE onceq.finished SET state = 1`, `UPDATE onceq.event SET details = '{}'`, `UPDATE onceq.queue SET paused = false`, `SELECT reason FROM onceq.redrive`,
		`TRUNCATE onceq.running`, `CREATE TABLE onceq.mine ()`, `DELETE FROM onceq.goose_version`)

	both := c.as(queue.Config{}, "worker", "producer")
	if _, err := both.client.Enqueue(both.ctx, queue.Request{Type: "t", Admission: queue.Idempotency{Key: "d"}}); err != nil {
		t.Errorf("a worker that is a producer too enqueues: %v", err)
	}
}

func TestRoles_operator(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	for _, cfg := range []queue.Config{{}, {KeySecret: []byte("a secret of 16 b"), PreviousKeySecrets: [][]byte{nil}}} {
		w := c.as(cfg, "operator")
		dead := c.dead("no paper", queue.Request{}, queue.Request{})
		w.redrive(dead[0], "order", queue.Redriven)
		w.redrive(dead[0], "order", queue.RedriveReplayed)
		if res := w.many(queue.RedriveManyRequest{}); res.Redriven == 0 {
			t.Errorf("%+v", res)
		}
		window := worldOf(t, c.pool, cfg).accept(queue.Request{Admission: queue.Debounce{Key: "k", Window: time.Hour}})
		if err := w.client.RunNow(w.ctx, window); err != nil {
			t.Error(err)
		}
		running, waiting := c.accept(queue.Request{}), c.accept(queue.Request{Admission: queue.Idempotency{Key: "waits" + string(window)}})
		c.start(running)
		for id, want := range map[queue.JobID]queue.CancelStatus{running: queue.CancelRequested, waiting: queue.CancelledNow, dead[0]: queue.CancelTooLate} {
			if got, err := w.client.Cancel(w.ctx, id, "no need"); got != want || err != nil {
				t.Errorf("cancel: %s, %v, want %s", got, err, want)
			}
		}
		if err := errors.Join(w.client.PauseQueue(w.ctx, "q"), w.client.ResumeQueue(w.ctx, "q"), w.client.SetQueue(w.ctx, "q", queue.QueueSettings{MaxRunning: 2})); err != nil {
			t.Error(err)
		}
		c.accept(queue.Request{Queue: "purged", Admission: queue.Idempotency{Key: "purged"}})
		for range 2 {
			if _, err := w.client.Purge(w.ctx, queue.PurgeFilter{Queue: "purged"}); err != nil {
				t.Error(err)
			}
		}
		readEverything(t, c, w)
		if got := string(w.job(dead[0]).Payload); got != "null" {
			t.Errorf("an operator reads payloads: %q", got)
		}
		c.exec(`UPDATE onceq.running SET lease_until = now()`)
		c.age(400 * day)
		w.maintain()
		w.maintain()
	}
	w := c.as(queue.Config{}, "operator")
	_, err := w.client.Enqueue(w.ctx, queue.Request{Type: "t", Admission: queue.Idempotency{Key: "k2"}})
	denied(t, "enqueueing with a key", err)
	w.mayNot(`SELECT value FROM onceq.checkpoint`, `UPDATE onceq.job SET payload = '1'`, `UPDATE onceq.redrive SET actor = 'bob'`, `UPDATE onceq.event SET kind = 'x'`,
		`TRUNCATE onceq.job`, `CREATE TABLE onceq.mine ()`, `DROP TABLE onceq.job`, `DELETE FROM onceq.goose_version`)
}

func TestRoles_reader(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	w := c.as(queue.Config{}, "reader")
	zoo(c.world)
	id := c.accept(queue.Request{Payload: "a secret", Admission: queue.Idempotency{Key: "k"}})
	readEverything(t, c, w)
	if b, err := w.client.Binding(w.ctx, "", "k"); err != nil || b.JobID != id {
		t.Errorf("%+v, %v", b, err)
	}
	job := w.job(id)
	if job.Payload != nil || job.Key == nil || job.Key.Digest == "" {
		t.Errorf("a reader sees all but the payload: %+v", job)
	}
	denied(t, "a list with payloads", firstError(t, w.client.Jobs(w.ctx, queue.JobFilter{WithPayload: true})))
	_, err := w.client.Enqueue(w.ctx, queue.Request{Type: "t"})
	denied(t, "enqueueing", err)
	_, err = w.client.Cancel(w.ctx, id, "no")
	denied(t, "cancelling", err)
	_, err = w.client.Purge(w.ctx, queue.PurgeFilter{All: true})
	denied(t, "purging", err)
	_, err = w.client.Redrive(w.ctx, queue.RedriveRequest{JobID: id, RequestID: "r", Actor: "a", Reason: "b"})
	denied(t, "redriving", err)
	denied(t, "running now", w.client.RunNow(w.ctx, id))
	denied(t, "pausing", w.client.PauseQueue(w.ctx, "q"))
	report, err := w.client.Maintain(w.ctx)
	if err != nil {
		t.Error(err)
	}
	for _, task := range report.Tasks {
		denied(t, task.Name, task.Err)
	}
	w.may(`SELECT * FROM onceq.pending`, `SELECT * FROM onceq.running`, `SELECT * FROM onceq.finished`, `SELECT * FROM onceq.event`, `SELECT actor, reason FROM onceq.redrive`)
	w.mayNot(`SELECT payload FROM onceq.job`, `SELECT * FROM onceq.job`, `SELECT value FROM onceq.checkpoint`, `SELECT fingerprint FROM onceq.binding`, `SELECT request_hash FROM onceq.redrive`)
	for _, table := range []string{"job", "binding", "pending", "running", "finished", "event", "checkpoint", "queue", "upkeep", "redrive", "goose_version"} {
		w.mayNot(`DELETE FROM onceq.`+table, `INSERT INTO onceq.`+table+` DEFAULT VALUES`, `TRUNCATE onceq.`+table, `LOCK onceq.`+table+` IN EXCLUSIVE MODE`)
	}
}

// readEverything makes every call that only reads.
func readEverything(t *testing.T, c *cast, w *world) {
	t.Helper()
	for _, state := range []queue.State{"", queue.StateReady, queue.StateScheduled, queue.StateRunning, queue.StateSucceeded, queue.StateDead, queue.StateCancelled} {
		want := len(ids(t, c.client.Jobs(w.ctx, queue.JobFilter{State: state})))
		if got := len(ids(t, w.client.Jobs(w.ctx, queue.JobFilter{State: state, Tag: ""}))); got != want {
			t.Errorf("%d jobs %s, want %d", got, state, want)
		}
	}
	for _, id := range ids(t, w.client.DeadLetters(w.ctx, queue.JobFilter{Error: "paper"})) {
		kinds(t, w, id)
	}
	if stats, err := w.client.Stats(w.ctx); err != nil || len(stats) == 0 {
		t.Errorf("%+v, %v", stats, err)
	}
	if _, err := w.client.Binding(w.ctx, "", "nobody's"); !errors.Is(err, queue.ErrBindingNotFound) {
		t.Error(err)
	}
}
