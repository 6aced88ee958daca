package admissiontest

import (
	"context"
	"testing"
	"time"

	"github.com/onceq/onceq/pkg/queue"
)

// A steady stream of replacements puts a job's start off, but not past MaxWait.
func TestDebounce_stream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	worker, err := queue.NewWorker(w.client, queue.WorkerConfig{PollInterval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan *queue.Job[int], 3)
	queue.Handle(worker, "report.build", func(_ context.Context, job *queue.Job[int]) error {
		started <- job
		return nil
	})
	ctx, stop := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	const window, maxWait, pause = 2 * time.Second, 5 * time.Second, 50 * time.Millisecond
	stream := func(key string, d queue.Debounce, end <-chan time.Time) *queue.Job[int] {
		d.Window = window
		first := w.enqueue(debounce(key, 0, d))
		for version := 1; ; version++ {
			select {
			case job := <-started:
				if job.ID == first.JobID {
					return job
				}
				continue // a fresh job of the other stream
			case <-end:
				return nil
			case <-time.After(pause):
			}
			// In the end the window is over while the job waits, or the job has started;
			// then a fresh job may be accepted before this stream hears of the start.
			if res := w.enqueue(debounce(key, version, d)); res.JobID != first.JobID {
				end = nil
				if again := w.job(first.JobID); again.State == queue.StateScheduled || again.State == queue.StateReady {
					t.Fatalf("request %d got another job while the first one waits: %+v", version, res)
				}
			}
		}
	}

	job := stream("bounded", queue.Debounce{MaxWait: maxWait}, time.After(time.Minute))
	if job == nil {
		t.Fatal("with MaxWait the job did not start within a minute of replacements")
	}
	// The binding is accepted a moment before its job.
	if info := w.job(job.ID); info.RunAt.Sub(info.AcceptedAt) > maxWait || info.RunAt.Sub(info.AcceptedAt) < maxWait-time.Second {
		t.Errorf("the stream moved the run time to %v after the acceptance, MaxWait is %v", info.RunAt.Sub(info.AcceptedAt), maxWait)
	}

	if job := stream("unbounded", queue.Debounce{}, time.After(2*maxWait)); job != nil {
		t.Errorf("without MaxWait the job started while the stream of replacements went on")
	}
}
