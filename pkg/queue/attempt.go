package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/db"
)

// attempt is one claim of a job by this worker.
type attempt struct {
	w           *Worker
	id          JobID
	fence       int32
	queue       string
	jobType     string
	payload     json.RawMessage
	tags        []string
	number      int
	maxAttempts int
	acceptedAt  time.Time
	deadline    time.Time
	deadlineIn  time.Duration // from the claim, by PostgreSQL's clock; 0: none
	timeout     time.Duration
	retry       retryPolicy
	concurrency string // the key; empty: none
	frees       bool   // a success frees the job's key

	cancel context.CancelCauseFunc
	// renewed is when the last good claim or heartbeat was sent, by this
	// process's monotonic clock: the lease holds at least a lease from then.
	renewed atomic.Pointer[time.Time]
	// inTx counts transactions of the handler that hold the lease's row.
	inTx atomic.Int32
	// completing tells that CompleteTx has run: only PostgreSQL knows whether it
	// was committed.
	completing atomic.Bool
	// settling tells that the final write is under way: from then on its answer,
	// and no heartbeat's, says whether the lease held.
	settling atomic.Bool

	stages stages
}

func newAttempt(w *Worker, queue string, row *db.ClaimJobsRow, sent time.Time) (*attempt, error) {
	a := &attempt{
		w: w, id: JobID(row.JobID), fence: row.Fence, queue: queue, jobType: row.Type, payload: json.RawMessage(row.Payload),
		number: int(row.Attempt), maxAttempts: int(row.MaxAttempts), acceptedAt: time.UnixMicro(row.AcceptedAtUs),
		timeout: time.Duration(row.ExecutionTimeoutUs) * time.Microsecond, frees: Release(row.KeyRelease) == ReleaseFinished,
	}
	a.renewed.Store(&sent)
	if row.ConcurrencyKey != nil {
		a.concurrency = *row.ConcurrencyKey
	}
	if row.Deadline != "" {
		deadline, err := parseInstant(row.Deadline)
		if err != nil {
			return nil, fmt.Errorf("queue: job %s: read the deadline: %w", a.id, err)
		}
		a.deadline = deadline
		a.deadlineIn = max(microsecondsOrMax(row.DeadlineInUs), time.Microsecond)
	}
	if row.Tags != "" {
		if err := json.Unmarshal([]byte(row.Tags), &a.tags); err != nil {
			return nil, fmt.Errorf("queue: job %s: read the tags: %w", a.id, err)
		}
	}
	policy, err := parseRetry(row.Retry)
	if err != nil {
		return nil, fmt.Errorf("queue: job %s: %w", a.id, err)
	}
	a.retry = policy
	return a, nil
}

// microsecondsOrMax is a duration of PostgreSQL's, which reach further than Go's.
func microsecondsOrMax(us int64) time.Duration {
	return time.Duration(min(us, int64(maxDuration/time.Microsecond)*100)) * time.Microsecond
}

// run runs the handler and settles the attempt. base outlives the worker's own
// context, so that a handler can finish while the worker drains.
func (a *attempt) run(base context.Context, h handle) {
	ctx, cancel := context.WithCancelCause(base)
	defer cancel(nil)
	a.cancel = cancel
	a.w.leases.add(a)
	if a.deadlineIn > 0 {
		t := time.AfterFunc(a.deadlineIn, func() { cancel(ErrDeadlineExceeded) })
		defer t.Stop()
	}
	if a.timeout > 0 {
		t := time.AfterFunc(a.timeout, func() { cancel(errExecutionTimeout) })
		defer t.Stop()
	}
	// Deferred, so that a handler that ends its goroutine (runtime.Goexit) is
	// settled too.
	err := errors.New("the handler ended its goroutine")
	defer func() { a.settle(err, context.Cause(ctx)) }()
	err = h(ctx, a)
}

// settle decides what becomes of the attempt: err is what the handler returned,
// cause why its context had ended, if it had.
func (a *attempt) settle(err, cause error) {
	a.settling.Store(true)
	switch {
	case errors.Is(cause, ErrLeaseLost):
		a.w.ended([]*attempt{a}) // CompleteTx may have ended it, and freed its slot
	case a.completing.Load():
		a.w.settleTx(a, err, cause)
	case errors.Is(cause, ErrDeadlineExceeded):
		a.w.fail(a, errors.New("deadline exceeded"), nil)
	case err == nil:
		a.w.completions.add(a)
	case errors.Is(cause, errShutdown):
		a.w.release(a)
	case errors.Is(cause, errExecutionTimeout):
		a.w.fail(a, fmt.Errorf("execution timeout after %s: %w", a.timeout, err), a.delay(err))
	default:
		a.w.fail(a, err, a.delay(err))
	}
}

// lost ends the handler's context: the job is, or will be, another attempt's.
func (a *attempt) lost() {
	a.cancel(ErrLeaseLost)
	a.w.log.Warn("lease lost", "job_id", a.id, "fence", a.fence)
}

// delay is the wait before the next attempt in microseconds; nil: no next one. An
// error's own methods may panic while it is looked through: it is then any error.
func (a *attempt) delay(err error) (us *int64) {
	policy := new(a.retry.delay(a.id, a.number).Microseconds())
	defer func() {
		if recover() != nil {
			us = policy
		}
	}()
	var permanent *permanentError
	if errors.As(err, &permanent) {
		return nil
	}
	var after *retryAfterError
	if errors.As(err, &after) {
		return new(after.delay.Microseconds())
	}
	return policy
}

// maxErrorCharacters bounds the error text that a finished job keeps.
const maxErrorCharacters = 8000

// errorText makes an error storable: valid UTF-8, no NUL, bounded. Printing is
// what survives an Error method that panics.
func errorText(err error) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(fmt.Sprint(err), "\uFFFD"), "\x00", "\uFFFD")
	if utf8.RuneCountInString(text) > maxErrorCharacters {
		return string([]rune(text)[:maxErrorCharacters])
	}
	return text
}

// leases are the attempts whose leases this worker renews.
type leases struct {
	mu   sync.Mutex
	held map[JobID]*attempt
}

// add begins the renewal. Of two attempts that meet here the earlier has lost the
// job, or the other would not have it. That may be the one that comes: its
// process was paused before it began.
func (l *leases) add(a *attempt) {
	l.mu.Lock()
	loser := l.held[a.id]
	if loser != nil && loser.fence > a.fence {
		loser = a
	} else {
		l.held[a.id] = a
	}
	l.mu.Unlock()
	if loser != nil {
		loser.lost()
	}
}

// remove ends the renewal, if the attempt is still the one held: a job that was
// lost may already be back in another attempt.
func (l *leases) remove(a *attempt) (was bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[a.id] != a {
		return false
	}
	delete(l.held, a.id)
	return true
}

func (l *leases) all() []*attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*attempt, 0, len(l.held))
	for _, a := range l.held {
		all = append(all, a)
	}
	return all
}
