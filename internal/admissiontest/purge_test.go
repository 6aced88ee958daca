package admissiontest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/pkg/queue"
)

// purge must not fail.
func (w *world) purge(f queue.PurgeFilter, want int64) {
	w.t.Helper()
	if n, err := w.client.Purge(w.ctx, f); err != nil || n != want {
		w.t.Errorf("purge %+v: %d, %v, want %d", f, n, err, want)
	}
}

// whole fails where rows of different tables do not fit.
func (w *world) whole() {
	w.t.Helper()
	for what, sql := range map[string]string{
		"bindings without a job":    "SELECT count(*) FROM onceq.binding b WHERE NOT EXISTS (SELECT FROM onceq.job j WHERE j.id = b.job_id)",
		"places without a job":      "SELECT count(*) FROM onceq.pending p WHERE NOT EXISTS (SELECT FROM onceq.job j WHERE j.id = p.job_id)",
		"events without a job":      "SELECT count(*) FROM onceq.event e WHERE kind <> 'purged' AND NOT EXISTS (SELECT FROM onceq.job j WHERE j.id = e.job_id)",
		"checkpoints without a job": "SELECT count(*) FROM onceq.checkpoint c WHERE NOT EXISTS (SELECT FROM onceq.job j WHERE j.id = c.job_id)",
		"jobs without one place": `SELECT count(*) FROM onceq.job j WHERE 1 <>
			(SELECT count(*) FROM onceq.pending p WHERE p.queue = j.queue AND p.priority = j.priority AND p.ready_at = greatest(j.run_at, j.accepted_at) AND p.job_id = j.id)
			+ (SELECT count(*) FROM onceq.running r WHERE r.job_id = j.id) + (SELECT count(*) FROM onceq.finished f WHERE f.job_id = j.id)`,
		"places that their job does not lead to": `SELECT count(*) FROM onceq.pending p JOIN onceq.job j ON j.id = p.job_id
			WHERE (p.queue, p.priority, p.ready_at, p.type, p.deadline, p.concurrency_key)
			IS DISTINCT FROM (j.queue, j.priority, greatest(j.run_at, j.accepted_at), j.type, j.deadline, j.concurrency_key)`,
		"second waiting jobs of a debounced key": `SELECT count(*) FROM (
			SELECT j.key_hash FROM onceq.job j JOIN onceq.pending p ON p.job_id = j.id WHERE j.key_mode = 2 AND p.fence = 0 GROUP BY 1 HAVING count(*) > 1) AS double`,
	} {
		if n := w.count(sql); n != 0 {
			w.t.Errorf("%d %s", n, what)
		}
	}
}

