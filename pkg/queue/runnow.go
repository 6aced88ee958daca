package queue

import (
	"context"
	"errors"
)

// RunNow makes a scheduled job ready now. ErrNotScheduled tells that it does not
// wait for its time.
func (c *Client) RunNow(ctx context.Context, id JobID) error {
	return errors.ErrUnsupported
}
