package admissiontest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/pkg/queue"
)

// definition is everything that a handler sees of a job and that a replacement
// changes, so that a mixture of two would show.
type definition struct{ Version int }

func versioned(key string, version int, d queue.Debounce) queue.Request {
	r := debounce(key, definition{version}, d)
	r.Tags = []string{fmt.Sprintf("v%d", version)}
	r.MaxAttempts = version
	return r
}

func version(t *testing.T, job *queue.Job[definition]) int {
	t.Helper()
	if want := []string{fmt.Sprintf("v%d", job.Payload.Version)}; job.MaxAttempts != job.Payload.Version || job.Tags[0] != want[0] {
		t.Errorf("job %s ran with a mixture: payload %d, attempts %d, tags %v", job.ID, job.Payload.Version, job.MaxAttempts, job.Tags)
	}
	return job.Payload.Version
}

// answer is what one try was told.
type answer struct {
	first    queue.JobID
	second   queue.Result
	followUp bool
}

// A debounce that meets a claim of the same job: the job that runs is the old
// definition or the new one, and the caller was told which.
func TestDebounce_againstClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tries := shrink(10000)
	var replaced, refused, followed, elapsed int
	ran := newRuns()
	worker, err := queue.NewWorker(w.client, queue.WorkerConfig{Queues: map[string]int{"default": 20}, PollInterval: 2 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	queue.Handle(worker, "report.build", func(_ context.Context, job *queue.Job[definition]) error {
		ran.add(job.ID, version(t, job))
		return nil
	})
	ctx, stop := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()

	var turn atomic.Int64
	var callers sync.WaitGroup
	answers := make([]answer, tries)
	for range 8 {
		callers.Go(func() {
			for i := int(turn.Add(1)) - 1; i < tries; i = int(turn.Add(1)) - 1 {
				d := queue.Debounce{Window: 4 * time.Millisecond, Hold: i%2 == 0, FollowUp: i%3 == 0}
				key := fmt.Sprint("key ", i)
				first := w.enqueue(versioned(key, 1, d))
				// About when the window ends and the worker looks.
				time.Sleep(time.Duration(500+i*7%3500) * time.Microsecond)
				answers[i] = answer{first.JobID, w.enqueue(versioned(key, 2, d)), d.FollowUp}
			}
		})
	}
	callers.Wait()
	for i, a := range answers {
		want := 1
		switch {
		case a.second.Outcome == queue.OutcomeReplaced:
			replaced++
			want = 2
		case a.second.Outcome == queue.OutcomeAccepted:
			followed++
			if got := ran.of(a.second.JobID); got != 2 {
				t.Errorf("try %d: the fresh job ran version %d", i, got)
			}
		case a.second.Reason == queue.ReasonWindowElapsed:
			elapsed++
		case a.second.Reason == queue.ReasonNotPending && !a.followUp:
			refused++
		default:
			t.Errorf("try %d: %+v", i, a.second)
		}
		if a.second.Outcome != queue.OutcomeAccepted && a.second.JobID != a.first {
			t.Errorf("try %d: the answer names job %s, not %s", i, a.second.JobID, a.first)
		}
		if got := ran.of(a.first); got != want {
			t.Errorf("try %d: answer %q, but version %d ran", i, short(a.second), got)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	t.Logf("%d tries: %d replaced, %d not pending, %d window elapsed, %d accepted", tries, replaced, refused, elapsed, followed)
	if replaced == 0 || refused+followed == 0 {
		t.Error("the race always went one way, so nothing was shown")
	}
}

// runs remembers which version of each job ran.
type runs struct {
	mu   sync.Mutex
	ran  map[queue.JobID]int
	more chan struct{}
}

func newRuns() *runs { return &runs{ran: map[queue.JobID]int{}, more: make(chan struct{})} }

func (r *runs) add(id queue.JobID, version int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, ok := r.ran[id]; ok {
		version = 100*old + version // ran twice: no version that anybody wants
	}
	r.ran[id] = version
	close(r.more)
	r.more = make(chan struct{})
}

// of waits for a job's run; -1 tells that it never ran.
func (r *runs) of(id queue.JobID) int {
	deadline := time.After(30 * time.Second)
	for {
		r.mu.Lock()
		version, ok := r.ran[id]
		more := r.more
		r.mu.Unlock()
		if ok {
			return version
		}
		select {
		case <-more:
		case <-deadline:
			return -1
		}
	}
}

// 200 requests of one key from 8 goroutines: one is accepted, the others replace.
func TestDebounce_burst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var accepted, replaced, turn atomic.Int64
	var callers sync.WaitGroup
	began := time.Now()
	for range 8 {
		callers.Go(func() {
			for i := turn.Add(1); i <= 200; i = turn.Add(1) {
				res, err := w.client.EnqueueWithResult(w.ctx, debounce("burst", int(i), queue.Debounce{}))
				switch {
				case err != nil:
					t.Errorf("request %d: %v", i, err)
				case res.Outcome == queue.OutcomeAccepted:
					accepted.Add(1)
				case res.Outcome == queue.OutcomeReplaced:
					replaced.Add(1)
				}
			}
		})
	}
	callers.Wait()
	t.Logf("200 requests in %s", time.Since(began).Round(time.Millisecond))
	if accepted.Load() != 1 || replaced.Load() != 199 {
		t.Errorf("%d accepted and %d replaced, want 1 and 199", accepted.Load(), replaced.Load())
	}
	b := w.binding("burst")
	job := w.job(b.JobID)
	if !job.RunAt.Equal(b.ExpiresAt) || w.count("SELECT count(*) FROM onceq.job") != 1 || w.count("SELECT count(*) FROM onceq.pending") != 1 {
		t.Errorf("job %+v and binding %+v do not fit, or there are more", job, b)
	}
	// The last replacement that was written is the definition that stays.
	var run time.Time
	if err := w.pool.QueryRow(w.ctx, "SELECT (details->>'run_at')::timestamptz FROM onceq.event ORDER BY at DESC LIMIT 1").Scan(&run); err != nil || !run.Equal(job.RunAt) {
		t.Errorf("the last event tells run time %s (%v), the job has %s", run, err, job.RunAt)
	}
}

// The clock that ends a window is read when the request is decided, not when the
// caller's transaction began.
func TestDebounce_clockTrap(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			first := w.enqueue(debounce("trap", 1, queue.Debounce{Window: 400 * time.Millisecond}))
			tx, err := w.pool.BeginTx(w.ctx, pgx.TxOptions{IsoLevel: level})
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(w.ctx)
			var live bool
			if err := tx.QueryRow(w.ctx, "SELECT expires_at > now() FROM onceq.binding").Scan(&live); err != nil || !live {
				t.Fatalf("the transaction began too late (%v)", err)
			}
			w.await("SELECT count(*) FROM onceq.binding WHERE expires_at <= clock_timestamp()", 1)
			res, err := w.client.EnqueueTx(w.ctx, tx, debounce("trap", 2, queue.Debounce{Window: time.Minute}))
			if err != nil || res != (queue.Result{JobID: first.JobID, Outcome: queue.OutcomeNonReplaceable, Reason: queue.ReasonWindowElapsed}) {
				t.Errorf("got %+v, %v, want window_elapsed", res, err)
			}
			wroteNothing(t, tx)
		})
	}
	t.Run("the window ends while the binding is waited for", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		first := w.enqueue(debounce("trap", 1, queue.Debounce{Window: 400 * time.Millisecond}))
		holder, err := w.pool.Begin(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Rollback(w.ctx)
		if _, err := holder.Exec(w.ctx, "SELECT FROM onceq.binding FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		answer := make(chan queue.Result, 1)
		go func() {
			res, err := w.client.EnqueueWithResult(w.ctx, debounce("trap", 2, queue.Debounce{Window: time.Minute}))
			if err != nil {
				t.Error(err)
			}
			answer <- res
		}()
		w.await("SELECT count(*) FROM onceq.binding WHERE expires_at <= clock_timestamp()", 1)
		if err := holder.Commit(w.ctx); err != nil {
			t.Fatal(err)
		}
		if res := <-answer; res != (queue.Result{JobID: first.JobID, Outcome: queue.OutcomeNonReplaceable, Reason: queue.ReasonWindowElapsed}) {
			t.Errorf("got %+v, want window_elapsed", res)
		}
	})
}

