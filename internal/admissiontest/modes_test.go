package admissiontest

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/onceq/onceq/pkg/queue"
)

// Every line of the table of modes, by all four ways of asking: what a request is
// told when its key is owned by the same mode or by another one.
func TestModes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	requests := map[string]func(key string, payload any) queue.Request{
		"idempotency": idempotent,
		"throttle":    throttle,
		"debounce":    func(k string, p any) queue.Request { return debounce(k, p, queue.Debounce{}) },
	}
	const conflict = "conflict"
	for _, c := range []struct{ bound, asked, equal, different string }{
		{"idempotency", "idempotency", "replayed ", conflict + "[payload]"},
		{"idempotency", "debounce", "non_replaceable incompatible_mode", "non_replaceable incompatible_mode"},
		{"idempotency", "throttle", conflict + "[admission]", conflict + "[admission]"},
		{"debounce", "idempotency", conflict + "[admission]", conflict + "[admission]"},
		{"debounce", "debounce", "replaced ", "replaced "},
		{"debounce", "throttle", conflict + "[admission]", conflict + "[admission]"},
		{"throttle", "idempotency", conflict + "[admission]", conflict + "[admission]"},
		{"throttle", "debounce", "non_replaceable incompatible_mode", "non_replaceable incompatible_mode"},
		{"throttle", "throttle", "coalesced ", conflict + "[payload]"},
	} {
		for _, way := range []string{"alone", "batch", "in a transaction", "batch in a transaction"} {
			for payload, want := range map[int]string{1: c.equal, 2: c.different} {
				key := fmt.Sprint(c.bound, c.asked, way, payload)
				first := w.enqueue(requests[c.bound](key, 1))
				res, err := w.send(way, requests[c.asked](key, payload))
				got := short(res)
				if e, ok := errors.AsType[*queue.EnqueueIdempotencyConflictError](err); ok {
					got = fmt.Sprint(conflict, e.Fields)
					res.JobID = e.JobID
					near(t, "the conflict's end", e.ExpiresAt, w.binding(key).ExpiresAt)
				} else if err != nil {
					t.Fatal(err)
				}
				if got != want || res.JobID != first.JobID {
					t.Errorf("bound by %s, asked by %s, %s, payload %d: got %q for job %s, want %q for %s", c.bound, c.asked, way, payload, got, res.JobID, want, first.JobID)
				}
			}
		}
	}
}

// A batch of every mode with one debounced request in it is decided like any
// other: a conflict leaves nothing of it, and refusals and repeats write nothing.
func TestModes_mixedBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.enqueueMany(
		idempotent("i", 1), throttle("t", 1), debounce("d", 1, queue.Debounce{}), queue.Request{Type: "report.build"},
		idempotent("i", 1), throttle("t", 1), debounce("d", 2, queue.Debounce{}))
	var got []string
	for _, r := range first {
		got = append(got, short(r))
	}
	want := []string{"accepted ", "accepted ", "accepted ", "accepted ", "replayed ", "coalesced ", "replaced "}
	if !reflect.DeepEqual(got, want) || first[0].JobID != first[4].JobID || first[1].JobID != first[5].JobID || first[2].JobID != first[6].JobID {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := w.job(first[2].JobID); string(got.Payload) != "2" {
		t.Errorf("the last definition lost: %s", got.Payload)
	}
	w.start(first[2].JobID)

	tx := w.begin()
	results, err := w.client.EnqueueManyTx(w.ctx, tx, []queue.Request{idempotent("i", 1), throttle("t", 1), debounce("d", 3, queue.Debounce{})})
	if err != nil || results[0].Outcome != queue.OutcomeReplayed || results[1].Outcome != queue.OutcomeCoalesced || results[2].Reason != queue.ReasonNotPending {
		t.Errorf("got %+v, %v", results, err)
	}
	wroteNothing(t, tx)
	// The refused batch leaves the transaction usable, and nothing of itself.
	_, err = w.client.EnqueueManyTx(w.ctx, tx, []queue.Request{debounce("new", 1, queue.Debounce{}), idempotent("i", 2), queue.Request{Type: "x"}})
	if e, ok := errors.AsType[*queue.EnqueueIdempotencyConflictError](err); !ok || e.Index != 1 || e.JobID != first[0].JobID || e.ExpiresAt.IsZero() {
		t.Errorf("got %v, want a conflict of request 1", err)
	}
	if err := tx.Commit(w.ctx); err != nil {
		t.Fatal(err)
	}
	if n := w.count("SELECT count(*) FROM onceq.job"); n != 4 {
		t.Errorf("%d jobs, want 4", n)
	}
	// One key under two admissions in one batch is a mistake of the caller's.
	for _, r := range []queue.Request{idempotent("new", 1), throttle("new", 1)} {
		_, err := w.client.EnqueueMany(w.ctx, []queue.Request{debounce("new", 1, queue.Debounce{}), r})
		if e, ok := errors.AsType[*queue.RequestError](err); !ok || e.Index != 1 || !errors.Is(err, queue.ErrInvalidRequest) {
			t.Errorf("got %v, want request 1 to be invalid", err)
		}
	}
}

func TestThrottle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.enqueue(throttle("k", 1))
	before := w.binding("k").ExpiresAt
	for _, state := range []string{"waiting", "running", "succeeded"} {
		switch state {
		case "running":
			w.start(first.JobID)
		case "succeeded":
			w.finish(first.JobID, 1)
		}
		tx := w.begin()
		res, err := w.client.EnqueueTx(w.ctx, tx, throttle("k", 1))
		if err != nil || res != (queue.Result{JobID: first.JobID, Outcome: queue.OutcomeCoalesced}) {
			t.Errorf("%s: %+v, %v", state, res, err)
		}
		wroteNothing(t, tx)
		if err := tx.Rollback(w.ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.client.Enqueue(w.ctx, throttle("k", 2)); err == nil {
		t.Error("a different request was coalesced")
	}
	if !w.binding("k").ExpiresAt.Equal(before) {
		t.Error("the window slid")
	}
	w.age(time.Minute + time.Second)
	if res := w.enqueue(throttle("k", 2)); res.Outcome != queue.OutcomeAccepted {
		t.Errorf("after the window: %+v", res)
	}
}
