package operatortest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

func TestRunNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	later := time.Now().Add(time.Hour)
	t.Run("a scheduled job is ready now", func(t *testing.T) {
		id := w.accept(queue.Request{RunAt: later, Queue: "q", Priority: 3, ConcurrencyKey: "k", Deadline: later.Add(time.Hour), Admission: queue.Idempotency{Key: "scheduled"}})
		before := w.job(id)
		if err := w.client.RunNow(w.ctx, id); err != nil {
			t.Fatal(err)
		}
		after := w.job(id)
		if after.State != queue.StateReady || after.RunAt.After(time.Now().Add(time.Minute)) || after.Deadline != before.Deadline || after.Priority != 3 || after.ConcurrencyKey != "k" {
			t.Errorf("got %+v", after)
		}
		if got := kinds(t, w, id); got != "accepted run_now" {
			t.Errorf("the timeline: %s", got)
		}
		if text, _ := eventOf(t, w, id, queue.EventRunNow)["before"].(string); text == "" {
			t.Error("the event tells the old run time")
		}
		if b, err := w.client.Binding(w.ctx, "", "scheduled"); err != nil || b.JobID != id {
			t.Errorf("an idempotency key stays its job's: %+v, %v", b, err)
		}
		if err := w.client.RunNow(w.ctx, id); !errors.Is(err, queue.ErrNotScheduled) {
			t.Errorf("a second time it is not scheduled: %v", err)
		}
	})
	t.Run("a job that waits for a retry keeps its attempts", func(t *testing.T) {
		id := w.accept(queue.Request{RunAt: later})
		w.exec(`UPDATE onceq.pending SET attempt = 4, fence = 6 WHERE job_id = $1`, string(id))
		if err := w.client.RunNow(w.ctx, id); err != nil {
			t.Fatal(err)
		}
		if got := scan[string](w, `SELECT attempt || ' ' || fence FROM onceq.pending WHERE job_id = $1`, string(id)); got != "4 6" {
			t.Errorf("attempt and fence are %s, want 4 6", got)
		}
	})
	t.Run("what is not scheduled", func(t *testing.T) {
		ready, running, succeeded := w.accept(queue.Request{}), w.accept(queue.Request{}), w.accept(queue.Request{})
		w.start(running, succeeded)
		w.finish(1, "", succeeded)
		before := snapshotOf(w)
		for _, id := range []queue.JobID{ready, running, succeeded} {
			if err := w.client.RunNow(w.ctx, id); !errors.Is(err, queue.ErrNotScheduled) {
				t.Errorf("want ErrNotScheduled, got %v", err)
			}
		}
		for _, id := range []queue.JobID{queue.JobID(uuid.NewString()), "", "no uuid", "\x00"} {
			if err := w.client.RunNow(w.ctx, id); !errors.Is(err, queue.ErrJobNotFound) {
				t.Errorf("want ErrJobNotFound, got %v", err)
			}
		}
		if after := snapshotOf(w); strings.Join(after, "\n") != strings.Join(before, "\n") {
			t.Error("a refusal wrote or locked something")
		}
	})
	t.Run("the run time is that after the wait for a lock", func(t *testing.T) {
		id := w.accept(queue.Request{RunAt: later})
		tx, err := w.pool.Begin(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(w.ctx) }()
		if _, err := tx.Exec(w.ctx, `SELECT FROM onceq.pending WHERE job_id = $1 FOR UPDATE`, string(id)); err != nil {
			t.Fatal(err)
		}
		moved := make(chan error, 1)
		go func() { moved <- w.client.RunNow(w.ctx, id) }()
		w.awaitWaiter(tx)
		released := scan[time.Time](w, `SELECT clock_timestamp()`)
		if err := tx.Rollback(w.ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-moved; err != nil {
			t.Fatal(err)
		}
		if at := w.job(id).RunAt; at.Before(released) {
			t.Errorf("the job's run time is %s, before the lock was there at %s", at, released)
		}
	})
	t.Run("it ends a debounce window", func(t *testing.T) {
		for name, cfg := range map[string]queue.Config{"one secret": {}, "a rotation": {KeySecret: []byte("a secret of 16 b"), PreviousKeySecrets: [][]byte{nil}}} {
			w := worldOf(t, w.pool, cfg)
			r := queue.Request{Type: "report", Payload: 1, Admission: queue.Debounce{Key: "window " + name, Window: time.Hour}}
			id := w.accept(r)
			if err := w.client.RunNow(w.ctx, id); err != nil {
				t.Fatal(err)
			}
			if _, err := w.client.Binding(w.ctx, "", "window "+name); !errors.Is(err, queue.ErrBindingNotFound) {
				t.Errorf("%s: the key is free: %v", name, err)
			}
			r.Payload = 2
			next := w.accept(r)
			if got := string(w.job(id).Payload); next == id || got != "1" {
				t.Errorf("%s: the released job is let be, its payload is %s", name, got)
			}
		}
	})
}

