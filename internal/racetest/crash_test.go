package racetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// doomed is a caller that loses its connection at a random moment of its call:
// PostgreSQL ends the session, or the answer never arrives.
type doomed struct {
	healthy *pgxpool.Pool
	client  *queue.Client // on healthy

	mu    sync.Mutex
	reach map[string]time.Duration // the latest moment of a call at which to end its session
	count map[string]int
}

// line is a connection to PostgreSQL that breaks when it has delivered so many
// pieces of answers; a negative number is any number.
type line struct {
	net.Conn
	pieces *atomic.Int64
}

func (l line) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if l.pieces.Load() < 0 || l.pieces.Add(-1) >= 0 {
		return n, err
	}
	return 0, errors.Join(io.ErrUnexpectedEOF, l.Conn.Close())
}

// call is one kind of call. It returns the ids that it was told.
type call struct {
	name    string
	size    int // requests in it
	answers int // pieces in which its answers arrive, about
	do      func(ctx context.Context, pool *pgxpool.Pool, c *queue.Client, reqs []queue.Request) ([]queue.Result, error)
}

var calls = []call{
	{"Enqueue", 1, 1, func(ctx context.Context, _ *pgxpool.Pool, c *queue.Client, reqs []queue.Request) ([]queue.Result, error) {
		res, err := c.EnqueueWithResult(ctx, reqs[0])
		return []queue.Result{res}, err
	}},
	{"EnqueueMany", 50, 2, func(ctx context.Context, _ *pgxpool.Pool, c *queue.Client, reqs []queue.Request) ([]queue.Result, error) {
		return c.EnqueueMany(ctx, reqs)
	}},
	{"EnqueueTx", 2, 7, func(ctx context.Context, pool *pgxpool.Pool, c *queue.Client, reqs []queue.Request) (results []queue.Result, err error) {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			for _, req := range reqs {
				res, err := c.EnqueueTx(ctx, tx, req)
				if err != nil {
					return err
				}
				results = append(results, res)
				if _, err := tx.Exec(ctx, "INSERT INTO business VALUES ($1, $2)", req.Tags[0], string(res.JobID)); err != nil {
					return err
				}
			}
			return nil
		})
		return results, err
	}},
	{"EnqueueManyTx", 20, 27, func(ctx context.Context, pool *pgxpool.Pool, c *queue.Client, reqs []queue.Request) (results []queue.Result, err error) {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if results, err = c.EnqueueManyTx(ctx, tx, reqs); err != nil {
				return err
			}
			for i, res := range results {
				if _, err := tx.Exec(ctx, "INSERT INTO business VALUES ($1, $2)", reqs[i].Tags[0], string(res.JobID)); err != nil {
					return err
				}
			}
			return nil
		})
		return results, err
	}},
}

func TestClient_callersThatDie(t *testing.T) {
	t.Parallel()
	pool := pgtest.NewWith(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 16 })
	pgtest.Exec(t, pool, `CREATE TABLE business (label text NOT NULL, job_id text NOT NULL)`)
	d := &doomed{healthy: pool, client: newClient(t, pool, queue.Config{}), reach: map[string]time.Duration{}, count: map[string]int{}}
	seed := newSeed(t)

	t.Run("at any moment: all of the call is there, or nothing, and the repeat is answered", func(t *testing.T) {
		const workers = 6
		together(workers, func(worker int) {
			r := random(t, seed, uint64(worker))
			for n := range pgtest.Rounds(300) / workers {
				d.die(t, r, calls[n%len(calls)], fmt.Sprintf("doomed-%d-%d", worker, n))
			}
		})
		wantWhole(t, pool)
		for _, outcome := range []string{"told and all is there", "dead and nothing is there", "dead and all is there"} {
			if d.count[outcome] < pgtest.Rounds(300)/20 {
				t.Errorf("the test is weak: %v", d.count)
			}
		}
		t.Log(d.count)
	})
	for n := range 5 {
		d.dieHolding(t, fmt.Sprint("holding-", n))
		d.dieWaiting(t, fmt.Sprint("waiting-", n))
	}
	wantWhole(t, pool)
}

