package queue

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/onceq/onceq/db"
)

// maxLook bounds how many rows one step of a listing's walk looks at.
const maxLook = 2000

// look is how many rows the next step looks at: a page at first, and more while
// few of them fit.
type look int64

func (l *look) after(fitting int) {
	if fitting < jobPage/2 {
		*l = min(4**l, maxLook)
	}
}

// walkJobs chooses the index that a filter is served by. Waiting and running jobs
// of a queue are mostly few among all jobs, so they are first looked for where
// they are; only if there are too many is the walk over all jobs the shorter way.
func (c *Client) walkJobs(ctx context.Context, f JobFilter) (idWalk, error) {
	switch f.State {
	case StateScheduled, StateReady, StateRunning:
		ids, err := c.fewOf(ctx, f)
		if err != nil || len(ids) <= fewJobs {
			return known(f, ids), err
		}
	case StateDead:
		return c.walkEnded(f, 2), nil
	case StateCancelled:
		return c.walkEnded(f, 3), nil
	}
	least, before := f.ids()
	return steps(before, func(ctx context.Context, before string, rows int64) (db.ListJobsRow, error) {
		return c.fresh.ListJobs(ctx, db.ListJobsParams{
			Queue: f.Queue, Type: f.Type, Tag: f.Tag, Since: f.since(), Until: f.until(), State: string(f.State), Error: f.Error,
			Before: before, Least: least, Rows: rows,
		})
	}), nil
}

func (c *Client) fewOf(ctx context.Context, f JobFilter) ([]string, error) {
	if f.State == StateRunning {
		return c.fresh.FewRunning(ctx, db.FewRunningParams{Queue: f.Queue, Rows: fewJobs + 1})
	}
	return c.fresh.FewWaiting(ctx, db.FewWaitingParams{Queue: f.Queue, Ready: f.State == StateReady, Rows: fewJobs + 1})
}

// known walks over ids that were found at once, as far as they can fit.
func known(f JobFilter, ids []string) idWalk {
	least, before := f.ids()
	ids = slices.DeleteFunc(ids, func(id string) bool { return id < least || id >= before })
	slices.Sort(ids)
	slices.Reverse(ids)
	return func(context.Context) ([]string, bool, error) { return ids, true, nil }
}

// walkEnded walks over the dead or the cancelled jobs alone.
func (c *Client) walkEnded(f JobFilter, state int16) idWalk {
	least, before := f.ids()
	return steps(before, func(ctx context.Context, before string, rows int64) (db.ListJobsRow, error) {
		row, err := c.fresh.ListEnded(ctx, db.ListEndedParams{
			Queue: f.Queue, Type: f.Type, Tag: f.Tag, Since: f.since(), Until: f.until(), State: state, Error: f.Error,
			Before: before, Least: least, Rows: rows,
		})
		return db.ListJobsRow(row), err
	})
}

// steps walks down the ids, each step from where the last one ended.
func steps(before string, step func(ctx context.Context, before string, rows int64) (db.ListJobsRow, error)) idWalk {
	rows := look(jobPage)
	return func(ctx context.Context) ([]string, bool, error) {
		row, err := step(ctx, before, int64(rows))
		if err != nil {
			return nil, false, err
		}
		end := row.LookedAt < int64(rows)
		before = row.Reached
		rows.after(len(row.Ids))
		return row.Ids, end, nil
	}
}

// walkDead walks over the dead jobs in the order of their deaths.
func (c *Client) walkDead(_ context.Context, f JobFilter) (idWalk, error) {
	before, beforeID := f.until(), uuid.Nil.String() // before Until, not at it
	rows := look(jobPage)
	return func(ctx context.Context) ([]string, bool, error) {
		dead, err := c.fresh.ListDead(ctx, db.ListDeadParams{
			Queue: f.Queue, Type: f.Type, Tag: f.Tag, Error: f.Error, Since: f.since(), Before: before, BeforeID: beforeID, Rows: int64(rows),
		})
		if err != nil {
			return nil, false, err
		}
		end := len(dead) < int(rows)
		var ids []string
		for _, d := range dead {
			before, beforeID = d.FinishedAt, d.JobID
			if d.Fits {
				ids = append(ids, d.JobID)
			}
		}
		rows.after(len(ids))
		return ids, end, nil
	}, nil
}
