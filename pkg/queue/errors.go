package queue

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrInvalidRequest is wrapped by every refusal of a bad value. The text
	// names each wrong field and its bound, never a key or a payload. Nothing
	// reached PostgreSQL.
	ErrInvalidRequest = errors.New("invalid request")
	// ErrRetryTransaction tells that PostgreSQL could not fit the caller's
	// transaction between others (40001, 40P01), or that a key kept changing
	// hands. Roll back and run the whole transaction again; the driver's error,
	// where there is one, is still reachable with errors.As.
	ErrRetryTransaction = errors.New("the transaction must be retried")
	// ErrJobNotFound tells that no job has the id.
	ErrJobNotFound = errors.New("job not found")
	// ErrNotScheduled tells that a job does not wait for its time: it is ready
	// already, running or has ended.
	ErrNotScheduled = errors.New("the job is not scheduled")
	// ErrBindingNotFound tells that nobody owns the key.
	ErrBindingNotFound = errors.New("binding not found")
	// ErrSchemaOutdated tells that the database lacks migrations that this
	// version needs. The text says what to run.
	ErrSchemaOutdated = errors.New("the schema is outdated")
)

// EnqueueIdempotencyConflictError tells that a key is owned by a job whose
// request was a different one. Nothing was accepted, and a caller's transaction
// is still usable. Find it with errors.As.
type EnqueueIdempotencyConflictError struct {
	// JobID is the job that owns the key. Where the other request stands in the
	// same batch, it is the id that job would have had: nothing of the batch was
	// kept.
	JobID JobID
	// Key shows the key without giving it away.
	Key KeyRef
	// Fields are the members that differ, on either side, in field order.
	// Never empty.
	Fields []Field
	// ExpiresAt is when the key is free again at the latest, by PostgreSQL's
	// clock. Zero where the other request stands in the same batch.
	ExpiresAt time.Time
	// Index is the position of the refused request in its batch; 0 for a single.
	Index int

	batch bool // tells Error whether the index means anything
}

func (e *EnqueueIdempotencyConflictError) Error() string {
	names := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		names[i] = string(f)
	}
	request := "the request"
	if e.batch {
		request = fmt.Sprintf("request %d", e.Index)
	}
	text := fmt.Sprintf("conflict: %s differs in %s from the one that job %s was accepted for under %s",
		request, strings.Join(names, ", "), e.JobID, e.Key)
	if !e.ExpiresAt.IsZero() {
		text += ", until " + e.ExpiresAt.UTC().Format(time.RFC3339Nano)
	}
	return text
}

// RequestError tells which request of a batch an error is about.
type RequestError struct {
	// Index is the request's position in the batch.
	Index int
	Err   error
}

func (e *RequestError) Error() string { return fmt.Sprintf("request %d: %v", e.Index, e.Err) }

// Unwrap gives the error itself.
func (e *RequestError) Unwrap() error { return e.Err }

// RedriveConflictError tells that a redrive's request id was used for the same
// dead letter by another order. Nothing was done. Find it with errors.As.
type RedriveConflictError struct {
	// Source is the dead letter, Target the job that the first order made.
	Source, Target JobID
	// Request shows the request id without giving it away.
	Request KeyRef
	// Fields are the members that differ: "actor", "reason" or both.
	Fields []string
}

func (e *RedriveConflictError) Error() string {
	return fmt.Sprintf("conflict: job %s was redriven as job %s under %s with another %s",
		e.Source, e.Target, e.Request, strings.Join(e.Fields, " and another "))
}
