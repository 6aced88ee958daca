//go:build unix

package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

const (
	// outageTime is how long there is load before an outage, how long it lasts,
	// longer than a lease, and how long there is load after it.
	outageTime = 3 * time.Second
	// recoverIn is how long after PostgreSQL's return a worker may take to work.
	recoverIn = 15 * time.Second
	callers   = 8
)

// PostgreSQL goes away under load, in three ways, and comes back. Nothing that
// was answered is lost, whatever was not can be repeated with its key, and the
// workers go on by themselves.
func TestOutage(t *testing.T) {
	s := newServer(t)
	pool := connect(t, s.url, callers+4)
	makeTables(t, pool)
	c := newClient(t, pool)
	var workers []*process
	for i := range 2 {
		workers = append(workers, start(t, spec{URL: s.url, ID: fmt.Sprint("worker-", i), Lease: fleetLease, Handlers: 8}))
	}

	for _, tt := range []struct {
		name string
		how  syscall.Signal
	}{{"fast shutdown", syscall.SIGINT}, {"immediate shutdown", syscall.SIGQUIT}, {"kill -9", syscall.SIGKILL}} {
		t.Run(tt.name, func(t *testing.T) {
			load := startLoad(t, c, tt.name)
			time.Sleep(outageTime)
			s.stop(t, tt.how)
			time.Sleep(outageTime)
			s.start(t)
			back := time.Now()
			for _, w := range workers {
				wantRecovered(t, pool, w, back)
			}
			time.Sleep(outageTime)
			load.stop()
			awaitIdle(t, pool)
			load.wantAll(t, pool)
		})
	}
	for _, w := range workers {
		w.stop(t)
	}
}

// wantRecovered waits until the worker begins a job after PostgreSQL came back.
func wantRecovered(t *testing.T, pool *pgxpool.Pool, w *process, back time.Time) {
	t.Helper()
	awaitRow(t, pool, w.id+" to begin a job", `SELECT FROM started WHERE worker = $1 AND at > $2`, w.id, back)
	took := pgtest.Scan[time.Time](t, pool, `SELECT min(at) FROM started WHERE worker = $1 AND at > $2`, w.id, back).Sub(back)
	t.Logf("%s began a job %v after PostgreSQL was back", w.id, took.Round(time.Millisecond))
	if took > recoverIn {
		t.Errorf("%s took %v to work again, allowed are %v", w.id, took, recoverIn)
	}
}

// load is callers that enqueue, and repeat every call until it succeeds.
type load struct {
	name    string
	c       *queue.Client
	ending  chan struct{}
	callers sync.WaitGroup
	failed  atomic.Int64

	mu   sync.Mutex
	told map[string]queue.JobID // by key
}

func startLoad(t *testing.T, c *queue.Client, name string) *load {
	l := &load{name: name, c: c, ending: make(chan struct{}), told: map[string]queue.JobID{}}
	for caller := range callers {
		l.callers.Go(func() { l.call(t, caller) })
	}
	t.Cleanup(l.stop)
	return l
}

// stop returns when every call has succeeded.
func (l *load) stop() {
	l.mu.Lock()
	select {
	case <-l.ending:
	default:
		close(l.ending)
	}
	l.mu.Unlock()
	l.callers.Wait()
}

func (l *load) call(t *testing.T, caller int) {
	for n := 0; ; n++ {
		select {
		case <-l.ending:
			return
		case <-time.After(rand.N(150 * time.Millisecond)):
		}
		keys := make([]string, 1+4*(n%2)) // singles and batches in turn
		for i := range keys {
			keys[i] = fmt.Sprintf("%s %d-%d-%d", l.name, caller, n, i)
		}
		ids := l.insist(t, keys)
		if t.Failed() {
			return
		}
		l.mu.Lock()
		for i, key := range keys {
			l.told[key] = ids[i]
		}
		l.mu.Unlock()
	}
}

// insist repeats a call until it succeeds.
func (l *load) insist(t *testing.T, keys []string) (ids []queue.JobID) {
	reqs := make([]queue.Request, len(keys))
	for i, key := range keys {
		reqs[i] = queue.Request{
			Type: flowType, Payload: flowWork{How: inNoTransaction, Takes: 10 * time.Millisecond}, MaxAttempts: 100,
			Admission: queue.Idempotency{Key: key},
		}
	}
	for deadline := time.Now().Add(pgtest.Patience); ; time.Sleep(rand.N(100 * time.Millisecond)) {
		results, err := l.attempt(reqs)
		if err == nil {
			for _, res := range results {
				ids = append(ids, res.JobID)
			}
			return ids
		}
		l.failed.Add(1)
		var conflict *queue.EnqueueIdempotencyConflictError
		if errors.Is(err, queue.ErrInvalidRequest) || errors.Is(err, queue.ErrSchemaOutdated) || errors.As(err, &conflict) {
			t.Errorf("an outage is told as the caller's fault: %v", err)
			return nil
		}
		if time.Now().After(deadline) {
			t.Errorf("a call was repeated for %v in vain: %v", pgtest.Patience, err)
			return nil
		}
	}
}

func (l *load) attempt(reqs []queue.Request) ([]queue.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if len(reqs) > 1 {
		return l.c.EnqueueMany(ctx, reqs)
	}
	res, err := l.c.EnqueueWithResult(ctx, reqs[0])
	return []queue.Result{res}, err
}

// wantAll wants one job for each key, the one that the caller was told of, and
// each to have succeeded with its effect.
func (l *load) wantAll(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	t.Logf("%d keys, %d calls were answered with an error and repeated", len(l.told), l.failed.Load())
	if l.failed.Load() < callers {
		t.Errorf("the test is weak: %d calls met the outage", l.failed.Load())
	}
	var ids []string
	seen := map[queue.JobID]string{}
	for key, id := range l.told {
		if other, twice := seen[id]; twice {
			t.Errorf("keys %q and %q got one job", key, other)
		}
		seen[id] = key
		ids = append(ids, string(id))
	}
	for _, check := range []struct{ why, sql string }{
		{"each key has its job, the one that was told", `SELECT count(*) FROM onceq.job WHERE id = ANY ($1::uuid[])`},
		{"each job succeeded", `SELECT count(*) FROM onceq.finished WHERE job_id = ANY ($1::uuid[]) AND state = 1`},
		{"each effect happened", `SELECT count(DISTINCT job_id) FROM effect WHERE job_id = ANY ($1::uuid[])`},
	} {
		if got := pgtest.Scan[int](t, pool, check.sql, ids); got != len(ids) {
			t.Errorf("%s: %d of %d", check.why, got, len(ids))
		}
	}
	all := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.job AS j JOIN onceq.binding AS b ON b.job_id = j.id AND b.key_hash = j.key_hash WHERE j.id = ANY ($1::uuid[])`, ids)
	if total := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.job AS j WHERE NOT EXISTS (SELECT FROM onceq.binding AS b WHERE b.job_id = j.id)`); total != 0 || all != len(ids) {
		t.Errorf("%d jobs of calls that failed were left beside the key's own", total)
	}
}
