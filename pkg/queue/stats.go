package queue

import (
	"context"
	"errors"
	"time"
)

// QueueStats counts the jobs of a queue.
type QueueStats struct {
	Queue                                                 string
	Scheduled, Ready, Running, Succeeded, Dead, Cancelled int64
	// OldestReady is how long the oldest ready job has been ready.
	OldestReady time.Duration
	// Paused tells that the queue is paused.
	Paused bool
	// Capped tells that a count stopped at its bound, so that there may be more.
	Capped bool
}

// Stats counts jobs by queue and state, in the order of the queues' names.
func (c *Client) Stats(ctx context.Context) ([]QueueStats, error) {
	return nil, errors.ErrUnsupported
}
