package queue

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/db"
)

// debounced is the decision about one request under Debounce, in
// queries/debounce.sql. Its job is always scheduled, so it wakes nobody.
type debounced struct{ p *prepared }

func (d debounced) partial() bool { return false }

// decide asks until there is an answer. No answer leaves nothing written, but in
// a transaction the binding stays locked, so the next look can't be overtaken; a
// statement that is its own transaction has lost that lock with its end, and is
// asked again in a longer one.
func (d debounced) decide(ctx context.Context, q *db.Queries, alone bool) ([]Result, error) {
	params := d.params(alone)
	row, err := q.Debounce(ctx, params)
	for try := 1; errors.Is(err, pgx.ErrNoRows); try++ {
		if alone || try == maxTries {
			return nil, errUnsettled
		}
		row, err = q.Debounce(ctx, params)
	}
	if err != nil {
		return nil, err
	}
	if row.Waited {
		if err := q.RestartWindows(ctx, db.RestartWindowsParams{KeyHashes: d.p.hashes, JobIds: []string{d.p.id}}); err != nil {
			return nil, err
		}
	}
	return []Result{{JobID: JobID(row.JobID), Outcome: Outcome(row.Outcome), Reason: NonReplaceableReason(row.Reason), Dead: row.Dead}}, nil
}

func (d debounced) params(alone bool) db.DebounceParams {
	r, a := d.p.request, d.p.admission
	return db.DebounceParams{
		KeyHash:            d.p.hashes[0],
		FollowUp:           a.followUp,
		Hold:               a.hold,
		WindowUs:           a.retention.Microseconds(),
		MaxWaitUs:          orNil(a.maxWait.Microseconds()),
		Deadline:           instantText(r.Deadline),
		ExecutionTimeoutUs: orNil(r.ExecutionTimeout.Microseconds()),
		Priority:           int16(r.Priority),
		MaxAttempts:        int16(r.MaxAttempts),
		Queue:              r.Queue,
		Type:               r.Type,
		Payload:            d.p.payload,
		Retry:              r.Retry.retryPolicy().stored(),
		Tags:               orNil(tagsText(r.Tags)),
		ConcurrencyKey:     orNil(r.ConcurrencyKey),
		Fingerprint:        d.p.fingerprint.stored(),
		JobID:              d.p.id,
		Scope:              a.scope,
		KeyLength:          int16(d.p.key.Length),
		KeyPreview:         d.p.key.Preview,
		SlackUs:            d.p.slack().Microseconds(),
		Alone:              alone,
	}
}
