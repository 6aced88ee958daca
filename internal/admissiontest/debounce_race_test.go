package admissiontest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/pgtest"
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
	tries := pgtest.Rounds(10000)
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
