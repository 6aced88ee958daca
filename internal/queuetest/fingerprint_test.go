package queuetest_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// inOrder is the order in which a conflict lists its fields.
var inOrder = []queue.Field{
	queue.FieldQueue, queue.FieldType, queue.FieldPayload, queue.FieldPriority, queue.FieldConcurrencyKey, queue.FieldTags,
	queue.FieldMaxAttempts, queue.FieldRetry, queue.FieldRunAt, queue.FieldDeadline, queue.FieldExecutionTimeout, queue.FieldRetention,
}

// everything differs from the default in every member.
func everything(key string) queue.Request {
	return queue.Request{
		Type: "u", Payload: []int{1}, Queue: "q", Priority: 9, RunAt: noon, Deadline: noon.Add(time.Hour),
		ExecutionTimeout: time.Minute, MaxAttempts: 5, Retry: queue.Fixed{}, ConcurrencyKey: "c", Tags: []string{"x"},
		Admission: queue.Idempotency{Key: key, TTL: time.Hour},
	}
}

func TestFingerprint_Diff(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	for _, row := range []struct {
		name, why  string
		one, other func(key string) queue.Request
		fields     []queue.Field
	}{
		{
			name: "all members, in field order", why: "each differs from its default on one side",
			one:    everything,
			other:  func(key string) queue.Request { return completed(queue.Request{}, key) },
			fields: inOrder,
		},
		{
			name: "the union of both sides", why: "each side has a member that the other lacks",
			one:    func(key string) queue.Request { return completed(queue.Request{Priority: 5, RunAt: noon}, key) },
			other:  func(key string) queue.Request { return completed(queue.Request{Tags: []string{"a"}}, key) },
			fields: []queue.Field{queue.FieldPriority, queue.FieldTags, queue.FieldRunAt},
		},
		{
			name: "the union of members on both sides and on one", why: "priority differs, tags are on one side only",
			one:    func(key string) queue.Request { return completed(queue.Request{Priority: 5, Tags: []string{"a"}}, key) },
			other:  func(key string) queue.Request { return completed(queue.Request{Priority: 6, Queue: "q"}, key) },
			fields: []queue.Field{queue.FieldQueue, queue.FieldPriority, queue.FieldTags},
		},
		{
			name: "the admission alone", why: "requests under different admissions are not compared further",
			one: everything,
			other: func(key string) queue.Request {
				return completed(queue.Request{Admission: queue.Throttle{Window: day}}, key)
			},
			fields: []queue.Field{queue.FieldAdmission},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			one, other := row.one(t.Name()), row.other(t.Name())
			for _, pair := range [][2]queue.Request{{one, other}, {other, one}} {
				if diff := cmp.Diff(row.fields, fingerprint(t, pair[0]).Diff(fingerprint(t, pair[1]))); diff != "" {
					t.Errorf("%s (-want +got):\n%s", row.why, diff)
				}
			}
			id := accept(t, c, one)
			_, err := c.EnqueueWithResult(t.Context(), other)
			wantConflict(t, err, id, row.fields...)
			_, err = c.EnqueueMany(t.Context(), []queue.Request{other})
			wantConflict(t, err, id, row.fields...)
		})
	}
}

func TestRequest_Fingerprint(t *testing.T) {
	t.Parallel()

	t.Run("key, scope and clock are no members", func(t *testing.T) {
		one := fingerprint(t, queue.Request{Type: "t", Admission: queue.Idempotency{Key: "k1", Scope: "s1"}})
		time.Sleep(time.Millisecond)
		other := fingerprint(t, queue.Request{Type: "t", Admission: queue.Idempotency{Key: "k2", Scope: "s2"}})
		if one != other {
			t.Errorf("requests that differ in key, scope and time alone differ in %v", one.Diff(other))
		}
	})

	t.Run("is the same each time and leaves the request as it was", func(t *testing.T) {
		req := everything("k")
		req.Tags = []string{"z", "a", "z"}
		first := fingerprint(t, req)
		for range 10 {
			if again := fingerprint(t, req); again != first {
				t.Fatal("one request has two fingerprints")
			}
		}
		if diff := cmp.Diff([]string{"z", "a", "z"}, req.Tags); diff != "" {
			t.Errorf("the caller's tags were changed (-want +got):\n%s", diff)
		}
	})

	t.Run("equal fingerprints have an empty Diff, and only those", func(t *testing.T) {
		a, b := fingerprint(t, completed(queue.Request{}, "k")), fingerprint(t, everything("k"))
		if len(a.Diff(a)) != 0 || len(b.Diff(b)) != 0 {
			t.Errorf("a fingerprint differs from itself: %v, %v", a.Diff(a), b.Diff(b))
		}
		if len(a.Diff(b)) == 0 || a == b {
			t.Error("different requests have no difference")
		}
	})

	t.Run("a plain request has one too", func(t *testing.T) {
		a := fingerprint(t, queue.Request{Type: "t"})
		b := fingerprint(t, queue.Request{Type: "t", Priority: 1})
		if diff := cmp.Diff([]queue.Field{queue.FieldPriority}, a.Diff(b)); diff != "" {
			t.Errorf("plain requests that differ in priority (-want +got):\n%s", diff)
		}
	})

	t.Run("a bad request has none", func(t *testing.T) {
		_, err := queue.Request{Priority: 101, Payload: json.RawMessage(`{`)}.Fingerprint()
		wantInvalid(t, err, "type", "priority", "payload")
	})

	t.Run("the largest payload that any client takes has one", func(t *testing.T) {
		req := queue.Request{Type: "t", Payload: text(16<<20 - 2)}
		if _, err := req.Fingerprint(); err != nil {
			t.Errorf("16 MiB of JSON text: %v", err)
		}
		req.Payload = text(16<<20 - 1)
		_, err := req.Fingerprint()
		wantInvalid(t, err, "payload")
	})
}

// The default is left out of the fingerprint: the run time that the first
// acceptance got is not part of it (B-044).
func TestFingerprint_omittedRunAtStaysOmitted(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	id := accept(t, c, invoice("omitted"))
	job, err := c.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	pgtest.AwaitClock(t, pool, job.AcceptedAt.Add(50*time.Millisecond))
	replay(t, c, invoice("omitted"), id)
	given := invoice("omitted")
	given.RunAt = job.RunAt
	_, err = c.EnqueueWithResult(t.Context(), given)
	wantConflict(t, err, id, queue.FieldRunAt)

	// B-112: a run time worked out from now is another one each time.
	first := invoice("computed")
	first.RunAt = time.Now().Add(90 * time.Second)
	id = accept(t, c, first)
	second := first
	second.RunAt = first.RunAt.Add(2 * time.Second)
	_, err = c.EnqueueWithResult(t.Context(), second)
	wantConflict(t, err, id, queue.FieldRunAt)
}
