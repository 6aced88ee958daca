package queue

import (
	"context"
	"errors"
)

// RedriveStatus is the answer to a redrive.
type RedriveStatus string

const (
	// Redriven tells that a new job was made: the target.
	Redriven RedriveStatus = "redriven"
	// RedriveReplayed tells that the same request id had made the target before.
	// Nothing was written.
	RedriveReplayed RedriveStatus = "replayed"
	// RedriveAlready tells that another request id had made the target before, and
	// Again was not set. Nothing was written.
	RedriveAlready RedriveStatus = "already_redriven"
	// RedriveNotDead tells that the job is not dead.
	RedriveNotDead RedriveStatus = "not_dead"
	// RedriveNotFound tells that there is no such job, or no longer.
	RedriveNotFound RedriveStatus = "not_found"
)

// RedriveRequest is an operator's order to run a dead letter's work again.
type RedriveRequest struct {
	// JobID is the dead letter: the source.
	JobID JobID
	// RequestID names the order, so that it can be repeated safely: 1 to 512 bytes
	// of UTF-8. It is stored hashed, like a key.
	RequestID string
	// Actor is who gives the order, in 1 to 200 characters, and Reason why, in 1 to
	// 2,000. Both are kept in clear.
	Actor, Reason string
	// Again redrives a dead letter that another request id has redriven already.
	Again bool
}

// RedriveResult is the answer to a redrive. Target is empty with not_dead and
// not_found.
type RedriveResult struct {
	Status RedriveStatus
	Target JobID
}

// Redrive runs a dead letter's work again, as a new job.
func (c *Client) Redrive(ctx context.Context, req RedriveRequest) (RedriveResult, error) {
	return RedriveResult{}, errors.ErrUnsupported
}
