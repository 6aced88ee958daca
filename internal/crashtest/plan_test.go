//go:build unix

package crashtest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// claimSize is how many jobs a claim here asks for.
const claimSize = 100

// worked is what a worker sends to work through the default queue.
type worked struct {
	claim, look, renew, complete sent
	prefer                       sent // begins the sessions of its own; a worker that only polls has none
}

// path is which of a worker's statements are watched: those of the everyday case,
// or those that do everything.
type path struct {
	claim, complete string
	request         queue.Request
}

var paths = []path{
	{claim: "ClaimPlain", complete: "CompletePlain", request: queue.Request{Type: flowType}},
	{claim: "ClaimJobs", complete: "CompleteJobs", request: queue.Request{
		Type: flowType, ConcurrencyKey: "key", Admission: queue.Idempotency{Key: "key", TTL: time.Hour, Release: queue.ReleaseFinished},
	}},
}

// watchWorker returns the statements that a worker really sends.
func watchWorker(t *testing.T, way path) worked {
	t.Helper()
	pool, tap := tapped(t, pgtest.New(t))
	c := newClient(t, pool)
	w := newWorker(t, c, queue.WorkerConfig{Lease: time.Second, Queues: map[string]int{"default": claimSize}})
	queue.Handle(w, flowType, func(context.Context, *queue.Job[any]) error {
		tap.await(t, "RenewLeases")
		return nil
	})
	enqueue(t, c, way.request)
	stop := run(t, w)
	s := worked{
		claim: tap.await(t, way.claim), look: tap.await(t, "NextReadyAt"), renew: tap.await(t, "RenewLeases"),
		complete: tap.await(t, way.complete), prefer: tap.await(t, "PreferIndexes"),
	}
	stop()
	// However slow the machine is, what is claimed here is completed, and the claim
	// is like a worker's first, which may not have been sent: it knows of nothing
	// that is done, and asks for all.
	for _, args := range [][]any{s.claim.args, s.renew.args} {
		for i, arg := range args {
			switch arg := arg.(type) {
			case []time.Time:
				clear(arg)
			case int64:
				args[i] = int64(claimSize)
				if arg == time.Second.Microseconds() {
					args[i] = time.Hour.Microseconds()
				}
			}
		}
	}
	return s
}

// session is a worker's session, whose statements have from the start the plans
// that prepared statements end up with: one for any arguments.
type session struct {
	worked
	conn     *pgx.Conn
	compiles bool
	polls    bool
}

// newSession opens a session like a worker's own, or, if it only polls, like that
// of one that leaves the settings alone.
func (s worked) newSession(t *testing.T, pool *pgxpool.Pool, polls bool) *session {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(ctx) })
	pgtest.Exec(t, conn, "SET plan_cache_mode = force_generic_plan")
	if !polls {
		pgtest.Exec(t, conn, s.prefer.sql)
	}
	for _, stmt := range []sent{s.claim, s.look, s.renew, s.complete} {
		pgtest.Exec(t, conn, "PREPARE "+stmt.name+" AS "+stmt.sql)
	}
	w := &session{worked: s, conn: conn, compiles: pgtest.Scan[string](t, conn, "SHOW jit") == "on", polls: polls}
	w.cycle(t, atFirst)
	return w
}

// atFirst is when the plans are made. There may be nothing to claim.
const atFirst = "at first"

// pages are how many pages of the queue's tables and indexes statements touch.
type pages struct{ claim, look, renew, complete int }

// cycle claims jobs, looks ahead, renews the leases and completes the jobs.
func (w *session) cycle(t *testing.T, when string) pages {
	t.Helper()
	var p pages
	p.claim = w.explain(t, when, w.claim, w.claim.args)
	p.look = w.explain(t, when, w.look, w.look.args)
	type lease struct {
		ID    string
		Fence int32
	}
	ids, fences := []string{}, []int32{}
	for _, l := range pgtest.Records[lease](t, w.conn, `SELECT job_id::text AS id, fence FROM onceq.running`) {
		ids, fences = append(ids, l.ID), append(fences, l.Fence)
	}
	if when != atFirst && len(ids) != claimSize {
		t.Fatalf("%s: %d jobs were claimed, want %d", when, len(ids), claimSize)
	}
	p.renew = w.explain(t, when, w.renew, retarget(w.renew.args, ids, fences))
	p.complete = w.explain(t, when, w.complete, retarget(w.complete.args, ids, fences))
	if n := pgtest.Scan[int](t, w.conn, `SELECT count(*) FROM onceq.running`); n != 0 {
		t.Fatalf("%s: %d jobs were not completed", when, n)
	}
	return p
}

// retarget puts other leases into the arguments of an owner's statement.
func retarget(args []any, ids []string, fences []int32) []any {
	args = slices.Clone(args)
	for i, arg := range args {
		switch arg.(type) {
		case []string:
			args[i] = ids
		case []int32:
			args[i] = fences
		case []bool:
			args[i] = make([]bool, len(ids))
		}
	}
	return args
}

