package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/onceq/onceq/db"
)

// QueueStats counts the jobs of a queue. A queue is known by its settings or its
// jobs.
type QueueStats struct {
	Queue string
	// Scheduled and Ready are counted up to 10,000 each.
	Scheduled, Ready int64
	// Running is counted among at most 100,000 of all queues.
	Running int64
	// Succeeded is counted among the newest 10,000 ended jobs of all queues, Dead
	// and Cancelled each among the newest 10,000 in that state.
	Succeeded, Dead, Cancelled int64
	// OldestReady is how long the oldest ready job has been ready.
	OldestReady time.Duration
	// Paused tells that no worker claims from the queue.
	Paused bool
	// Capped tells that a count met its bound, so that there may be more than it
	// says.
	Capped bool
}

const (
	maxCounted        = 10_000
	maxRunningCounted = 100_000
)

// Stats counts jobs by queue and state, in the order of the queues' names. What
// it costs depends on the number of queues and not on that of jobs: no count goes
// further than its bound (see QueueStats). All counts are of one moment.
func (c *Client) Stats(ctx context.Context) ([]QueueStats, error) {
	if err := c.checkSchema(ctx, c.own); err != nil {
		return nil, fmt.Errorf("queue: stats: %w", err)
	}
	var rows []db.CountJobsRow
	if err := c.byIndex(ctx, func(q *db.Queries) (err error) {
		rows, err = q.CountJobs(ctx, db.CountJobsParams{Most: maxCounted, MostRunning: maxRunningCounted})
		return err
	}); err != nil {
		return nil, fmt.Errorf("queue: stats: %w", classify(err))
	}
	queues := map[string]*QueueStats{}
	capped := false
	for _, row := range rows {
		if row.Queue == "" {
			capped = true
			continue
		}
		if queues[row.Queue] == nil {
			queues[row.Queue] = &QueueStats{Queue: row.Queue}
		}
		queues[row.Queue].add(row)
	}
	stats := make([]QueueStats, 0, len(queues))
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		s := *queues[name]
		s.Capped = s.Capped || capped
		stats = append(stats, s)
	}
	return stats, nil
}

func (s *QueueStats) add(row db.CountJobsRow) {
	switch State(row.State) {
	case StateReady:
		s.Ready, s.Capped = min(row.Jobs, maxCounted), s.Capped || row.Jobs > maxCounted
		s.OldestReady = time.Duration(row.OldestUs) * time.Microsecond
	case StateScheduled:
		s.Scheduled, s.Capped = min(row.Jobs, maxCounted), s.Capped || row.Jobs > maxCounted
	case StateRunning:
		s.Running = row.Jobs
	case StateSucceeded:
		s.Succeeded = row.Jobs
	case StateDead:
		s.Dead = row.Jobs
	case StateCancelled:
		s.Cancelled = row.Jobs
	default:
		s.Paused = row.Paused
	}
}