func TestPurge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := func(q, typ, key string) queue.JobID {
		return w.enqueue(queue.Request{Type: typ, Queue: q, Admission: queue.Idempotency{Key: key}}).JobID
	}
	t.Run("a filter that names nothing is refused", func(t *testing.T) {
		id := in("keep", "t", "keep")
		for _, f := range []queue.PurgeFilter{
			{}, {JobIDs: []queue.JobID{}}, {JobIDs: []queue.JobID{}, Queue: "keep"}, {JobIDs: make([]queue.JobID, 10_001)},
			{Queue: " keep"}, {Type: "t\n"}, {All: true, Queue: strings.Repeat("q", 256)},
		} {
			if _, err := w.client.Purge(w.ctx, f); !errors.Is(err, queue.ErrInvalidRequest) {
				t.Errorf("%d ids, %+v: got %v, want ErrInvalidRequest", len(f.JobIDs), f.Queue, err)
			}
		}
		_, err := w.client.Purge(w.ctx, queue.PurgeFilter{JobIDs: []queue.JobID{id, "no id", id, "x"}})
		if !errors.Is(err, queue.ErrInvalidRequest) || !strings.Contains(err.Error(), "id 1 ") || !strings.Contains(err.Error(), "id 3 ") {
			t.Errorf("malformed ids: got %v", err)
		}
		w.job(id)
	})
	t.Run("keys are free at once, and all that belongs to a job goes", func(t *testing.T) {
		id := in("a", "t", "k1")
		debounced := w.enqueue(queue.Request{Type: "t", Queue: "a", Admission: queue.Debounce{Key: "k2", Window: time.Hour}}).JobID
		w.enqueue(queue.Request{Type: "t", Queue: "a", Admission: queue.Debounce{Key: "k2", Window: time.Hour}})
		plain := w.enqueue(queue.Request{Type: "t", Queue: "a"}).JobID
		w.exec("INSERT INTO onceq.checkpoint (saved_at, job_id, attempt, name, value) VALUES (now(), $1, 1, 'stage', '1')", string(id))
		w.exec("UPDATE onceq.pending SET fence = 1, attempt = 1 WHERE job_id = $1", string(id)) // it waits for a retry
		w.purge(queue.PurgeFilter{Queue: "a"}, 3)
		for _, gone := range []queue.JobID{id, debounced, plain} {
			if _, err := w.client.Job(w.ctx, gone); !errors.Is(err, queue.ErrJobNotFound) {
				t.Errorf("job %s is still there: %v", gone, err)
			}
		}
		if again := in("a", "t", "k1"); again == id {
			t.Error("the key still answered")
		}
		if res := w.enqueue(queue.Request{Type: "t", Queue: "a", Admission: queue.Debounce{Key: "k2", Window: time.Hour}}); res.Outcome != queue.OutcomeAccepted {
			t.Errorf("got %+v", res)
		}
		w.purge(queue.PurgeFilter{Queue: "a"}, 2)
		if n := w.count("SELECT count(*) FROM onceq.event WHERE job_id = '00000000-0000-0000-0000-000000000000' AND kind = 'purged'"); n != 2 {
			t.Errorf("two purges left %d summaries", n)
		}
		if n := w.count("SELECT (details->>'jobs')::int FROM onceq.event WHERE kind = 'purged' AND details->'filter' = '{\"queue\": \"a\"}' ORDER BY at LIMIT 1"); n != 3 {
			t.Errorf("the first summary tells of %d jobs", n)
		}
		w.whole()
	})
	t.Run("filters are all asked for", func(t *testing.T) {
		a, b, c := in("f1", "x", "f1x"), in("f1", "y", "f1y"), in("f2", "x", "f2x")
		w.purge(queue.PurgeFilter{Queue: "f1", Type: "x", JobIDs: []queue.JobID{b, c}}, 0)
		w.purge(queue.PurgeFilter{Queue: "f1", Type: "x"}, 1)
		w.purge(queue.PurgeFilter{Type: "x", JobIDs: []queue.JobID{a, b, c, c}}, 1)
		w.purge(queue.PurgeFilter{Type: "y", All: true}, 1)
		w.purge(queue.PurgeFilter{Type: "y"}, 0)
	})
	t.Run("running and ended jobs stay, with their keys", func(t *testing.T) {
		running, ended := in("r", "t", "r1"), in("r", "t", "r2")
		w.start(running)
		w.start(ended)
		w.finish(ended, 1)
		w.purge(queue.PurgeFilter{JobIDs: []queue.JobID{running, ended}}, 0)
		if w.binding("r1").JobID != running || w.binding("r2").JobID != ended {
			t.Error("a key was freed")
		}
	})
	t.Run("a job that lost its key does not free the new owner's", func(t *testing.T) {
		old := w.enqueue(queue.Request{Type: "t", Queue: "own", RunAt: time.Now().Add(time.Hour), Admission: queue.Idempotency{Key: "own", TTL: time.Millisecond}}).JobID
		time.Sleep(5 * time.Millisecond)
		fresh := in("own2", "t", "own")
		w.purge(queue.PurgeFilter{JobIDs: []queue.JobID{old}}, 1)
		if w.binding("own").JobID != fresh {
			t.Error("the new owner lost its key")
		}
	})
	t.Run("a job that a transaction holds is left alone", func(t *testing.T) {
		id := in("held", "t", "held")
		tx := w.begin()
		if _, err := tx.Exec(w.ctx, "SELECT FROM onceq.pending WHERE job_id = $1 FOR UPDATE", string(id)); err != nil {
			t.Fatal(err)
		}
		w.purge(queue.PurgeFilter{Queue: "held"}, 0)
		if err := tx.Rollback(w.ctx); err != nil {
			t.Fatal(err)
		}
		w.purge(queue.PurgeFilter{Queue: "held"}, 1)
	})
	t.Run("times at the end of what PostgreSQL holds", func(t *testing.T) {
		for range 3 {
			w.enqueue(queue.Request{Type: "t", Queue: "far", RunAt: time.Date(294276, 12, 31, 23, 59, 59, 999999000, time.UTC)})
		}
		w.purge(queue.PurgeFilter{Queue: "far"}, 3)
	})
	t.Run("all, over several steps", func(t *testing.T) {
		for range 5 {
			batch := make([]queue.Request, 1000)
			for i := range batch {
				batch[i] = queue.Request{Type: "t", Queue: fmt.Sprint("q", i%7), Priority: i % 3, RunAt: time.Now().Add(time.Hour)}
			}
			w.enqueueMany(batch...)
		}
		left := int64(w.count("SELECT count(*) FROM onceq.pending"))
		w.purge(queue.PurgeFilter{All: true}, left)
		if n := w.count("SELECT count(*) FROM onceq.pending"); n != 0 || left < 5000 {
			t.Errorf("%d of %d jobs still wait", n, left)
		}
		w.whole()
	})
}