func fatal(label string, i int) queue.Request {
	key := fmt.Sprintf("%s-%d", label, i)
	return queue.Request{Type: "doomed", Tags: []string{key}, Payload: key, Admission: queue.Idempotency{Key: key}}
}

// victim is a caller with one connection and a client that has looked at the
// schema already.
type victim struct {
	pool   *pgxpool.Pool
	client *queue.Client
	pid    uint32        // of the backend that serves it
	pieces *atomic.Int64 // of its line
}

func (d *doomed) connect(t *testing.T) victim {
	t.Helper()
	v := victim{pieces: &atomic.Int64{}}
	v.pieces.Store(-1)
	cfg := d.healthy.Config()
	pgtest.Unpinged(cfg)
	cfg.MaxConns = 1
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return line{conn, v.pieces}, err
	}
	var err error
	if v.pool, err = pgxpool.NewWithConfig(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	v.client = newClient(t, v.pool, queue.Config{PollOnly: true})
	if _, err := v.client.Enqueue(t.Context(), fatal("warm", 0)); err != nil {
		t.Error(err)
	}
	v.pid = pgtest.Scan[uint32](t, v.pool, `SELECT pg_backend_pid()`)
	return v
}

// kill ends a backend and returns when nothing is left of it.
func (d *doomed) kill(t *testing.T, pid uint32) {
	if _, err := d.healthy.Exec(context.Background(), `SELECT pg_terminate_backend($1, 60000)`, pid); err != nil {
		t.Error(err)
	}
}

