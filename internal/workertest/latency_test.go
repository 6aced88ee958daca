package workertest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// The tests of this file measure times, so they run alone: they are not
// parallel. Tests and PostgreSQL share the machine and its clock.

// lateness is how long after the instant in its payload each job was started.
func lateness(w *queue.Worker) <-chan time.Duration {
	late := make(chan time.Duration, 1000)
	queue.Handle(w, workType, func(_ context.Context, job *queue.Job[int64]) error {
		late <- time.Since(time.UnixMicro(job.Payload))
		return nil
	})
	return late
}

// spread is the shortest, the median, the 99th in a hundred and the longest of
// some times.
type spread struct{ min, p50, p99, max time.Duration }

func (s spread) String() string {
	return fmt.Sprintf("p50 %v, p99 %v, max %v", s.p50, s.p99, s.max)
}

func collect(t testing.TB, late <-chan time.Duration, n int) spread {
	t.Helper()
	var all []time.Duration
	for range n {
		all = append(all, awaitClosed(t, "a job to start", late).Round(10*time.Microsecond))
	}
	slices.Sort(all)
	return spread{all[0], all[n/2], all[(n-1)*99/100], all[n-1]}
}

// writes has the machine watched by small writes to a table of their own.
func writes(t testing.TB, pool *pgxpool.Pool) (longest func() time.Duration) {
	t.Helper()
	exec(t, pool, `CREATE TABLE small (at timestamptz)`)
	return standstill(t, func(ctx context.Context) { _, _ = pool.Exec(ctx, `INSERT INTO small VALUES (now())`) })
}

// wantSpread holds the times against bounds that a loaded machine keeps too, but
// for what it stood still.
func wantSpread(t testing.TB, what string, got spread, p50, longest, stood time.Duration) {
	t.Helper()
	t.Logf("%s: %v; a small write took %v at most", what, got, stood.Round(10*time.Microsecond))
	if got.min < 0 {
		t.Errorf("%s: a job was started %v too early", what, -got.min)
	}
	if got.p50 > pace*p50+stood || got.max > pace*longest+stood {
		t.Errorf("%s may be %v in the median and %v at most, but is %v", what, p50, longest, got)
	}
}

// The product's promise is a p99 below 250 ms; what is asserted leaves room for
// a machine that does other things too.
func TestLatency_scheduledJobsOnAnIdleWorker(t *testing.T) {
	for name, cfg := range map[string]queue.Config{"with notifications": {}, "polling only": {PollOnly: true}} {
		t.Run(name, func(t *testing.T) {
			pool := pgtest.New(t)
			c := newClient(t, pool, cfg)
			w := newWorker(t, c, queue.WorkerConfig{PollInterval: 200 * time.Millisecond})
			late := lateness(w)
			start(t, w)
			stood := writes(t, pool)
			at := clock(t, pool).Add(time.Second)
			var reqs []queue.Request
			for range 100 {
				at = at.Add(17 * time.Millisecond)
				reqs = append(reqs, queue.Request{Type: workType, RunAt: at, Payload: at.UnixMicro()})
			}
			acceptMany(t, c, reqs)
			wantSpread(t, "lateness of 100 scheduled jobs", collect(t, late, len(reqs)), 250*time.Millisecond, time.Second, stood())
		})
	}
}

func TestLatency_readyJobsOnAnIdleWorker(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  queue.Config
		poll time.Duration
	}{
		{"notifications wake it up", queue.Config{}, 10 * time.Second},
		{"polling finds them", queue.Config{PollOnly: true}, 20 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pool := pgtest.New(t)
			c := newClient(t, pool, tt.cfg)
			w := newWorker(t, c, queue.WorkerConfig{PollInterval: tt.poll})
			late := lateness(w)
			start(t, w)
			accept(t, c, queue.Request{Type: workType, Payload: time.Now().UnixMicro()})
			collect(t, late, 1) // it listens by now
			stood := writes(t, pool)
			all := make(chan time.Duration, 100)
			for range 60 {
				accept(t, c, queue.Request{Type: workType, Payload: time.Now().UnixMicro()})
				all <- awaitClosed(t, "a job to start", late)
			}
			wantSpread(t, "time from a request to its handler", collect(t, all, 60), 100*time.Millisecond, 2*time.Second, stood())
		})
	}
}
