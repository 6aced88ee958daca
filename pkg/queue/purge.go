package queue

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/onceq/onceq/db"
)

// PurgeFilter says which waiting jobs to delete. What is given must all fit; the
// zero value is refused.
type PurgeFilter struct {
	// JobIDs are at most 10,000. Nil is no restriction; an empty list that is not
	// nil is refused, since it would mean the opposite of what it looks like.
	JobIDs []JobID
	// Queue and Type are bounded like a request's. Empty is no restriction.
	Queue, Type string
	// All says that no restriction is meant.
	All bool
	// Progress, unless nil, is told after each step how many jobs were purged so
	// far.
	Progress func(purged int64)
}

const (
	maxPurgeIDs = 10_000
	// purgeStep is how many jobs one transaction deletes, and listStep how many a
	// walk looks at to find them.
	purgeStep = 500
	listStep  = 2000
	// purgeRounds bounds how often jobs are tried that somebody else holds: about
	// two seconds.
	purgeRounds = 10
)

// Purge deletes ready and scheduled jobs, also those that wait for a retry, with
// their bindings, checkpoints and events, so that their keys are free at once,
// and returns how many. Running and ended jobs stay. It works in transactions of
// up to 500 jobs; what they did stays done when a later one fails, and the number
// returned tells it. Jobs that are accepted after it began are not touched.
//
// It waits for nobody: a job that is being claimed, replaced or cancelled, by a
// transaction that is still open, is tried again for about two seconds and then
// left alone. A job is either purged or claimed, never both. Each purge that
// found something leaves one summary event (docs/architecture.md).
func (c *Client) Purge(ctx context.Context, f PurgeFilter) (int64, error) {
	ids, err := f.check()
	if err != nil {
		return 0, fmt.Errorf("queue: purge: %w", err)
	}
	if err := c.checkSchema(ctx, c.own); err != nil {
		return 0, fmt.Errorf("queue: purge: %w", err)
	}
	at, err := c.own.ReadClock(ctx)
	if err != nil {
		return 0, fmt.Errorf("queue: purge: %w", classify(err))
	}
	summary, err := uuid.NewV7()
	if err != nil {
		return 0, fmt.Errorf("queue: purge: make an event id: %w", err)
	}
	p := purge{c: c, filter: f, ids: ids, params: db.PurgeJobsParams{
		Until: at, Queue: f.Queue, Type: f.Type, SummaryID: summary.String(), Filter: string(f.details()),
	}}
	if err := p.run(ctx); err != nil {
		return p.purged, fmt.Errorf("queue: purge: %d jobs were purged: %w", p.purged, classify(err))
	}
	return p.purged, nil
}

// check finds everything that is wrong with a filter, and returns its ids in the
// form that PostgreSQL reads.
func (f PurgeFilter) check() ([]string, error) {
	var wrong problems
	if f.JobIDs == nil && f.Queue == "" && f.Type == "" && !f.All {
		wrong.add("filter", "empty; to purge every waiting job, set All")
	}
	if f.JobIDs != nil && (len(f.JobIDs) == 0 || len(f.JobIDs) > maxPurgeIDs) {
		wrong.add("job_ids", "%d ids; allowed are 1 to %d, or nil", len(f.JobIDs), maxPurgeIDs)
		return nil, wrong.err()
	}
	if f.Queue != "" {
		wrong.name("queue", f.Queue)
	}
	if f.Type != "" {
		wrong.name("type", f.Type)
	}
	ids := make([]string, len(f.JobIDs))
	malformed := 0
	for i, id := range f.JobIDs {
		parsed, err := uuid.Parse(string(id))
		if err != nil {
			if malformed++; malformed <= maxConflicts {
				wrong.add("job_ids", "id %d is not a UUID", i)
			}
		}
		ids[i] = parsed.String()
	}
	return ids, wrong.err()
}

// details are what the summary event tells of the filter.
func (f PurgeFilter) details() json.RawMessage {
	return details(struct {
		JobIDs int    `json:"job_ids,omitzero"`
		Queue  string `json:"queue,omitzero"`
		Type   string `json:"type,omitzero"`
		All    bool   `json:"all,omitzero"`
	}{len(f.JobIDs), f.Queue, f.Type, f.All})
}

// purge is one purge under way.
type purge struct {
	c      *Client
	filter PurgeFilter
	ids    []string
	params db.PurgeJobsParams
	purged int64
	busy   int64 // of the current round
}

func (p *purge) run(ctx context.Context) error {
	for round := range purgeRounds {
		if round > 0 {
			if err := pause(ctx, round); err != nil {
				return err
			}
		}
		p.busy = 0
		if err := p.round(ctx); err != nil {
			return err
		}
		if p.busy == 0 {
			return nil
		}
	}
	return nil
}

// round goes once over everything that the filter names.
func (p *purge) round(ctx context.Context) error {
	if p.filter.JobIDs != nil {
		return p.steps(ctx, p.ids)
	}
	after := db.ListPendingRow{Priority: -1, ReadyAt: "-infinity", JobID: uuid.Nil.String()}
	for {
		var rows []db.ListPendingRow
		err := again(ctx, func() (err error) {
			rows, err = p.list(ctx, after)
			return err
		})
		if err != nil || len(rows) == 0 {
			return err
		}
		var ids []string
		for _, row := range rows {
			if p.filter.Type == "" || row.Type == p.filter.Type {
				ids = append(ids, row.JobID)
			}
		}
		if err := p.steps(ctx, ids); err != nil {
			return err
		}
		after = rows[len(rows)-1]
	}
}

// list is the next part of the walk.
func (p *purge) list(ctx context.Context, after db.ListPendingRow) ([]db.ListPendingRow, error) {
	if p.filter.Queue == "" {
		return p.c.own.ListPending(ctx, db.ListPendingParams{
			AfterQueue: after.Queue, AfterPriority: after.Priority, AfterReadyAt: after.ReadyAt, AfterJobID: after.JobID, Rows: listStep,
		})
	}
	rows, err := p.c.own.ListPendingOfQueue(ctx, db.ListPendingOfQueueParams{
		Queue: p.filter.Queue, AfterPriority: after.Priority, AfterReadyAt: after.ReadyAt, AfterJobID: after.JobID, Rows: listStep,
	})
	same := make([]db.ListPendingRow, len(rows))
	for i, row := range rows {
		same[i] = db.ListPendingRow(row)
	}
	return same, err
}

// steps deletes listed jobs, a bounded number in each transaction.
func (p *purge) steps(ctx context.Context, ids []string) error {
	for len(ids) > 0 {
		n := min(purgeStep, len(ids))
		p.params.JobIds, ids = ids[:n], ids[n:]
		row, err := p.c.own.PurgeJobs(ctx, p.params)
		if retryable(err) {
			p.busy += int64(n)
			continue
		}
		if err != nil {
			return err
		}
		p.purged += row.Purged
		p.busy += row.Busy
		if p.filter.Progress != nil {
			p.filter.Progress(p.purged)
		}
	}
	return nil
}
