package queue

import (
	"context"
	"errors"
)

// RedriveManyRequest is an order to redrive all dead letters that fit a filter,
// oldest first.
type RedriveManyRequest struct {
	// Filter says which. Its State and WithPayload are ignored.
	Filter JobFilter
	// RequestID, Actor, Reason and Again are as in RedriveRequest.
	RequestID, Actor, Reason string
	Again                    bool
	// Limit is how many jobs the order may make in all, over all calls with its
	// request id: 1 to 1,000,000.
	Limit int
	// DryRun writes nothing and tells what would be done.
	DryRun bool
	// Progress, where given, is called after each step, from the same goroutine.
	Progress func(RedriveManyResult)
}

// RedriveManyResult tells what was done, or, of a dry run, what would be.
type RedriveManyResult struct {
	// Redriven is how many jobs were made.
	Redriven int64
	// Replayed is how many this request id had made before.
	Replayed int64
	// Skipped is how many fit, but were redriven before under other request ids.
	Skipped int64
	// LookedAt is how many dead letters were looked at.
	LookedAt int64
	// AtLimit tells that the limit ended the run: more may fit.
	AtLimit bool
}

// RedriveMany redrives dead letters, oldest first.
func (c *Client) RedriveMany(ctx context.Context, req RedriveManyRequest) (RedriveManyResult, error) {
	return RedriveManyResult{}, errors.ErrUnsupported
}
