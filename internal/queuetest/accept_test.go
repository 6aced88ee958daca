package queuetest_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

var uuidV7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestClient_EnqueueWithResult(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	t.Run("an accepted request is kept in every detail", func(t *testing.T) {
		runAt := time.Now().Add(time.Hour).Truncate(time.Microsecond)
		deadline := runAt.Add(time.Hour)
		id := accept(t, c, queue.Request{
			Type: "mail.send", Queue: "mail", Priority: 7, RunAt: runAt, Deadline: deadline,
			Payload:          json.RawMessage(`{"to": "a<b>&c", "n": 9007199254740993}`),
			ExecutionTimeout: 90 * time.Second, MaxAttempts: 3, Retry: queue.Fixed{Delay: time.Second},
			ConcurrencyKey: "tenant-1", Tags: []string{"z", "a"},
			Admission: queue.Idempotency{Key: "order-1234567890-capture", Scope: "billing", TTL: time.Hour},
		})
		got, err := c.Job(t.Context(), id)
		if err != nil {
			t.Fatalf("an accepted job must be readable by its id: %v", err)
		}
		binding, err := c.Binding(t.Context(), "billing", "order-1234567890-capture")
		if err != nil {
			t.Fatalf("the key of an accepted request must have an owner: %v", err)
		}
		want := queue.JobInfo{
			ID: id, Type: "mail.send", Queue: "mail", State: queue.StateScheduled, Priority: 7,
			Payload: json.RawMessage(`{"n": 9007199254740993, "to": "a<b>&c"}`),
			Tags:    []string{"z", "a"}, ConcurrencyKey: "tenant-1", MaxAttempts: 3,
			AcceptedAt: got.AcceptedAt, RunAt: runAt, Deadline: deadline,
			Key: &queue.KeyRef{Scope: "billing", Preview: "order-…re", Digest: binding.Key.Digest, Length: 24},
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("the job differs from what was asked for (-want +got):\n%s", diff)
		}
		if got := pgtest.Scan[float64](t, pool, `SELECT extract(epoch FROM execution_timeout)::float8 FROM onceq.job WHERE id = $1`, string(id)); got != 90 {
			t.Errorf("the execution timeout is stored as %v s, want 90", got)
		}
	})

	t.Run("a request of zero values gets the documented defaults", func(t *testing.T) {
		id := accept(t, c, queue.Request{Type: "bare"})
		got, err := c.Job(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		want := queue.JobInfo{
			ID: id, Type: "bare", Queue: "default", State: queue.StateReady, Payload: json.RawMessage(`null`),
			MaxAttempts: 25, AcceptedAt: got.AcceptedAt, RunAt: got.AcceptedAt,
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("zero values have other meanings than documented (-want +got):\n%s", diff)
		}
	})

	t.Run("the id is a UUIDv7", func(t *testing.T) {
		if id := accept(t, c, queue.Request{Type: "bare"}); !uuidV7.MatchString(string(id)) {
			t.Errorf("JobID %q is not a UUIDv7 in its text form", id)
		}
	})

	t.Run("the acceptance carries PostgreSQL's clock", func(t *testing.T) {
		before := pgtest.Clock(t, pool)
		accept(t, c, invoice("clock"))
		after := pgtest.Clock(t, pool)
		got, err := c.Binding(t.Context(), "", "clock")
		if err != nil {
			t.Fatal(err)
		}
		job, err := c.Job(t.Context(), got.JobID)
		if err != nil {
			t.Fatal(err)
		}
		for name, at := range map[string]time.Time{"the binding's": got.AcceptedAt, "the job's": job.AcceptedAt, "the run time": job.RunAt} {
			if at.Before(before) || at.After(after) {
				t.Errorf("%s time of acceptance is %s, PostgreSQL's clock stood between %s and %s", name, at, before, after)
			}
		}
	})

	t.Run("the binding tells owner, mode and retention", func(t *testing.T) {
		for _, row := range []struct {
			name      string
			admission queue.Admission
			scope     string
			mode      string
			lives     time.Duration
		}{
			{"an idempotency key lives for 24 hours by default", queue.Idempotency{Key: "binding-1"}, "default", "idempotency", 24 * time.Hour},
			{"an idempotency key lives for its TTL", queue.Idempotency{Key: "binding-1", Scope: "s", TTL: time.Minute}, "s", "idempotency", time.Minute},
			{"a throttle key lives for its window", queue.Throttle{Key: "binding-2", Window: time.Minute}, "default", "throttle", time.Minute},
		} {
			id := accept(t, c, queue.Request{Type: "bare", Admission: row.admission})
			got, err := c.Binding(t.Context(), row.scope, "binding-"+map[string]string{"idempotency": "1", "throttle": "2"}[row.mode])
			if err != nil {
				t.Fatalf("%s: %v", row.name, err)
			}
			want := queue.BindingInfo{
				Key:  queue.KeyRef{Scope: row.scope, Preview: "bi…", Digest: got.Key.Digest, Length: 9},
				Mode: row.mode, JobID: id, AcceptedAt: got.AcceptedAt, ExpiresAt: got.AcceptedAt.Add(row.lives),
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", row.name, diff)
			}
		}
	})

	t.Run("the timeline begins with the acceptance", func(t *testing.T) {
		id := accept(t, c, invoice("timeline"))
		job, err := c.Job(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		events, err := c.Events(t.Context(), id)
		if err != nil {
			t.Fatalf("every job has a timeline: %v", err)
		}
		if len(events) != 1 || events[0].Kind != queue.EventAccepted || !events[0].At.Equal(job.AcceptedAt) {
			t.Errorf("the timeline of an accepted job is one acceptance at %s, got %+v", job.AcceptedAt, events)
		}
	})

	t.Run("unknown ids and free keys are told apart from failures", func(t *testing.T) {
		const nobody = queue.JobID("01890a5d-ac96-774b-bcce-b302099a8057")
		if _, err := c.Job(t.Context(), nobody); !errors.Is(err, queue.ErrJobNotFound) {
			t.Errorf("Job of an unknown id: %v, want ErrJobNotFound", err)
		}
		if _, err := c.Events(t.Context(), nobody); !errors.Is(err, queue.ErrJobNotFound) {
			t.Errorf("Events of an unknown id: %v, want ErrJobNotFound", err)
		}
		if _, err := c.Job(t.Context(), "not a uuid"); !errors.Is(err, queue.ErrJobNotFound) && !errors.Is(err, queue.ErrInvalidRequest) {
			t.Errorf("Job of a text that is no id: %v, want ErrJobNotFound or ErrInvalidRequest", err)
		}
		if _, err := c.Binding(t.Context(), "", "nobody's key"); !errors.Is(err, queue.ErrBindingNotFound) {
			t.Errorf("Binding of a free key: %v, want ErrBindingNotFound", err)
		}
	})
}

func TestClient_Enqueue(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	t.Run("returns the id alone, and the same one for a repeat", func(t *testing.T) {
		first, err := c.Enqueue(t.Context(), invoice("id-alone"))
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.Enqueue(t.Context(), invoice("id-alone"))
		if err != nil {
			t.Fatalf("an identical repeat is not an error: %v", err)
		}
		if first == "" || again != first {
			t.Errorf("the repeat names job %q, the first acceptance made %q", again, first)
		}
	})

	t.Run("a different request is a conflict here too", func(t *testing.T) {
		id := accept(t, c, invoice("id-conflict"))
		other := invoice("id-conflict")
		other.Priority = 1
		got, err := c.Enqueue(t.Context(), other)
		wantConflict(t, err, id, queue.FieldPriority)
		if got != "" {
			t.Errorf("a refused request names job %q, want none", got)
		}
	})
}

func TestClient_plainRequests(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	req := queue.Request{Type: "plain", Payload: 1}
	ids := map[queue.JobID]bool{}
	for range 5 {
		ids[accept(t, c, req)] = true
	}
	if len(ids) != 5 {
		t.Errorf("5 requests without an admission made %d jobs; each must make its own", len(ids))
	}
	wantCounts(t, pool, 5, 0)
	for id := range ids {
		if job, err := c.Job(t.Context(), id); err != nil || job.Key != nil {
			t.Errorf("a plain job has no key: %+v, %v", job.Key, err)
		}
	}
}

func TestClient_runTimes(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	for _, row := range []struct {
		name, why string
		after     time.Duration
		state     queue.State
	}{
		{"a run time in the future is scheduled", "the job waits for it", time.Hour, queue.StateScheduled},
		{"a run time in the past is ready", "it has come already", -time.Hour, queue.StateReady},
		{"a run time seven days ahead outlives the default TTL", "B-104: a key's life has nothing to do with the run time", 7 * day, queue.StateScheduled},
	} {
		t.Run(row.name, func(t *testing.T) {
			req := invoice(row.name)
			req.RunAt = pgtest.Clock(t, pool).Add(row.after)
			id := accept(t, c, req)
			job, err := c.Job(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if job.State != row.state || !job.RunAt.Equal(req.RunAt) {
				t.Errorf("job is %s at %s, want %s at %s: %s", job.State, job.RunAt, row.state, req.RunAt, row.why)
			}
			binding, err := c.Binding(t.Context(), "", row.name)
			if err != nil {
				t.Fatal(err)
			}
			if lives := binding.ExpiresAt.Sub(binding.AcceptedAt); lives != queue.DefaultTTL {
				t.Errorf("the key lives for %s from the acceptance, want %s", lives, queue.DefaultTTL)
			}
		})
	}

	t.Run("a deadline in the past is accepted", func(t *testing.T) {
		req := invoice("late")
		req.Deadline = pgtest.Clock(t, pool).Add(-time.Hour)
		id := accept(t, c, req)
		job, err := c.Job(t.Context(), id)
		if err != nil || !job.Deadline.Equal(req.Deadline) {
			t.Errorf("the deadline is kept as given: got %s, want %s, err %v", job.Deadline, req.Deadline, err)
		}
	})
}