// A request that had to wait for another transaction counts its window from the
// end of the wait, and is accepted when the other was rolled back.
func TestDebounce_waitedForAnother(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"alone", "in a transaction", "batch", "batch in a transaction"} {
		for _, hold := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, hold %t", way, hold), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				other, err := w.pool.Begin(w.ctx)
				if err != nil {
					t.Fatal(err)
				}
				defer other.Rollback(w.ctx)
				if _, err := w.client.EnqueueTx(w.ctx, other, debounce("k", 1, queue.Debounce{})); err != nil {
					t.Fatal(err)
				}
				answer := make(chan queue.Result, 1)
				go func() {
					r := debounce("k", 2, queue.Debounce{Window: time.Second, Hold: hold, MaxWait: 500 * time.Millisecond})
					res, err := w.send(way, r)
					if err != nil {
						t.Error(err)
					}
					answer <- res
				}()
				w.await("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()", 1)
				time.Sleep(1500 * time.Millisecond)
				released := w.clock()
				if err := other.Rollback(w.ctx); err != nil {
					t.Fatal(err)
				}
				res := <-answer
				b, job := w.binding("k"), w.job(res.JobID)
				if res.Outcome != queue.OutcomeAccepted || b.JobID != res.JobID || !job.RunAt.Equal(b.ExpiresAt) || string(job.Payload) != "2" {
					t.Errorf("got %+v, binding %+v, job %+v", res, b, job)
				}
				if b.AcceptedAt.Before(released) || b.ExpiresAt.Sub(b.AcceptedAt) != time.Second {
					t.Errorf("the window from %s to %s began before the wait ended at %s", b.AcceptedAt, b.ExpiresAt, released)
				}
				if n := w.count("SELECT count(*) FROM onceq.pending WHERE ready_at = $1", job.RunAt); n != 1 {
					t.Errorf("the job's place does not have its run time")
				}
				if n := w.count("SELECT count(*) FROM onceq.event"); n != 0 {
					t.Errorf("an acceptance left %d events", n)
				}
			})
		}
	}
}

