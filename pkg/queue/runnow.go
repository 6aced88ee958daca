package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// RunNow makes a scheduled job ready now, also one that waits for a retry; its
// attempts so far still count. It ends the window of a debounced job: the next
// request with its key is accepted as a fresh job. ErrJobNotFound tells that
// there is no such job, ErrNotScheduled that it is ready already, running or has
// ended.
func (c *Client) RunNow(ctx context.Context, id JobID) error {
	text, ok := id.canonical()
	if !ok {
		return fmt.Errorf("queue: run now: %w: the id is not a UUID", ErrJobNotFound)
	}
	if err := c.checkSchema(ctx, c.own); err != nil {
		return fmt.Errorf("queue: run now: %w", err)
	}
	if err := c.runNow(ctx, text); err != nil {
		return fmt.Errorf("queue: run job %s now: %w", text, classify(err))
	}
	return nil
}

func (c *Client) runNow(ctx context.Context, id string) error {
	for try := range maxTries {
		if try > 0 {
			if err := pause(ctx, try); err != nil {
				return err
			}
		}
		row, err := c.fresh.RunNow(ctx, id)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return ErrJobNotFound
		case retryable(err):
			continue
		case err != nil:
			return err
		case row.Moved > 0:
			c.waker.wakeNow(ctx, row.Queue)
			return nil
		case !row.Scheduled:
			return ErrNotScheduled
		}
	}
	return errors.New("it kept moving; ask again")
}
