package handover

import (
	"context"
	"errors"
	"fmt"

	"github.com/onceq/onceq/pkg/queue"
)

// Tally counts what became of lines.
type Tally struct {
	Accepted       int `json:"accepted"`
	Replayed       int `json:"replayed"`
	Replaced       int `json:"replaced"`
	Coalesced      int `json:"coalesced"`
	NonReplaceable int `json:"non_replaceable"`
	Conflicts      int `json:"conflicts"`
	Invalid        int `json:"invalid"`
	// Dead counts the lines whose job has died or been cancelled, so that nothing
	// more will come of them by itself.
	Dead int `json:"dead"`
}

// Add counts what another tally counts.
func (t *Tally) Add(other Tally) {
	t.Accepted += other.Accepted
	t.Replayed += other.Replayed
	t.Replaced += other.Replaced
	t.Coalesced += other.Coalesced
	t.NonReplaceable += other.NonReplaceable
	t.Conflicts += other.Conflicts
	t.Invalid += other.Invalid
	t.Dead += other.Dead
}

// Lines is how many lines were counted.
func (t Tally) Lines() int {
	return t.Accepted + t.Replayed + t.Replaced + t.Coalesced + t.NonReplaceable + t.Conflicts + t.Invalid
}

// Refusal is a line that changed nothing and is no repeat.
type Refusal struct {
	Line int
	key  string // never shown
	// Err is a *queue.EnqueueIdempotencyConflictError or a *NonReplaceable, or
	// else what is invalid.
	Err error
}

// NonReplaceable tells why a debounced line was not taken over.
type NonReplaceable struct {
	Job    queue.JobID
	Reason queue.NonReplaceableReason
}

func (e *NonReplaceable) Error() string {
	why := map[queue.NonReplaceableReason]string{
		queue.ReasonIncompatibleMode: "its key is owned under another admission",
		queue.ReasonNotPending:       "the job of its key has started or ended",
		queue.ReasonWindowElapsed:    "its window is over and the job still waits to be claimed",
	}[e.Reason]
	return fmt.Sprintf("%s: %s: job %s", e.Reason, why, e.Job)
}

// Settled is what became of a stretch of lines.
type Settled struct {
	Tally
	Refusals []Refusal // in no order
	// Last is the number of the last line, and Read how many bytes of the input
	// were read up to it and with it.
	Last int
	Read int64
}

func (s *Settled) refuse(l line, err error) {
	if _, ok := errors.AsType[*queue.EnqueueIdempotencyConflictError](err); ok {
		s.Conflicts++
	} else {
		s.Invalid++
	}
	s.Refusals = append(s.Refusals, Refusal{l.number, l.key, err})
}

// Enqueuer is the part of a *queue.Client that settle needs.
type Enqueuer interface {
	EnqueueMany(ctx context.Context, reqs []queue.Request) ([]queue.Result, error)
}

// settle hands over a batch so that every line gets its own answer, the one it
// would have got alone and in its turn. EnqueueMany is all or nothing: while it
// refuses, the lines that it names are put aside and the others are sent again.
func settle(ctx context.Context, client Enqueuer, lines []line) (Settled, error) {
	var s Settled
	open := lines
	for len(open) > 0 {
		requests := make([]queue.Request, len(open))
		for i, l := range open {
			requests[i] = l.request
		}
		results, err := client.EnqueueMany(ctx, requests)
		if err == nil {
			s.count(open, results)
			break
		}
		refused := named(err, open)
		if len(refused) == 0 {
			return Settled{}, err
		}
		var rest []line
		for i, l := range open {
			if err, ok := refused[i]; ok {
				s.refuse(l, err)
			} else {
				rest = append(rest, l)
			}
		}
		open = rest
	}
	return s, nil
}

// named are the refused requests by their position. A line whose key stands in
// an earlier line of the batch was compared with that line; when the earlier
// one is refused itself, the comparison meant nothing and the later one is to
// be asked for again.
func named(err error, lines []line) map[int]error {
	refused := map[int]error{}
	eachLeaf(err, func(err error) {
		switch e := err.(type) {
		case *queue.RequestError:
			refused[e.Index] = e
		case *queue.EnqueueIdempotencyConflictError:
			refused[e.Index] = e
		}
	})
	first := map[string]int{}
	for i, l := range lines {
		leader, later := first[l.key]
		if !later {
			first[l.key] = i
		} else if refused[leader] != nil {
			if _, ok := refused[i].(*queue.EnqueueIdempotencyConflictError); ok {
				delete(refused, i)
			}
		}
	}
	return refused
}

// eachLeaf calls f with every error that names a request.
func eachLeaf(err error, f func(error)) {
	switch e := err.(type) {
	case *queue.RequestError, *queue.EnqueueIdempotencyConflictError:
		f(err)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			eachLeaf(err, f)
		}
	case interface{ Unwrap() error }:
		eachLeaf(e.Unwrap(), f)
	}
}

// count adds the answers to the lines of a batch.
func (s *Settled) count(lines []line, results []queue.Result) {
	jobs := make(map[string]queue.JobID, len(lines))
	for i, result := range results {
		jobs[lines[i].key] = result.JobID
		switch result.Outcome {
		case queue.OutcomeAccepted:
			s.Accepted++
		case queue.OutcomeReplaced:
			s.Replaced++
		case queue.OutcomeCoalesced:
			s.Coalesced++
		case queue.OutcomeNonReplaceable:
			s.NonReplaceable++
			s.Refusals = append(s.Refusals, Refusal{lines[i].number, lines[i].key, &NonReplaceable{result.JobID, result.Reason}})
		default:
			s.Replayed++
		}
		if result.Dead {
			s.Dead++
		}
	}
	// A conflict with a line of the same batch names the job which that line
	// would have made in the refused try. Now the job is there, with its own id.
	for _, r := range s.Refusals {
		conflict, ok := errors.AsType[*queue.EnqueueIdempotencyConflictError](r.Err)
		if id := jobs[r.key]; ok && id != "" && conflict.ExpiresAt.IsZero() {
			conflict.JobID = id
		}
	}
}
