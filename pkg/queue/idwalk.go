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
	return c.steps(before, func(ctx context.Context, q *db.Queries, before string, rows int64) (db.ListJobsRow, error) {
		return q.ListJobs(ctx, db.ListJobsParams{
			Queue: f.Queue, Type: f.Type, Tag: f.Tag, Since: f.since(), Until: f.until(), State: string(f.State), Error: f.Error,
			Before: before, Least: least, Rows: rows,
		})
	}), nil
}

func (c *Client) fewOf(ctx context.Context, f JobFilter) (ids []string, err error) {
	err = c.byIndex(ctx, func(q *db.Queries) (err error) {
		if f.State == StateRunning {
			ids, err = q.FewRunning(ctx, db.FewRunningParams{Queue: f.Queue, Rows: fewJobs + 1})
		} else {
			ids, err = q.FewWaiting(ctx, db.FewWaitingParams{Queue: f.Queue, Ready: f.State == StateReady, Rows: fewJobs + 1})
		}
		return err
	})
	return ids, err
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
	return c.steps(before, func(ctx context.Context, q *db.Queries, before string, rows int64) (db.ListJobsRow, error) {
		row, err := q.ListEnded(ctx, db.ListEndedParams{
			Queue: f.Queue, Type: f.Type, Tag: f.Tag, Since: f.since(), Until: f.until(), State: state, Error: f.Error,
			Before: before, Least: least, Rows: rows,
		})
		return db.ListJobsRow(row), err
	})
}

// steps walks down the ids, each step from where the last one ended.
func (c *Client) steps(before string, step func(ctx context.Context, q *db.Queries, before string, rows int64) (db.ListJobsRow, error)) idWalk {
	rows := look(jobPage)
	return func(ctx context.Context) (ids []string, end bool, err error) {
		err = c.byIndex(ctx, func(q *db.Queries) error {
			row, err := step(ctx, q, before, int64(rows))
			ids, end, before = row.Ids, row.LookedAt < int64(rows), row.Reached
			return err
		})
		rows.after(len(ids))
		return ids, end, err
	}
}

// walkDead walks over the dead jobs in the order of their deaths.
func (c *Client) walkDead(_ context.Context, f JobFilter) (idWalk, error) {
	before, beforeID := f.until(), uuid.Nil.String() // before Until, not at it
	rows := look(jobPage)
	return func(ctx context.Context) (ids []string, end bool, err error) {
		err = c.byIndex(ctx, func(q *db.Queries) error {
			dead, err := q.ListDead(ctx, db.ListDeadParams{
				Queue: f.Queue, Type: f.Type, Tag: f.Tag, Error: f.Error, Since: f.since(), Before: before, BeforeID: beforeID, Rows: int64(rows),
			})
			for _, d := range dead {
				before, beforeID = d.FinishedAt, d.JobID
				if d.Fits {
					ids = append(ids, d.JobID)
				}
			}
			end = len(dead) < int(rows)
			return err
		})
		rows.after(len(ids))
		return ids, end, err
	}, nil
}
