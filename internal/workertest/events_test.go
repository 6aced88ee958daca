package workertest_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"context"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// The whole life of a job with a failure, a checkpoint, a lease that ends, a
// hand-back and a cancel.
func TestEvents_aWholeLife(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	const key, secret = "order-4711-of-a-customer", "s3cret"
	id := accept(t, c, queue.Request{
		Payload: map[string]string{"card": secret}, Tags: []string{"tag"}, Retry: queue.Fixed{},
		Admission: queue.Idempotency{Key: key, Scope: "shop"},
	})
	w := newWorker(t, c, calm("worker a"))
	work := handle(t, workType, w)
	r := start(t, w)

	first := work.next(t)
	if _, err := queue.Checkpoint(first.ctx, first.job, "charge", func(context.Context) (string, error) { return secret, nil }); err != nil {
		t.Fatal(err)
	}
	first.end(errors.New("boom: " + strings.Repeat("ü", 5000)))

	second := work.next(t)
	reclaim(t, pool, c, id)
	second.end(nil)

	third := work.next(t)
	go r.cancel()
	if err := func() error { third.cause(t); third.end(third.ctx.Err()); return r.stop(t) }(); err != nil {
		t.Fatal(err)
	}
	w = newWorker(t, c, calm("worker b"))
	work = handle(t, workType, w)
	start(t, w)
	fourth := work.next(t)
	cancel(t, c, id, queue.CancelRequested)
	cancel(t, c, id, queue.CancelRequested)
	fourth.end(errNotYet)
	awaitState(t, c, id, queue.StateCancelled)

	wantKinds(t, c, id,
		queue.EventAccepted,
		queue.EventClaimed, queue.EventCheckpointSaved, queue.EventRetryScheduled,
		queue.EventClaimed, queue.EventLeaseExpired,
		queue.EventClaimed, queue.EventReleased,
		queue.EventClaimed, queue.EventCancelRequested, queue.EventCancelled)

	events, err := c.Events(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var attempts []int
	job := info(t, c, id)
	for i, e := range events {
		attempts = append(attempts, e.Attempt)
		if i > 0 && e.At.Before(events[i-1].At) {
			t.Errorf("event %s is older than the one before it", e.Kind)
		}
		if e.At.Before(job.AcceptedAt) || e.At.After(job.FinishedAt) {
			t.Errorf("event %s at %v lies outside the job's life, %v to %v", e.Kind, e.At, job.AcceptedAt, job.FinishedAt)
		}
		wantSmallObject(t, e)
		if text := string(e.Details); strings.Contains(text, key) || strings.Contains(text, secret) {
			t.Errorf("event %s shows a key or a payload: %s", e.Kind, text)
		}
		if e.Kind == queue.EventClaimed && !strings.Contains(string(e.Details), "worker ") {
			t.Errorf("a claim must name its worker: %s", e.Details)
		}
	}
	if want := []int{0, 1, 1, 1, 2, 2, 3, 3, 3, 3, 3}; !slices.Equal(attempts, want) {
		t.Errorf("the events belong to attempts %v, want %v", attempts, want)
	}
	if text := string(events[0].Details); !strings.Contains(text, `"shop"`) || !strings.Contains(text, job.Key.Digest) {
		t.Errorf("the acceptance must show the key's reference: %s", text)
	}
}

// wantSmallObject fails the test unless the details are an object without long
// texts.
func wantSmallObject(t testing.TB, e queue.Event) {
	t.Helper()
	var details map[string]any
	if err := json.Unmarshal(e.Details, &details); err != nil {
		t.Errorf("the details of event %s are no JSON object: %v", e.Kind, err)
	}
	for name, v := range details {
		if s, ok := v.(string); ok && utf8.RuneCountInString(s) > 1000 {
			t.Errorf("%s of event %s has %d characters, allowed are 1,000", name, e.Kind, utf8.RuneCountInString(s))
		}
	}
	if len(e.Details) > 8<<10 {
		t.Errorf("the details of event %s have %d bytes: they must be small", e.Kind, len(e.Details))
	}
}

// The everyday path writes no event, and its timeline is complete all the same.
func TestEvents_readFromTheJobsOwnRows(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, calm("worker a"))
	work := handle(t, workType, w)
	id := accept(t, c, keyed("k", queue.ReleaseFinished))
	wantKinds(t, c, id, queue.EventAccepted)
	start(t, w)
	got := work.next(t)
	wantKinds(t, c, id, queue.EventAccepted, queue.EventClaimed)
	got.end(nil)
	awaitState(t, c, id, queue.StateSucceeded)
	wantKinds(t, c, id, queue.EventAccepted, queue.EventClaimed, queue.EventSucceeded)
	if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.event`); n != 0 {
		t.Errorf("the everyday path has written %d events", n)
	}
}

func TestEvents_ofTheDead(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	failing(w, func(int) error { return errors.New("out of ink") })
	start(t, w)
	id := accept(t, c, queue.Request{MaxAttempts: 2, Retry: queue.Fixed{}})
	job := awaitState(t, c, id, queue.StateDead)
	wantKinds(t, c, id, queue.EventAccepted, queue.EventClaimed, queue.EventRetryScheduled, queue.EventClaimed, queue.EventDead)
	events, err := c.Events(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	last := events[len(events)-1]
	if !strings.Contains(string(last.Details), "out of ink") || last.Attempt != 2 || !last.At.Equal(job.FinishedAt) {
		t.Errorf("the death is told as %s of attempt %d at %v, the job finished at %v", last.Details, last.Attempt, last.At, job.FinishedAt)
	}
}

func TestEvents_unknownJob(t *testing.T) {
	t.Parallel()
	c := newClient(t, pgtest.New(t), queue.Config{})
	for _, id := range []queue.JobID{"", "nonsense", "018f0000-0000-7000-8000-000000000000"} {
		if _, err := c.Events(t.Context(), id); !errors.Is(err, queue.ErrJobNotFound) {
			t.Errorf("events of job %q: %v, want ErrJobNotFound", id, err)
		}
	}
}
