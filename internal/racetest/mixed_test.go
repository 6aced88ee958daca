package racetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

const contested = 20 // keys that everybody wants

func contestedRequest(i int) queue.Request {
	label := fmt.Sprintf("contested-%02d", i)
	req := queue.Request{Type: "mixed", Tags: []string{label}}
	ttl := time.Duration(100+20*i) * time.Millisecond
	if i%2 == 0 {
		req.Admission = queue.Idempotency{Key: label, TTL: ttl}
	} else {
		req.Admission = queue.Throttle{Key: label, Window: ttl}
	}
	return req
}

// melee is what callers of every kind were told by requests that committed.
type melee struct {
	t      *testing.T
	pool   *pgxpool.Pool
	client *queue.Client // at read committed, for transactions of any level
	seed   uint64

	mu       sync.Mutex
	answers  []told
	accepted int
	count    map[string]int
}

// enough tells that every key has had several owners, under several clean-ups.
func (m *melee) enough() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.accepted >= 5*contested && m.count["clean-up"] >= 5
}

func (m *melee) note(kind string, reqs []queue.Request, results []queue.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count[kind]++
	for i, res := range results {
		m.answers = append(m.answers, told{reqs[i].Tags[0], res})
		if res.Outcome == queue.OutcomeAccepted {
			m.accepted++
		}
	}
}

// some is a random choice of the contested requests, in random order.
func some(r *rand.Rand) []queue.Request {
	reqs := make([]queue.Request, 1+r.IntN(contested))
	for n, i := range r.Perm(contested)[:len(reqs)] {
		reqs[n] = contestedRequest(i)
	}
	return reqs
}

// actor does one thing and notes what it was told.
type actor func(context.Context, *rand.Rand) error

func (m *melee) batch(c *queue.Client) actor {
	return func(ctx context.Context, r *rand.Rand) error {
		reqs := some(r)
		results, err := c.EnqueueMany(ctx, reqs)
		if err == nil {
			m.note("batch", reqs, results)
		}
		return err
	}
}

func (m *melee) single(c *queue.Client) actor {
	return func(ctx context.Context, r *rand.Rand) error {
		req := contestedRequest(r.IntN(contested))
		res, err := c.EnqueueWithResult(ctx, req)
		if err == nil {
			m.note("single", []queue.Request{req}, []queue.Result{res})
		}
		return err
	}
}

// transaction sends one request or one batch in a transaction of any level,
// which may then linger, and in one of five cases rolls back.
func (m *melee) transaction(ctx context.Context, r *rand.Rand) error {
	level := levels[r.IntN(len(levels))]
	tx, err := m.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if r.IntN(2) == 0 {
		if _, err := tx.Exec(ctx, "SELECT pg_sleep($1)", r.Float64()/100); err != nil { // the snapshot grows old
			return err
		}
	}
	var reqs []queue.Request
	var results []queue.Result
	if r.IntN(2) == 0 {
		reqs = some(r)
		results, err = m.client.EnqueueManyTx(ctx, tx, reqs)
	} else {
		reqs = []queue.Request{contestedRequest(r.IntN(contested))}
		var res queue.Result
		res, err = m.client.EnqueueTx(ctx, tx, reqs[0])
		results = []queue.Result{res}
	}
	if errors.Is(err, queue.ErrRetryTransaction) && level != pgx.ReadCommitted {
		m.note("to be retried", nil, nil)
		return nil
	}
	if err != nil {
		return fmt.Errorf("at %s: %w", level, err)
	}
	time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond) // others wait for us
	if r.IntN(5) == 0 {
		m.note("rolled back", nil, nil)
		return tx.Rollback(ctx)
	}
	if err := tx.Commit(ctx); err != nil {
		if sqlState(err) == "40001" && level == pgx.Serializable {
			m.note("to be retried", nil, nil)
			return nil
		}
		return fmt.Errorf("commit at %s: %w", level, err)
	}
	m.note("transaction at "+string(level), reqs, results)
	return nil
}

