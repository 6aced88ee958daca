package queue

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/db"
)

// single is the decision about one request, in queries/enqueue.sql.
type single struct {
	c *Client
	p *prepared
}

// decisionFor prepares a request and picks the statement. A key that may stand
// under several hashes needs the one for batches, which binds all of them or none.
func (c *Client) decisionFor(r Request) (decision, error) {
	p, err := c.prepareLook(r)
	if err != nil {
		return nil, err
	}
	if len(p.hashes) <= 1 && p.admission.mode != modeDebounce {
		return single{c: c, p: p}, nil
	}
	if err := p.complete(); err != nil {
		return nil, err
	}
	if len(p.hashes) > 1 {
		b := c.batchOf([]*prepared{p})
		b.single = true
		return b, nil
	}
	return debounced{p}, nil
}

func (s single) partial() bool { return false }

func (s single) decide(ctx context.Context, q *db.Queries, alone bool) ([]Result, error) {
	first := keyedStatement(q.Enqueue)
	if s.c.likelyRepeat(s.p) {
		if res, err := s.repeat(ctx, q); !errors.Is(err, pgx.ErrNoRows) {
			return res, err
		}
		first = enqueueAgain(q)
	}
	if err := s.p.complete(); err != nil {
		return nil, err
	}
	wake := s.c.waker.reserve(s.p.request.Queue)
	if !alone {
		wake = wake.uncommitted()
	}
	var res Result
	var woken int64
	var err error
	if s.p.keyed() {
		res, woken, err = s.keyed(ctx, q, first, s.params(wake.channel(), alone))
	} else {
		res, woken, err = s.plain(ctx, q, wake.channel())
	}
	wake.done(woken, err == nil && res.Outcome == OutcomeAccepted && s.p.seemsReady())
	if err != nil {
		return nil, err
	}
	return []Result{res}, nil
}

func (s single) plain(ctx context.Context, q *db.Queries, channel *string) (Result, int64, error) {
	r := s.p.request
	wakes, err := q.EnqueuePlain(ctx, db.EnqueuePlainParams{
		JobID:              s.p.id,
		RunAt:              instantText(r.RunAt),
		Deadline:           instantText(r.Deadline),
		ExecutionTimeoutUs: orNil(r.ExecutionTimeout.Microseconds()),
		Priority:           int16(r.Priority),
		MaxAttempts:        int16(r.MaxAttempts),
		Queue:              r.Queue,
		Type:               r.Type,
		Payload:            s.p.payload,
		Retry:              r.Retry.retryPolicy().stored(),
		Tags:               orNil(tagsText(r.Tags)),
		ConcurrencyKey:     orNil(r.ConcurrencyKey),
		Wake:               channel,
	})
	if err != nil {
		return Result{}, 0, err
	}
	return Result{JobID: JobID(s.p.id), Outcome: OutcomeAccepted}, wakes, nil
}

// keyed asks the first statement and, while there is no answer, EnqueueAgain, each
// on a new snapshot. No answer twice in a row needs a binding to end within the
// call.
func (s single) keyed(ctx context.Context, q *db.Queries, first keyedStatement, params db.EnqueueParams) (Result, int64, error) {
	row, err := first(ctx, params)
	for try := 1; errors.Is(err, pgx.ErrNoRows); try++ {
		if try == maxTries {
			return Result{}, 0, errUnsettled
		}
		row, err = enqueueAgain(q)(ctx, params)
	}
	if err != nil {
		return Result{}, 0, err
	}
	s.c.repeats.note(s.p.admission.scope, row.Held != nil)
	if row.Held != nil {
		h, err := parseHeld(*row.Held)
		if err != nil {
			return Result{}, 0, err
		}
		res, err := s.p.answer(-1, h)
		return res, 0, err
	}
	if row.Waited {
		err = q.RestartBindings(ctx, db.RestartBindingsParams{KeyHashes: s.p.hashes, JobIds: []string{s.p.id}})
	}
	return Result{JobID: JobID(s.p.id), Outcome: OutcomeAccepted}, row.Wakes, err
}

// keyedStatement is Enqueue or EnqueueAgain.
type keyedStatement func(context.Context, db.EnqueueParams) (db.EnqueueRow, error)

func enqueueAgain(q *db.Queries) keyedStatement {
	return func(ctx context.Context, params db.EnqueueParams) (db.EnqueueRow, error) {
		row, err := q.EnqueueAgain(ctx, db.EnqueueAgainParams(params))
		return db.EnqueueRow(row), err
	}
}

// repeat answers for a live binding alone; there may be none (pgx.ErrNoRows).
func (s single) repeat(ctx context.Context, q *db.Queries) ([]Result, error) {
	text, err := q.EnqueueRepeat(ctx, db.EnqueueRepeatParams{
		Whole: s.p.fingerprint.storedWhole(), Mode: int16(s.p.admission.mode), KeyHash: s.p.hashes[0]})
	if err != nil {
		return nil, err
	}
	h, err := parseHeld(text)
	if err != nil {
		return nil, err
	}
	if h.fingerprint != nil { // a conflict names the members
		s.p.digestMembers()
	}
	res, err := s.p.answer(-1, h)
	if err != nil {
		return nil, err
	}
	return []Result{res}, nil
}

func (s single) params(channel *string, alone bool) db.EnqueueParams {
	r := s.p.request
	return db.EnqueueParams{
		KeyHash:            s.p.hashes[0],
		TtlUs:              s.p.admission.retention.Microseconds(),
		JobID:              s.p.id,
		Mode:               int16(s.p.admission.mode),
		Release:            int16(s.p.admission.release),
		Scope:              s.p.admission.scope,
		Fingerprint:        s.p.fingerprint.stored(),
		RunAt:              instantText(r.RunAt),
		Deadline:           instantText(r.Deadline),
		ExecutionTimeoutUs: orNil(r.ExecutionTimeout.Microseconds()),
		Priority:           int16(r.Priority),
		MaxAttempts:        int16(r.MaxAttempts),
		Queue:              r.Queue,
		Type:               r.Type,
		Payload:            s.p.payload,
		Retry:              r.Retry.retryPolicy().stored(),
		Tags:               orNil(tagsText(r.Tags)),
		ConcurrencyKey:     orNil(r.ConcurrencyKey),
		KeyLength:          int16(s.p.key.Length),
		KeyPreview:         s.p.key.Preview,
		Wake:               channel,
		SlackUs:            s.p.slack().Microseconds(),
		Alone:              alone,
	}
}

// orNil is NULL for a zero value, which SQL stores as the absence it means.
func orNil[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return new(v)
}
