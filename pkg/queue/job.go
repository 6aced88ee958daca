package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// Job is one attempt of a job as its handler sees it.
type Job[P any] struct {
	// ID is stable over all attempts: give it to a provider as the idempotency
	// key of a call that must not happen twice.
	ID          JobID
	Type, Queue string
	// Payload is the stored JSON, decoded.
	Payload P
	// Attempt counts from 1; hand-backs don't count.
	Attempt, MaxAttempts int
	Tags                 []string
	// AcceptedAt and Deadline are by PostgreSQL's clock; Deadline is zero without one.
	AcceptedAt, Deadline time.Time

	attempt *attempt
}

// Handler does the work of a job type. It runs at least once for every job:
// after a crash, a lost lease or a returned error it runs again, so its outside
// effects must bear repetition (see Checkpoint and CompleteTx). The context ends,
// with a cause, when the lease is lost (ErrLeaseLost), the job is cancelled
// (ErrCancelled), its deadline passes (ErrDeadlineExceeded), the attempt's
// execution timeout passes, or the worker shuts down.
//
// Nil completes the job. An error, or a panic, fails the attempt, and the retry
// policy decides. Short handlers may follow one another on one goroutine, so what
// is a goroutine's own, such as a locked thread or profiling labels, has to be
// given back.
type Handler[P any] func(ctx context.Context, job *Job[P]) error

var (
	// ErrLeaseLost tells that the job may be another worker's by now; nothing
	// that this attempt returns is recorded.
	ErrLeaseLost = errors.New("queue: the lease is lost")
	// ErrCancelled tells that the job was cancelled while it ran.
	ErrCancelled = errors.New("queue: the job is cancelled")
	// ErrDeadlineExceeded tells that the job's deadline has passed: it is dead.
	ErrDeadlineExceeded = errors.New("queue: deadline exceeded")

	errExecutionTimeout = errors.New("queue: execution timeout")
	errShutdown         = errors.New("queue: the worker is shutting down")
)

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks a handler's error as final: the job is dead at once, whatever
// is left of its budget. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type retryAfterError struct {
	err   error
	delay time.Duration
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

// RetryAfter sets the wait before the next attempt, in place of the retry
// policy: 0 to 365 days, anything beyond is cut to that. The budget still
// counts. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, min(max(d, 0), maxDelay)}
}

// maxPanicStack bounds how much of a panic's stack an error keeps, in bytes.
const maxPanicStack = 4 << 10

// handle runs a handler of any payload type on an attempt; a panic is an error.
type handle func(ctx context.Context, a *attempt) error

func handleOf[P any](h Handler[P]) handle {
	return func(ctx context.Context, a *attempt) (err error) {
		job := &Job[P]{
			ID: a.id, Type: a.jobType, Queue: a.queue, Attempt: a.number, MaxAttempts: a.maxAttempts, Tags: a.tags,
			AcceptedAt: a.acceptedAt, Deadline: a.deadline, attempt: a,
		}
		defer func() {
			if r := recover(); r != nil {
				stack := debug.Stack()
				err = fmt.Errorf("panic: %v\n%s", r, stack[:min(len(stack), maxPanicStack)])
				a.w.log.Error("handler panicked", "job_id", a.id, "type", a.jobType, "attempt", a.number)
			}
		}()
		// A payload's own UnmarshalJSON may panic too.
		if err := json.Unmarshal(a.payload, &job.Payload); err != nil {
			return fmt.Errorf("decode the payload into %T: %w", job.Payload, hidePayload(err))
		}
		return h(ctx, job)
	}
}

// hidePayload keeps what the decoder says of types and places, which never
// quotes a value beyond its kind, and nothing of a type's own UnmarshalJSON.
func hidePayload(err error) error {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		return fmt.Errorf("a JSON %s does not fit %s", kindOfJSON(t.Value), t.Type)
	}
	return errors.New("the payload does not fit")
}

// kindOfJSON drops the number that UnmarshalTypeError.Value may hold.
func kindOfJSON(value string) string {
	if len(value) > 6 && value[:6] == "number" {
		return "number"
	}
	return value
}
