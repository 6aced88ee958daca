package queuetest_test

import (
	"testing"
	"time"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// The table of outcomes: who owns the key, what comes, what is answered.
func TestClient_outcomes(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	idempotency := func(key string) queue.Admission { return queue.Idempotency{Key: key, TTL: time.Hour} }
	throttle := func(key string) queue.Admission { return queue.Throttle{Key: key, Window: time.Hour} }
	debounce := func(key string) queue.Admission { return queue.Debounce{Key: key, Window: time.Hour} }

	for _, row := range []struct {
		name    string
		bound   func(string) queue.Admission
		mode    int // what the binding's mode is set to afterwards; 0 leaves it
		asked   func(string) queue.Admission
		differs bool
		outcome queue.Outcome // empty: a conflict in fields
		reason  queue.NonReplaceableReason
		fields  []queue.Field
	}{
		{name: "idempotency answers an equal idempotent request with a replay", bound: idempotency, asked: idempotency, outcome: queue.OutcomeReplayed},
		{name: "idempotency refuses a different idempotent request", bound: idempotency, asked: idempotency, differs: true, fields: []queue.Field{queue.FieldPayload}},
		{name: "idempotency refuses a throttled request", bound: idempotency, asked: throttle, fields: []queue.Field{queue.FieldAdmission}},
		{name: "idempotency refuses a throttled request with another payload by its admission alone", bound: idempotency, asked: throttle, differs: true, fields: []queue.Field{queue.FieldAdmission}},
		{name: "throttle coalesces an equal throttled request", bound: throttle, asked: throttle, outcome: queue.OutcomeCoalesced},
		{name: "throttle refuses a different throttled request", bound: throttle, asked: throttle, differs: true, fields: []queue.Field{queue.FieldPayload}},
		{name: "throttle refuses an idempotent request", bound: throttle, asked: idempotency, fields: []queue.Field{queue.FieldAdmission}},
		{name: "throttle refuses an idempotent request with another payload by its admission alone", bound: throttle, asked: idempotency, differs: true, fields: []queue.Field{queue.FieldAdmission}},
		{name: "debounce refuses an idempotent request", bound: idempotency, mode: 2, asked: idempotency, fields: []queue.Field{queue.FieldAdmission}},
		{name: "debounce refuses a different idempotent request by its admission alone", bound: idempotency, mode: 2, asked: idempotency, differs: true, fields: []queue.Field{queue.FieldAdmission}},
		{name: "debounce refuses a throttled request", bound: throttle, mode: 2, asked: throttle, fields: []queue.Field{queue.FieldAdmission}},
		{name: "debounce does not replace what idempotency owns", bound: idempotency, asked: debounce, outcome: queue.OutcomeNonReplaceable, reason: queue.ReasonIncompatibleMode},
		{name: "debounce does not replace what throttle owns", bound: throttle, asked: debounce, differs: true, outcome: queue.OutcomeNonReplaceable, reason: queue.ReasonIncompatibleMode},
	} {
		for _, path := range []struct {
			name string
			send func(testing.TB, queue.Request) (queue.Result, error)
		}{
			{", sent alone", func(t testing.TB, req queue.Request) (queue.Result, error) {
				return c.EnqueueWithResult(t.Context(), req)
			}},
			{", sent in a batch", func(t testing.TB, req queue.Request) (queue.Result, error) {
				results, err := c.EnqueueMany(t.Context(), []queue.Request{req})
				if err != nil {
					return queue.Result{}, err
				}
				return results[0], nil
			}},
		} {
			t.Run(row.name+path.name, func(t *testing.T) {
				key := t.Name()
				id := accept(t, c, queue.Request{Type: "a", Payload: 1, Admission: row.bound(key)})
				if row.mode != 0 {
					pgtest.Exec(t, pool, `UPDATE onceq.binding SET mode = $2 WHERE job_id = $1`, string(id), row.mode)
				}
				before := allRows(t, pool, "onceq")
				req := queue.Request{Type: "a", Payload: 1, Admission: row.asked(key)}
				if row.differs {
					req.Payload = 2
				}
				got, err := path.send(t, req)
				switch {
				case row.outcome != "":
					if err != nil {
						t.Fatalf("this is not an error: %v", err)
					}
					wantResult(t, got, queue.Result{JobID: id, Outcome: row.outcome, Reason: row.reason})
				default:
					wantConflict(t, err, id, row.fields...)
					wantResult(t, got, queue.Result{})
				}
				wantSameRows(t, pool, before)
			})
		}
	}
}

func TestResult_Dead(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	for _, row := range []struct {
		name    string
		request func(string) queue.Request
		outcome queue.Outcome
	}{
		{name: "a replay tells that the retained job is dead", request: invoice, outcome: queue.OutcomeReplayed},
		{name: "a coalesced request tells that the retained job is dead", request: notice, outcome: queue.OutcomeCoalesced},
	} {
		t.Run(row.name, func(t *testing.T) {
			req := row.request(t.Name())
			id := accept(t, c, req)
			pgtest.Exec(t, pool, `UPDATE onceq.binding SET dead = true WHERE job_id = $1`, string(id))

			want := queue.Result{JobID: id, Outcome: row.outcome, Dead: true}
			wantResult(t, enqueue(t, c, req), want)
			results, err := c.EnqueueMany(t.Context(), []queue.Request{req, req})
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range results {
				wantResult(t, got, want)
			}
			if binding, err := c.Binding(t.Context(), "", t.Name()); err != nil || !binding.Dead {
				t.Errorf("Binding must show the death: %+v, %v", binding, err)
			}

			pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp() WHERE job_id = $1`, string(id))
			fresh := accept(t, c, req)
			wantResult(t, enqueue(t, c, req), queue.Result{JobID: fresh, Outcome: row.outcome})
		})
	}
}