// Keys stand under two hashes while a secret is rotated; a purge frees both.
func TestPurge_rotation(t *testing.T) {
	t.Parallel()
	w := newWorldWith(t, queue.Config{KeySecret: []byte("0123456789abcdef"), PreviousKeySecrets: [][]byte{nil}}, nil)
	w.enqueue(idempotent("k", 1))
	if n := w.count("SELECT count(*) FROM onceq.binding"); n != 2 {
		t.Fatalf("%d bindings, want 2", n)
	}
	w.purge(queue.PurgeFilter{All: true}, 1)
	w.whole()
	if res := w.enqueue(idempotent("k", 2)); res.Outcome != queue.OutcomeAccepted {
		t.Errorf("got %+v", res)
	}
}

// Purges, producers of every kind and workers at once: no deadlock reaches
// anybody, nothing is left half deleted, and no job is both purged and run.
func TestPurge_againstEverybody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(w.ctx, 6*time.Second)
	defer cancel()
	var ran, purged, accepted atomic.Int64
	worker, err := queue.NewWorker(w.client, queue.WorkerConfig{Queues: map[string]int{"default": 4}, PollInterval: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	queue.Handle(worker, "report.build", func(context.Context, *queue.Job[int]) error {
		ran.Add(1)
		return nil
	})
	working, stop := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() { done <- worker.Run(working) }()

	request := func() queue.Request {
		key := fmt.Sprint("k", rand.N(40))
		switch rand.N(5) {
		case 0:
			return queue.Request{Type: "report.build", Payload: 1, Admission: queue.Idempotency{Key: "i" + key, Release: queue.ReleaseFinished}}
		case 1:
			return queue.Request{Type: "report.build", Payload: 1, Admission: queue.Throttle{Key: "t" + key, Window: 20 * time.Millisecond}}
		case 2:
			return queue.Request{Type: "report.build", Payload: 1, Priority: rand.N(3)}
		}
		return queue.Request{Type: "report.build", Payload: rand.N(100), Priority: rand.N(3),
			Admission: queue.Debounce{Key: "d" + key, Window: time.Duration(1+rand.N(30)) * time.Millisecond, Hold: rand.N(2) == 0, FollowUp: rand.N(2) == 0}}
	}
	var callers sync.WaitGroup
	for i := range 6 {
		callers.Go(func() {
			for ctx.Err() == nil {
				var results []queue.Result
				var err error
				if i%2 == 0 {
					var res queue.Result
					res, err = w.client.EnqueueWithResult(w.ctx, request())
					results = append(results, res)
				} else {
					batch := make([]queue.Request, 1+rand.N(15))
					for i := range batch {
						batch[i] = request()
					}
					results, err = w.client.EnqueueMany(w.ctx, batch)
				}
				if err != nil {
					t.Error(err)
					return
				}
				for _, res := range results {
					if res.Outcome == queue.OutcomeAccepted {
						accepted.Add(1)
					}
				}
			}
		})
	}
	for _, f := range []queue.PurgeFilter{{All: true}, {Queue: "default"}, {Type: "report.build"}} {
		callers.Go(func() {
			for ctx.Err() == nil {
				n, err := w.client.Purge(w.ctx, f)
				purged.Add(n)
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	callers.Go(func() {
		for ctx.Err() == nil {
			report, err := w.client.Maintain(w.ctx)
			if err != nil {
				t.Error(err)
				return
			}
			for _, task := range report.Tasks {
				if task.Err != nil {
					t.Errorf("%s: %v", task.Name, task.Err)
				}
			}
		}
	})
	callers.Wait()
	if err := pgx.BeginFunc(w.ctx, w.pool, func(tx pgx.Tx) error { _, err := tx.Exec(w.ctx, "ANALYZE"); return err }); err != nil {
		t.Error(err)
	}
	w.await("SELECT count(*) FROM onceq.pending WHERE ready_at <= clock_timestamp() + interval '1 minute'", 0)
	w.await("SELECT count(*) FROM onceq.running", 0)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	w.whole()
	if ran.Load()+purged.Load() != accepted.Load() {
		t.Errorf("%d jobs ran and %d were purged, but %d were accepted", ran.Load(), purged.Load(), accepted.Load())
	}
	if ran.Load() == 0 || purged.Load() == 0 {
		t.Error("one side never came to act")
	}
	if n := w.count("SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()"); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	t.Logf("%d accepted: %d ran, %d purged", accepted.Load(), ran.Load(), purged.Load())
}