func (d *doomed) die(t *testing.T, r *rand.Rand, kind call, label string) {
	v := d.connect(t)
	defer v.pool.Close()
	reqs := make([]queue.Request, kind.size)
	for i := range reqs {
		reqs[i] = fatal(label, i)
	}

	d.mu.Lock()
	if d.reach[kind.name] == 0 {
		d.reach[kind.name] = 5 * time.Millisecond
	}
	moment := time.Duration(r.Float64() * float64(d.reach[kind.name]))
	d.mu.Unlock()
	cut := r.IntN(3) == 0
	if cut {
		v.pieces.Store(int64(kind.answers - 1)) // only the last one is lost
		if r.IntN(2) == 0 {
			v.pieces.Store(r.Int64N(int64(kind.answers)))
		}
		moment = time.Minute
	}
	killed := make(chan struct{})
	timer := time.AfterFunc(moment, func() {
		defer close(killed)
		d.kill(t, v.pid)
	})
	results, err := kind.do(t.Context(), v.pool, v.client, reqs)
	if cut && timer.Stop() {
		d.kill(t, v.pid) // it will have noticed, or will now
	} else {
		<-killed
	}

	outcome := d.judge(t, kind, reqs, results, err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count[outcome]++
	switch { // so that about half of the sessions end too late to matter
	case cut:
	case err != nil:
		d.reach[kind.name] = d.reach[kind.name] * 11 / 10
	default:
		d.reach[kind.name] = d.reach[kind.name] * 10 / 11
	}
}

// judge wants all of a call or nothing, what the caller was told if it was told
// anything, and a repeat that finds the job or makes it.
func (d *doomed) judge(t *testing.T, kind call, reqs []queue.Request, results []queue.Result, err error) string {
	labels := make([]string, len(reqs))
	for i, req := range reqs {
		labels[i] = req.Tags[0]
	}
	type row struct{ Label, ID string }
	stored := map[string]string{}
	for _, j := range pgtest.Records[row](t, d.healthy, `SELECT j.tags[1] AS label, j.id::text AS id FROM onceq.job AS j
		JOIN onceq.pending AS p ON p.job_id = j.id JOIN onceq.binding AS b ON b.job_id = j.id AND b.key_hash = j.key_hash
		WHERE j.tags[1] = ANY ($1)`, labels) {
		stored[j.Label] = j.ID
	}
	if len(stored) != 0 && len(stored) != len(reqs) {
		t.Errorf("%s: a caller that dies leaves all of its call or nothing: %d of %d requests are there", kind.name, len(stored), len(reqs))
	}
	if n := pgtest.Scan[int](t, d.healthy, `SELECT count(*) FROM onceq.job WHERE tags[1] = ANY ($1)`, labels); n != len(stored) {
		t.Errorf("%s: a job commits with its binding and its place: of %d jobs %d have both", kind.name, n, len(stored))
	}
	if kind.name == "EnqueueTx" || kind.name == "EnqueueManyTx" {
		if n := pgtest.Scan[int](t, d.healthy, `SELECT count(*) FROM business WHERE label = ANY ($1)`, labels); n != len(stored) {
			t.Errorf("%s: jobs and business rows commit together: %d jobs, %d rows", kind.name, len(stored), n)
		}
	}
	if err == nil {
		for i, res := range results {
			if stored[labels[i]] != string(res.JobID) || res.Outcome != queue.OutcomeAccepted {
				t.Errorf("%s: what a caller was told is so: it was told %+v, stored is %q", kind.name, res, stored[labels[i]])
			}
		}
	}
	again, repeatErr := d.client.EnqueueMany(t.Context(), reqs)
	if repeatErr != nil {
		t.Errorf("%s: to repeat a request is always safe: %v", kind.name, repeatErr)
		return ""
	}
	for i, res := range again {
		id, found := stored[labels[i]]
		if found && res != (queue.Result{JobID: queue.JobID(id), Outcome: queue.OutcomeReplayed}) {
			t.Errorf("%s: the job %s was there, the repeat is %+v", kind.name, id, res)
		}
		if !found && (res.Outcome != queue.OutcomeAccepted || res.JobID == "") {
			t.Errorf("%s: nothing was there, the repeat is %+v", kind.name, res)
		}
	}
	outcome := "told"
	if err != nil {
		outcome = "dead"
	}
	if len(stored) == 0 {
		return outcome + " and nothing is there"
	}
	return outcome + " and all is there"
}

// dieHolding lets the owner of a key die while another caller waits for it.
func (d *doomed) dieHolding(t *testing.T, label string) {
	t.Run("the owner of a key dies: the one that waits is accepted, "+label, func(t *testing.T) {
		v := d.connect(t)
		defer v.pool.Close()
		tx, err := v.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		lost, err := v.client.EnqueueTx(t.Context(), tx, fatal(label, 0))
		if err != nil {
			t.Fatal(err)
		}
		answer := make(chan error, 1)
		go func() {
			answer <- want(queue.OutcomeAccepted)(d.client.EnqueueWithResult(t.Context(), fatal(label, 0)))
		}()
		pgtest.AwaitBlocked(t, d.healthy, 1)
		d.kill(t, v.pid)
		if err := <-answer; err != nil {
			t.Errorf("the transaction that held the key is gone: %v", err)
		}
		if n := pgtest.Scan[int](t, d.healthy, `SELECT count(*) FROM onceq.job WHERE id = $1`, string(lost.JobID)); n != 0 {
			t.Errorf("the job of a transaction that never committed is there")
		}
		if err := tx.Commit(t.Context()); err == nil {
			t.Error("the connection was not ended")
		}
	})
}

// dieWaiting lets a caller die that waits for the owner of its key.
func (d *doomed) dieWaiting(t *testing.T, label string) {
	t.Run("one that waits dies: the owner is not disturbed, "+label, func(t *testing.T) {
		tx, err := d.healthy.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		owner, err := d.client.EnqueueTx(t.Context(), tx, fatal(label, 0))
		if err != nil {
			t.Fatal(err)
		}
		v := d.connect(t)
		defer v.pool.Close()
		answer := make(chan error, 1)
		go func() {
			_, err := v.client.EnqueueMany(t.Context(), []queue.Request{fatal(label, 1), fatal(label, 0)})
			answer <- err
		}()
		pgtest.AwaitBlocked(t, d.healthy, 1)
		d.kill(t, v.pid)
		if err := <-answer; err == nil {
			t.Error("the connection was not ended")
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		res, err := d.client.EnqueueWithResult(t.Context(), fatal(label, 0))
		if err != nil || res != (queue.Result{JobID: owner.JobID, Outcome: queue.OutcomeReplayed}) {
			t.Errorf("the owner of the key is %s, the repeat is %+v, %v", owner.JobID, res, err)
		}
		if err := want(queue.OutcomeAccepted)(d.client.EnqueueWithResult(t.Context(), fatal(label, 1))); err != nil {
			t.Errorf("nothing is left of a batch that died: %v", err)
		}
	})
}