// send hands over one request by one of the four ways there are.
func (w *world) send(way string, r queue.Request) (res queue.Result, err error) {
	var all []queue.Result
	switch way {
	case "alone":
		return w.client.EnqueueWithResult(w.ctx, r)
	case "batch":
		all, err = w.client.EnqueueMany(w.ctx, []queue.Request{r})
	default:
		err = pgx.BeginFunc(w.ctx, w.pool, func(tx pgx.Tx) (err error) {
			if way == "in a transaction" {
				res, err = w.client.EnqueueTx(w.ctx, tx, r)
				return err
			}
			all, err = w.client.EnqueueManyTx(w.ctx, tx, []queue.Request{r})
			return err
		})
	}
	if len(all) == 1 {
		res = all[0]
	}
	return res, err
}

// await waits until a question's answer is n.
func (w *world) await(sql string, n int) {
	w.t.Helper()
	for range 3000 {
		if w.count(sql) == n {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.t.Fatalf("%s did not become %d", sql, n)
}

func (w *world) clock() (at time.Time) {
	w.t.Helper()
	if err := w.pool.QueryRow(w.ctx, "SELECT clock_timestamp()").Scan(&at); err != nil {
		w.t.Fatal(err)
	}
	return at
}

// Isolation levels that can't follow a changed binding say so, and the same
// transaction run again succeeds.
func TestDebounce_serialization(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			first := w.enqueue(debounce("k", 1, queue.Debounce{}))
			try := func(between func()) (res queue.Result, err error) {
				err = pgx.BeginTxFunc(w.ctx, w.pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
					if _, err := tx.Exec(w.ctx, "SELECT FROM onceq.binding"); err != nil {
						return err
					}
					between()
					res, err = w.client.EnqueueTx(w.ctx, tx, debounce("k", 3, queue.Debounce{}))
					return err
				})
				return res, err
			}
			_, err := try(func() { w.enqueue(debounce("k", 2, queue.Debounce{})) })
			if !errors.Is(err, queue.ErrRetryTransaction) {
				t.Errorf("got %v, want ErrRetryTransaction", err)
			}
			if res, err := try(func() {}); err != nil || res != (queue.Result{JobID: first.JobID, Outcome: queue.OutcomeReplaced}) {
				t.Errorf("run again: %+v, %v", res, err)
			}
			if got := w.job(first.JobID).Payload; string(got) != "3" || !json.Valid(got) {
				t.Errorf("got payload %s", got)
			}
		})
	}
}
