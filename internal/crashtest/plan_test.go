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

// capture returns a statement that a worker really sends, with its first
// arguments: one that serves the default queue, with 100 free handlers.
func capture(t *testing.T, name string) sent {
	t.Helper()
	pool, tap := tapped(t, pgtest.New(t))
	w := newWorker(t, newClient(t, pool), queue.WorkerConfig{Lease: time.Hour, Queues: map[string]int{"default": claimSize}})
	queue.Handle(w, flowType, func(context.Context, *queue.Job[any]) error { return nil })
	stop := run(t, w)
	s := tap.await(t, name)
	stop()
	return s
}

// claimSize is how many jobs a claim here asks for.
const claimSize = 100

// prepared is a statement in a session where it has, from the start, the plan
// that prepared statements end up with: one for any arguments.
type prepared struct {
	conn *pgx.Conn
	call string // EXECUTE with the arguments
}

func (s sent) prepare(t *testing.T, pool *pgxpool.Pool) *prepared {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(ctx) })
	described, err := conn.Prepare(ctx, "described", s.sql)
	if err != nil {
		t.Fatal(err)
	}
	args := make([]string, len(s.args))
	for i, arg := range s.args {
		text, err := conn.TypeMap().Encode(described.ParamOIDs[i], pgtype.TextFormatCode, arg, nil)
		if err != nil {
			t.Fatal(err)
		}
		args[i] = "'" + strings.ReplaceAll(string(text), "'", "''") + "'"
	}
	p := &prepared{conn: conn, call: "EXECUTE claim (" + strings.Join(args, ", ") + ")"}
	p.run(t, "SET plan_cache_mode = force_generic_plan")
	p.run(t, "PREPARE claim AS "+s.sql)
	return p
}

func (p *prepared) run(t *testing.T, sql string) {
	t.Helper()
	if _, err := p.conn.Exec(context.Background(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%.80s: %v", sql, err)
	}
}

// node is a part of what EXPLAIN tells of a plan.
type node struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Loops    float64 `json:"Actual Loops"`
	Rows     float64 `json:"Actual Rows"`
	Cost     float64 `json:"Total Cost"`
	Plans    []node
}

func (n node) walk(visit func(node)) {
	visit(n)
	for _, child := range n.Plans {
		child.walk(visit)
	}
}

// explained is one run of a statement.
type explained struct {
	plan    node
	buffers int // pages of the queue's tables and indexes that it touched
}

// explain runs the statement and keeps what it did.
func (p *prepared) explain(t *testing.T) explained {
	t.Helper()
	const touched = `SELECT sum(pg_stat_get_xact_blocks_fetched(oid))::bigint FROM pg_class WHERE relnamespace = 'onceq'::regnamespace`
	p.run(t, "BEGIN")
	before := scan[int](t, p.conn, touched)
	var text string
	err := p.conn.QueryRow(context.Background(), "EXPLAIN (ANALYZE, FORMAT JSON) "+p.call, pgx.QueryExecModeSimpleProtocol).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	after := scan[int](t, p.conn, touched)
	p.run(t, "COMMIT")
	var plans []struct{ Plan node }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	return explained{plan: plans[0].Plan, buffers: after - before}
}

// median explains several runs, wants indexes to lead each to its rows, and
// returns how many pages the middle one touched.
func (p *prepared) median(t *testing.T, when string) int {
	t.Helper()
	var buffers []int
	for range 5 {
		e := p.explain(t)
		e.plan.walk(func(n node) {
			if n.Type == "Seq Scan" && n.Loops > 0 && slices.Contains([]string{"job", "pending", "running", "finished"}, n.Relation) {
				t.Errorf("%s: onceq.%s is read whole, %v times", when, n.Relation, n.Loops)
			}
		})
		if e.plan.Cost >= jitAboveCost {
			t.Errorf("%s: the plan's cost, %v, makes PostgreSQL compile it, each time", when, e.plan.Cost)
		}
		buffers = append(buffers, e.buffers)
	}
	slices.Sort(buffers)
	return buffers[len(buffers)/2]
}

// jitAboveCost is PostgreSQL's default.
const jitAboveCost = 100_000

// took runs the statement and returns how long it took.
func (p *prepared) took(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	p.run(t, p.call)
	return time.Since(began)
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
	execute(t, pool, `INSERT INTO onceq.job (id, accepted_at, run_at, priority, max_attempts, queue, type, payload)
		SELECT `+id+`, least(`+instant+`, now()), `+instant+`, 0, 25, 'default', '`+flowType+`', '{"n": 1}' `+numbers)
	if where == "finished" {
		execute(t, pool, `INSERT INTO onceq.finished (finished_at, claimed_at, job_id, state, attempt, worker_id)
			SELECT `+instant+`, `+instant+`, `+id+`, 1, 1, 'past' `+numbers)
	} else {
		execute(t, pool, `INSERT INTO onceq.pending (ready_at, job_id, priority, queue, type)
			SELECT `+instant+`, `+id+`, 0, 'default', '`+flowType+`' `+numbers)
	}
	t.Logf("%d %s jobs made in %v", jobs, where, time.Since(began).Round(time.Millisecond))
}