// median runs some cycles and returns the middle of each number.
func (w *session) median(t *testing.T, when string) pages {
	t.Helper()
	var claim, look, renew, complete []int
	for range 5 {
		p := w.cycle(t, when)
		claim, look, renew, complete = append(claim, p.claim), append(look, p.look), append(renew, p.renew), append(complete, p.complete)
	}
	middle := func(n []int) int {
		slices.Sort(n)
		return n[len(n)/2]
	}
	return pages{middle(claim), middle(look), middle(renew), middle(complete)}
}

// took claims jobs and returns how long it took.
func (w *session) took(t *testing.T) time.Duration {
	t.Helper()
	call := w.call(t, w.claim, w.claim.args)
	began := time.Now()
	pgtest.Exec(t, w.conn, call)
	return time.Since(began)
}

// call is EXECUTE with the arguments, which EXPLAIN wants as constants.
func (w *session) call(t *testing.T, s sent, args []any) string {
	t.Helper()
	described, err := w.conn.Prepare(context.Background(), "described "+s.name, s.sql)
	if err != nil {
		t.Fatal(err)
	}
	constants := make([]string, len(args))
	for i, arg := range args {
		text, err := w.conn.TypeMap().Encode(described.ParamOIDs[i], pgtype.TextFormatCode, arg, nil)
		if err != nil {
			t.Fatal(err)
		}
		constants[i] = "'" + strings.ReplaceAll(string(text), "'", "''") + "'"
	}
	return "EXECUTE " + s.name + " (" + strings.Join(constants, ", ") + ")"
}

// node is a part of what EXPLAIN tells of a plan.
type node struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Loops    float64 `json:"Actual Loops"`
	Cost     float64 `json:"Total Cost"`
	Plans    []node
}

func (n node) walk(visit func(node)) {
	visit(n)
	for _, child := range n.Plans {
		child.walk(visit)
	}
}

// jitAboveCost is PostgreSQL's default.
const jitAboveCost = 100_000

// explain runs a statement, wants indexes to lead it to its rows, and returns how
// many pages it touched.
func (w *session) explain(t *testing.T, when string, s sent, args []any) int {
	t.Helper()
	const touched = `SELECT sum(pg_stat_get_xact_blocks_fetched(oid))::bigint FROM pg_class WHERE relnamespace = 'onceq'::regnamespace`
	call := w.call(t, s, args)
	pgtest.Exec(t, w.conn, "BEGIN")
	before := pgtest.Scan[int](t, w.conn, touched)
	text := pgtest.Scan[string](t, w.conn, "EXPLAIN (ANALYZE, FORMAT JSON) "+call)
	after := pgtest.Scan[int](t, w.conn, touched)
	pgtest.Exec(t, w.conn, "COMMIT")

	var plans []struct{ Plan node }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	plans[0].Plan.walk(func(n node) {
		// Without settings of its own a session may well read running, which is short.
		whole := n.Type == "Seq Scan" && n.Loops > 0 && (n.Relation != "running" || !w.polls)
		if whole && slices.Contains([]string{"job", "pending", "running", "finished"}, n.Relation) {
			t.Errorf("%s: %s reads onceq.%s whole, %v times", when, s.name, n.Relation, n.Loops)
		}
	})
	if cost := plans[0].Plan.Cost; w.compiles && cost >= jitAboveCost {
		t.Errorf("%s: %s is compiled each time, for a cost of %v", when, s.name, cost)
	}
	return after - before
}

// fill adds jobs numbered from first on, straight into the tables: ready, due
// since an hour, in the order of their numbers; scheduled, due from tomorrow
// on; or finished.
func fill(t *testing.T, pool *pgxpool.Pool, where string, first, jobs int) {
	t.Helper()
	began := time.Now()
	due := map[string]string{
		"ready": "now() - interval '1 hour'", "scheduled": "now() + interval '1 day'", "finished": "now() - interval '1 day'",
	}[where]
	const id = `('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid`
	instant := due + " + n * interval '1 microsecond'"
	numbers := fmt.Sprintf("FROM generate_series(%d, %d) AS n", first, first+jobs-1)
	pgtest.Exec(t, pool, `INSERT INTO onceq.job (id, accepted_at, run_at, priority, max_attempts, queue, type, payload)
		SELECT `+id+`, least(`+instant+`, now()), `+instant+`, 0, 25, 'default', '`+flowType+`', '{"n": 1}' `+numbers)
	if where == "finished" {
		pgtest.Exec(t, pool, `INSERT INTO onceq.finished (finished_at, claimed_at, job_id, state, attempt, worker_id)
			SELECT `+instant+`, `+instant+`, `+id+`, 1, 1, 'past' `+numbers)
	} else {
		pgtest.Exec(t, pool, `INSERT INTO onceq.pending (ready_at, job_id, priority, queue, type)
			SELECT `+instant+`, `+id+`, 0, 'default', '`+flowType+`' `+numbers)
	}
	t.Logf("%d %s jobs made in %v", jobs, where, time.Since(began).Round(time.Millisecond))
}

// vacuum removes what is dead in the tables and takes their statistics.
func vacuum(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for _, table := range []string{"job", "pending", "running", "finished"} {
		pgtest.Exec(t, pool, "VACUUM (ANALYZE) onceq."+table)
	}
}
