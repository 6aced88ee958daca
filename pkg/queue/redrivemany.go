package queue

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/onceq/onceq/db"
)

// RedriveManyRequest is an operator's order to redrive the dead letters that fit
// a filter, oldest death first.
type RedriveManyRequest struct {
	// Filter says which, as for DeadLetters; the zero value is all of them. Its State
	// and WithPayload are ignored.
	Filter JobFilter
	// RequestID, Actor, Reason and Again are as in RedriveRequest.
	RequestID, Actor, Reason string
	Again                    bool
	// Limit is how many dead letters the order may redrive, those that it redrove
	// before and that are still there included: 1 to 1,000,000.
	Limit int
	// DryRun writes nothing and tells what would be done.
	DryRun bool
	// Progress, where given, is called after each step, in the caller's goroutine.
	Progress func(RedriveManyResult) `json:"-"`
}

// RedriveManyResult tells what was done, or what a dry run found to do.
type RedriveManyResult struct {
	// Redriven is how many jobs were made.
	Redriven int64
	// Replayed is how many the same request id had made before.
	Replayed int64
	// Skipped is how many dead letters fit but had been redriven under another
	// request id, or were gone when their turn came.
	Skipped int64
	// LookedAt is how many dead letters were looked at.
	LookedAt int64
	// AtLimit tells that Limit was met before the end: there may be more that fit.
	AtLimit bool
}

const maxRedriveMany = 1_000_000

// RedriveMany redrives the dead letters that fit, oldest first, as Redrive would
// each of them, in transactions of up to 200. What it did stays done when a later
// step fails, and the result tells it. Repeated with the same request id it goes
// on where it was broken off: what it has done is replayed and counts towards
// Limit, so that the order makes no job twice and no more than Limit. What counts
// is found by the dead letters themselves: one that retention deleted between two
// calls counts no longer, and the order may redrive another in its place. Jobs
// that die after a call began are left alone by it, and so are jobs that the same
// order made, should they die too.
func (c *Client) RedriveMany(ctx context.Context, req RedriveManyRequest) (RedriveManyResult, error) {
	run, err := c.newRedriveRun(req)
	if err != nil {
		return RedriveManyResult{}, fmt.Errorf("queue: redrive many: %w", err)
	}
	if err := c.checkSchema(ctx, c.own); err != nil {
		return RedriveManyResult{}, fmt.Errorf("queue: redrive many: %w", err)
	}
	if err := run.run(ctx); err != nil {
		return run.done, fmt.Errorf("queue: redrive many: %d jobs were made: %w", run.done.Redriven, classify(err))
	}
	return run.done, nil
}

// redriveRun is a RedriveMany under way.
type redriveRun struct {
	*order
	req  RedriveManyRequest
	list db.ListRedrivableParams
	done RedriveManyResult
}

func (c *Client) newRedriveRun(req RedriveManyRequest) (*redriveRun, error) {
	req.Filter.State = StateDead
	var wrong problems
	wrong.filter(req.Filter)
	wrong.number("limit", req.Limit, 1, maxRedriveMany)
	wrong.order(req.RequestID, req.Actor, req.Reason)
	if err := wrong.err(); err != nil {
		return nil, err
	}
	o := c.newOrder(req.RequestID, req.Actor, req.Reason, req.Again)
	return &redriveRun{order: o, req: req, list: db.ListRedrivableParams{
		Queue: req.Filter.Queue, Type: req.Filter.Type, Tag: req.Filter.Tag, Error: req.Filter.Error,
		Since: req.Filter.since(), Until: req.Filter.until(), After: "-infinity", AfterID: uuid.Nil.String(),
		RequestHashes: o.params.RequestHashes, Actor: req.Actor, Reason: req.Reason, Again: req.Again, Rows: redriveStep,
	}}, nil
}

func (r *redriveRun) run(ctx context.Context) error {
	began, err := r.c.own.ReadClock(ctx)
	if err != nil {
		return err
	}
	r.list.Began = began
	for end := false; !end && !r.done.AtLimit; {
		if end, err = r.step(ctx); err != nil {
			return err
		}
		if r.req.Progress != nil {
			r.req.Progress(r.done)
		}
	}
	return nil
}

// step looks at the next dead letters and does what is to be done about them;
// true tells that they were the last.
func (r *redriveRun) step(ctx context.Context) (bool, error) {
	var rows []db.ListRedrivableRow
	if err := r.c.byIndex(ctx, func(q *db.Queries) (err error) {
		rows, err = q.ListRedrivable(ctx, r.list)
		return err
	}); err != nil {
		return false, err
	}
	var fresh []string
	for _, row := range rows {
		verdict := RedriveStatus(row.Verdict)
		if r.done.AtLimit = r.done.Redriven+r.done.Replayed+int64(len(fresh)) == int64(r.req.Limit); r.done.AtLimit {
			break
		}
		r.done.LookedAt++
		r.list.After, r.list.AfterID = row.FinishedAt, row.JobID
		switch {
		case !row.Fits:
		case verdict == Redriven:
			fresh = append(fresh, row.JobID)
		case verdict == RedriveReplayed:
			r.done.Replayed++
		case verdict == RedriveAlready:
			r.done.Skipped++
		default: // a conflict: the answer of Redrive tells with what
			if _, err := r.redrive(ctx, []string{row.JobID}); err != nil {
				return false, err
			}
		}
	}
	return len(rows) < redriveStep, r.carryOut(ctx, fresh)
}

func (r *redriveRun) carryOut(ctx context.Context, sources []string) error {
	if len(sources) == 0 {
		return nil
	}
	if r.req.DryRun {
		r.done.Redriven += int64(len(sources))
		return nil
	}
	answers, err := r.redrive(ctx, sources)
	for _, answer := range answers {
		switch RedriveStatus(answer.Status) {
		case Redriven:
			r.done.Redriven++
		case RedriveReplayed:
			r.done.Replayed++
		default:
			r.done.Skipped++
		}
	}
	return err
}