func (m *melee) upkeep(ctx context.Context, _ *rand.Rand) error {
	report, err := m.client.Maintain(ctx)
	if err != nil {
		return err
	}
	m.note("clean-up", nil, nil)
	for _, task := range report.Tasks {
		if task.Err != nil {
			return fmt.Errorf("task %s: %w", task.Name, task.Err)
		}
	}
	return nil
}

func TestClient_everybodyWantsTheSameKeys(t *testing.T) {
	t.Parallel()
	pool := pgtest.NewWith(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 4 })
	keepHistory(t, pool)
	trace := newTracer()
	m := &melee{t: t, seed: newSeed(t), count: map[string]int{}}
	actors := []actor{m.upkeep, m.transaction, m.transaction, m.transaction, m.transaction}
	var pools []*pgxpool.Pool
	for _, level := range levels {
		callers := pgtest.Reconnect(t, pool, func(cfg *pgxpool.Config) {
			cfg.MaxConns = 10
			cfg.ConnConfig.Tracer = trace
			cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = string(level)
		})
		c := newClient(t, callers, queue.Config{})
		if level == pgx.ReadCommitted {
			m.pool, m.client = callers, c
		}
		actors = append(actors, m.batch(c), m.single(c), m.single(c))
		pools = append(pools, callers)
	}

	goesOn := lasting(5*time.Second, m.enough)
	together(len(actors), func(i int) {
		r := random(t, m.seed, uint64(i))
		for goesOn() {
			if err := actors[i](t.Context(), r); err != nil {
				t.Errorf("requests, batches, transactions and clean-up at once are no errors, but for %v under repeatable read and serializable: %v",
					queue.ErrRetryTransaction, err)
				return
			}
		}
	})
	for _, p := range pools {
		p.Close() // which also makes its sessions hand in their statistics
	}
	if t.Failed() {
		return
	}
	if n := pgtest.Scan[int](t, pool, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n > 0 {
		t.Errorf("bindings are locked in one order, so there are no deadlocks: PostgreSQL counted %d", n)
	}
	m.judge(pool)
	t.Logf("%v, %d answers; errors inside: %v", m.count, len(m.answers), trace.errorCodes())
}

func (m *melee) judge(pool *pgxpool.Pool) {
	t := m.t
	t.Helper()
	owners, ended := judgeHistory(t, pool)
	type row struct{ ID, Label string }
	jobs := map[string]string{}
	for _, j := range pgtest.Records[row](t, pool, `SELECT id::text AS id, tags[1] AS label FROM onceq.job`) {
		jobs[j.ID] = j.Label
	}
	accepted := map[string]string{}
	for _, a := range m.answers {
		id := string(a.res.JobID)
		if jobs[id] != a.label {
			t.Errorf("an answer names a job of its own key: %s was told %+v, which is the job of %q", a.label, a.res, jobs[id])
		}
		if a.res.Outcome != queue.OutcomeAccepted {
			continue
		}
		if accepted[id] != "" {
			t.Errorf("a job is accepted once: %s was told so twice", id)
		}
		accepted[id] = a.label
		if owners[id] != 1 {
			t.Errorf("an accepted job owns its key once: %s did %d times", id, owners[id])
		}
	}
	for _, a := range m.answers {
		if accepted[string(a.res.JobID)] != a.label {
			t.Errorf("a replay names a job that somebody was accepted with for the same key: %s was told %+v", a.label, a.res)
		}
	}
	if len(accepted) != len(jobs) || len(owners) != len(jobs) {
		t.Errorf("jobs, acceptances and owners are the same: there are %d jobs, %d acceptances and %d owners", len(jobs), len(accepted), len(owners))
	}
	wantWhole(t, pool)
	if !m.enough() {
		t.Errorf("the test is weak: %d jobs, %v", len(jobs), m.count)
	}
	t.Logf("owners were ended by %v", ended)
}
