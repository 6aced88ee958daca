package admissiontest

import (
	"context"
	"fmt"
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
	started := make(chan *queue.Job[int], 20)
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
	// A stream is steady unless a window may have passed between two requests, or
	// since the last.
	stream := func(key string, d queue.Debounce, end <-chan time.Time) (job *queue.Job[int], steady bool) {
		d.Window = window
		steady = true
		last := time.Now()
		first := w.enqueue(debounce(key, 0, d))
		for version := 1; ; version++ {
			select {
			case job = <-started:
				if job.ID == first.JobID {
					return job, steady && time.Since(last) < window
				}
				continue // a fresh job of another stream
			case <-end:
				return nil, steady
			case <-time.After(pause):
			}
			// In the end the window is over while the job waits, or the job has started;
			// then a fresh job may be accepted before this stream hears of the start.
			sent := time.Now()
			res := w.enqueue(debounce(key, version, d))
			steady = steady && time.Since(last) < window
			last = sent
			if res.JobID != first.JobID {
				end = nil
				if again := w.job(first.JobID); again.State == queue.StateScheduled || again.State == queue.StateReady {
					t.Fatalf("request %d got another job while the first one waits: %+v", version, res)
				}
			}
		}
	}

	// A machine that is too slow for a steady stream gets other tries.
	for try := 1; ; try++ {
		job, steady := stream(fmt.Sprint("bounded ", try), queue.Debounce{MaxWait: maxWait}, time.After(time.Minute))
		if job == nil {
			t.Fatal("with MaxWait the job did not start within a minute of replacements")
		}
		// The binding is accepted a moment before its job.
		info := w.job(job.ID)
		waited := info.RunAt.Sub(info.AcceptedAt)
		if waited <= maxWait && waited >= maxWait-time.Second {
			break
		}
		if waited > maxWait || steady || try == 5 {
			t.Errorf("the stream, steady %t, moved the run time to %v after the acceptance, MaxWait is %v", steady, waited, maxWait)
			break
		}
	}
	for try := 1; ; try++ {
		job, steady := stream(fmt.Sprint("unbounded ", try), queue.Debounce{}, time.After(2*maxWait))
		if job == nil {
			break
		}
		if steady || try == 5 {
			t.Errorf("without MaxWait the job started while the stream of replacements, steady %t, went on", steady)
			break
		}
	}
}