// RunNow, a worker, debounces, cancels and purges of the same jobs at once: nothing
// deadlocks, no job is lost, and none runs twice.
func TestRunNow_besideOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const keys = 4
	var mu sync.Mutex
	made, purged := map[queue.JobID]bool{}, atomic.Int64{}
	var current [keys]atomic.Value
	began := time.Now()
	var moved, claimed atomic.Int64
	// It goes on for some seconds, and until enough has happened.
	goesOn := func() bool {
		took := time.Since(began)
		return took < time.Duration(pgtest.Rounds(5))*time.Second || took < time.Minute && (moved.Load() < 20 || claimed.Load() < 20 || purged.Load() < 5)
	}
	known := func(n int) queue.JobID { id, _ := current[n%keys].Load().(queue.JobID); return id }

	actors := []func(n int) error{
		func(n int) error {
			res, err := w.client.EnqueueWithResult(w.ctx, queue.Request{Type: "report", Payload: n, Admission: queue.Debounce{Key: fmt.Sprint(n % keys), Window: time.Minute, FollowUp: n%2 == 0}})
			if err == nil && res.Outcome == queue.OutcomeAccepted {
				mu.Lock()
				made[res.JobID] = true
				mu.Unlock()
				current[n%keys].Store(res.JobID)
			}
			return err
		},
		func(n int) error {
			err := w.client.RunNow(w.ctx, known(n))
			if err == nil {
				moved.Add(1)
			}
			if errors.Is(err, queue.ErrNotScheduled) || errors.Is(err, queue.ErrJobNotFound) {
				return nil
			}
			return err
		},
		func(n int) error { _, err := w.client.Cancel(w.ctx, known(n), "no need"); return err },
		func(n int) error {
			gone, err := w.client.Purge(w.ctx, queue.PurgeFilter{JobIDs: []queue.JobID{"00000000-0000-7000-8000-000000000000", queue.JobID(orNil(known(n)))}})
			purged.Add(gone)
			return err
		},
	}
	worker, err := queue.NewWorker(w.client, queue.WorkerConfig{PollInterval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	runs := map[queue.JobID]int{}
	queue.Handle(worker, "report", func(_ context.Context, job *queue.Job[int]) error {
		mu.Lock()
		defer mu.Unlock()
		runs[job.ID]++
		claimed.Add(1)
		return nil
	})
	ctx, stop := context.WithCancel(w.ctx)
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()

	var all sync.WaitGroup
	for i, act := range actors {
		for j := range 2 {
			all.Go(func() {
				for n := i + j; goesOn(); n++ {
					if err := act(n); err != nil {
						t.Errorf("actor %d: %v", i, err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for id, n := range runs {
		if n != 1 {
			t.Errorf("job %s ran %d times", id, n)
		}
	}
	t.Logf("%d jobs, %d run now, %d claimed, %d purged", len(made), moved.Load(), claimed.Load(), purged.Load())
	if moved.Load() == 0 || claimed.Load() == 0 {
		t.Error("nothing was run now and claimed: the test shows nothing")
	}
	if deadlocks := scan[int](w, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); deadlocks != 0 {
		t.Errorf("%d deadlocks", deadlocks)
	}
	if lost := scan[int](w, `SELECT count(*) FROM onceq.job AS j
		WHERE (SELECT count(*) FROM onceq.finished AS f WHERE f.job_id = j.id) + (SELECT count(*) FROM onceq.pending AS p
			WHERE p.job_id = j.id AND p.queue = j.queue AND p.priority = j.priority AND p.ready_at = greatest(j.run_at, j.accepted_at)) <> 1`); lost != 0 {
		t.Errorf("%d jobs are in no place, in two, or where nobody finds them", lost)
	}
	if n := scan[int](w, `SELECT count(*) FROM onceq.job`) + int(purged.Load()); n != len(made) {
		t.Errorf("%d jobs are there or were purged, %d were accepted", n, len(made))
	}
	if n := scan[int](w, `SELECT count(*) FROM (SELECT j.key_hash FROM onceq.pending AS p JOIN onceq.job AS j ON j.id = p.job_id
		WHERE p.ready_at > clock_timestamp() GROUP BY 1 HAVING count(*) > 1) AS twice`); n != 0 {
		t.Errorf("%d keys have two jobs that wait for their window's end", n)
	}
}

func orNil(id queue.JobID) string {
	if id == "" {
		return uuid.Nil.String()
	}
	return string(id)
}
