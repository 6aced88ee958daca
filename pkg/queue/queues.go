package queue

import (
	"context"
	"fmt"

	"github.com/onceq/onceq/db"
)

// QueueSettings caps a queue, over all its workers.
type QueueSettings struct {
	// MaxRunning is how many jobs of the queue may run at once: up to 1,000,000.
	// Zero is no cap. Claims from a capped queue take turns.
	MaxRunning int
	// MaxRunningPerKey is how many jobs of the queue with one ConcurrencyKey may
	// run at once: up to 1,000. Zero is 1.
	MaxRunningPerKey int
}

const (
	maxMaxRunning       = 1_000_000
	maxMaxRunningPerKey = 1_000
)

// SetQueue sets a queue's caps. What runs already goes on. The name is bounded
// like a request's Queue, and the queue need not have any jobs yet.
func (c *Client) SetQueue(ctx context.Context, name string, s QueueSettings) error {
	var wrong problems
	wrong.name("queue", name)
	wrong.number("MaxRunning", s.MaxRunning, 0, maxMaxRunning)
	wrong.number("MaxRunningPerKey", s.MaxRunningPerKey, 0, maxMaxRunningPerKey)
	return c.administer(ctx, "set queue", &wrong, func() error {
		return c.own.SetQueue(ctx, db.SetQueueParams{Name: name, MaxRunning: int32(s.MaxRunning), MaxRunningPerKey: int32(s.MaxRunningPerKey)})
	})
}

// PauseQueue stops claims from a queue; what runs goes on, and requests are
// accepted as before. A queue that is paused already stays so. The name is as
// with SetQueue.
func (c *Client) PauseQueue(ctx context.Context, name string) error {
	return c.setPaused(ctx, "pause queue", name, true)
}

// ResumeQueue lets claims from a queue go on. One that is not paused stays as it is.
func (c *Client) ResumeQueue(ctx context.Context, name string) error {
	return c.setPaused(ctx, "resume queue", name, false)
}

func (c *Client) setPaused(ctx context.Context, verb, name string, paused bool) error {
	var wrong problems
	wrong.name("queue", name)
	return c.administer(ctx, verb, &wrong, func() error {
		return c.own.PauseQueue(ctx, db.PauseQueueParams{Name: name, Paused: paused})
	})
}

// QueueInfo is a queue and its settings.
type QueueInfo struct {
	Name   string
	Paused bool
	// QueueSettings are those in force: MaxRunningPerKey is at least 1.
	QueueSettings
}

// Queues lists, in the order of their names, the queues that were ever set or
// paused and those that have jobs that wait or run.
func (c *Client) Queues(ctx context.Context) ([]QueueInfo, error) {
	if err := c.checkSchema(ctx, c.own); err != nil {
		return nil, fmt.Errorf("queue: queues: %w", err)
	}
	var rows []db.ListQueuesRow
	err := again(ctx, func() (err error) {
		rows, err = c.fresh.ListQueues(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("queue: queues: %w", classify(err))
	}
	queues := make([]QueueInfo, len(rows))
	for i, row := range rows {
		queues[i] = QueueInfo{Name: row.Name, Paused: row.Paused,
			QueueSettings: QueueSettings{MaxRunning: int(row.MaxRunning), MaxRunningPerKey: int(row.MaxRunningPerKey)}}
	}
	return queues, nil
}

func (c *Client) administer(ctx context.Context, verb string, wrong *problems, do func() error) error {
	err := wrong.err()
	if err == nil {
		err = c.checkSchema(ctx, c.own)
	}
	if err == nil {
		err = classify(again(ctx, do))
	}
	if err != nil {
		return fmt.Errorf("queue: %s: %w", verb, err)
	}
	return nil
}
