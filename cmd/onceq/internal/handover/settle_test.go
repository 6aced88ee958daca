package handover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onceq/onceq/pkg/queue"
)

// oneByOne answers a batch as the library does, from a map of keys to the
// payloads that own them: all or nothing, and at most 20 conflicts at a time.
type oneByOne struct {
	owned  map[string]string
	rounds int
}

func (f *oneByOne) EnqueueMany(_ context.Context, reqs []queue.Request) ([]queue.Result, error) {
	f.rounds++
	results := make([]queue.Result, len(reqs))
	batch := map[string]string{}
	var refused, invalid []error
	for i, r := range reqs {
		key, payload := r.Admission.(queue.Idempotency).Key, r.Payload.(string)
		if payload == "invalid" {
			invalid = append(invalid, &queue.RequestError{Index: i, Err: fmt.Errorf("%w: payload: bad", queue.ErrInvalidRequest)})
			continue
		}
		owner, owned := f.owned[key]
		if first, ok := batch[key]; ok {
			owner, owned = first, true
		} else {
			batch[key] = payload
		}
		switch {
		case owned && owner != payload:
			if len(refused) < 20 {
				refused = append(refused, &queue.EnqueueIdempotencyConflictError{Index: i, Fields: []queue.Field{queue.FieldPayload}})
			}
		case owned:
			results[i] = queue.Result{JobID: queue.JobID("job of " + key), Outcome: queue.OutcomeReplayed}
		default:
			results[i] = queue.Result{JobID: queue.JobID("job of " + key), Outcome: queue.OutcomeAccepted}
		}
	}
	switch {
	case len(invalid) > 0:
		return nil, fmt.Errorf("queue: enqueue many: %w", errors.Join(invalid...))
	case len(refused) == 1:
		return nil, fmt.Errorf("queue: enqueue many: %w", refused[0])
	case len(refused) > 0:
		return nil, fmt.Errorf("queue: enqueue many: %w", errors.Join(refused...))
	}
	for key, payload := range batch {
		f.owned[key] = payload
	}
	return results, nil
}

// batchOf makes lines of pairs of a key and a payload.
func batchOf(pairs ...[2]string) []line {
	var lines []line
	for i, p := range pairs {
		lines = append(lines, line{number: i + 1, key: p[0], request: queue.Request{Type: "t", Payload: p[1], Admission: queue.Idempotency{Key: p[0]}}})
	}
	return lines
}

func TestSettle(t *testing.T) {
	t.Parallel()
	var many [][2]string
	for i := range 50 {
		many = append(many, [2]string{"owned", fmt.Sprint(i)}, [2]string{fmt.Sprint("new ", i), "x"})
	}
	for _, tt := range []struct {
		name    string
		pairs   [][2]string
		want    Tally
		refused []int
	}{
		{"nothing", nil, Tally{}, nil},
		{"all accepted", [][2]string{{"a", "1"}, {"b", "1"}}, Tally{Accepted: 2}, nil},
		{"a repeat in the batch", [][2]string{{"a", "1"}, {"a", "1"}}, Tally{Accepted: 1, Replayed: 1}, nil},
		{"one conflict", [][2]string{{"a", "1"}, {"owned", "2"}, {"b", "1"}}, Tally{Accepted: 2, Conflicts: 1}, []int{2}},
		{"invalid lines first, then conflicts", [][2]string{{"a", "invalid"}, {"owned", "2"}, {"a", "1"}}, Tally{Accepted: 1, Conflicts: 1, Invalid: 1}, []int{1, 2}},
		{"all refused", [][2]string{{"owned", "2"}, {"x", "invalid"}}, Tally{Conflicts: 1, Invalid: 1}, []int{1, 2}},
		{"a refused line leads no other", [][2]string{{"owned", "2"}, {"owned", "1"}, {"owned", "3"}}, Tally{Replayed: 1, Conflicts: 2}, []int{1, 3}},
		{"an invalid line leads no other", [][2]string{{"a", "invalid"}, {"a", "1"}, {"a", "1"}}, Tally{Accepted: 1, Replayed: 1, Invalid: 1}, []int{1}},
		{"an accepted line leads the others", [][2]string{{"a", "1"}, {"a", "2"}, {"a", "1"}, {"a", "3"}}, Tally{Accepted: 1, Replayed: 1, Conflicts: 2}, []int{2, 4}},
		{"more conflicts than are told at once", many, Tally{Accepted: 50, Replayed: 1, Conflicts: 49}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			fake := &oneByOne{owned: map[string]string{"owned": "1"}}
			s, err := settle(t.Context(), fake, batchOf(tt.pairs...))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, s.Tally); diff != "" {
				t.Errorf("Tally (-want +got):\n%s", diff)
			}
			var refused []int
			for _, r := range s.Refusals {
				refused = append(refused, r.Line)
			}
			slices.Sort(refused)
			if diff := cmp.Diff(tt.refused, refused); tt.refused != nil && diff != "" {
				t.Errorf("refused lines (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSettleTellsTheJobOfTheBatch(t *testing.T) {
	t.Parallel()
	s, err := settle(t.Context(), &oneByOne{owned: map[string]string{}}, batchOf([2]string{"a", "1"}, [2]string{"a", "2"}))
	if err != nil {
		t.Fatal(err)
	}
	conflict, ok := errors.AsType[*queue.EnqueueIdempotencyConflictError](s.Refusals[0].Err)
	if !ok || conflict.JobID != "job of a" {
		t.Errorf("the conflict names the job %q", conflict.JobID)
	}
}

// failing answers every batch with one error.
type failing struct{ err error }

func (f failing) EnqueueMany(context.Context, []queue.Request) ([]queue.Result, error) {
	return nil, f.err
}

func TestSettlePassesErrorsOn(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection lost")
	if _, err := settle(t.Context(), failing{fmt.Errorf("queue: enqueue many: %w", lost)}, batchOf([2]string{"a", "1"})); !errors.Is(err, lost) {
		t.Errorf("the error is %v", err)
	}
}
