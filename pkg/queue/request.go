package queue

import (
	"fmt"
	"time"
)

// JobID names a job: a UUIDv7 in its text form. It is stable from acceptance
// on and can go straight into a provider's idempotency header.
type JobID string

// Request is what a caller asks for. The zero value of every field but Type
// has a meaning, told on the field. Everything in it but the key, the scope and
// instants left out is material: two requests with one key are the same request
// only if all of it is equal (see Fingerprint).
type Request struct {
	// Type names the handler: 1 to 255 bytes of valid UTF-8, no control
	// characters, no space at either end. Required.
	Type string
	// Payload is any value that encoding/json marshals to JSON that PostgreSQL's
	// jsonb can hold, at most Config.MaxPayloadBytes of it. Nil is JSON null. A
	// json.RawMessage is validated and stored as it is. Every digit of a number
	// is kept; HTML characters are not escaped.
	Payload any
	// Queue is bounded like Type. Empty is "default".
	Queue string
	// Priority is 0 to 100; higher runs first. Zero is 0.
	Priority int
	// RunAt is the earliest time to run, kept in whole microseconds. Zero is now,
	// by PostgreSQL's clock. It is compared as given: a caller that computes it
	// anew for each try (now + 90 s) makes a different request each time.
	RunAt time.Time
	// Deadline is when the job becomes dead if it has not ended, kept in whole
	// microseconds. It may already have passed. Zero is none.
	Deadline time.Time
	// ExecutionTimeout bounds one attempt: 1 ms to 365 days. Zero is none.
	ExecutionTimeout time.Duration
	// MaxAttempts is 1 to 100. Zero is 25.
	MaxAttempts int
	// Retry is how long to wait after a failed attempt. Nil is Exponential{}.
	Retry RetryPolicy
	// ConcurrencyKey limits how many jobs of a queue with one such key run at
	// once: 1 to 256 bytes of valid UTF-8. Empty is no limit.
	ConcurrencyKey string
	// Tags are at most 20, each 1 to 100 characters of valid UTF-8 without
	// control characters. They are compared as a set and kept in this order.
	Tags []string
	// Admission is how the request's key is admitted. Nil always makes a new job.
	Admission Admission
}

const (
	defaultQueue       = "default"
	defaultMaxAttempts = 25
)

// withDefaults fills in what the zero value of a field means, so that absent
// and given-as-the-default are one thing from here on.
func (r Request) withDefaults() Request {
	if r.Queue == "" {
		r.Queue = defaultQueue
	}
	if r.MaxAttempts == 0 {
		r.MaxAttempts = defaultMaxAttempts
	}
	if r.Retry == nil {
		r.Retry = Exponential{}
	}
	return r
}

// Format prints the request without its key, also where fmt would not ask the
// admission itself: for a verb that does not fit it prints fields raw.
func (r Request) Format(s fmt.State, verb rune) {
	type plain Request
	fmt.Fprintf(s, fmt.FormatString(s, verb), plain(r))
}
