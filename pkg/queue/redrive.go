package queue

import (
	"context"
	"fmt"
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

// Redrive runs a dead letter's work again: it makes a new ready job with the
// source's queue, type, payload, priority, concurrency key, tags, attempts, retry
// policy and timeout, and without its deadline, checkpoints and key. The source
// stays dead.
//
// The same request id for the same source is answered with the first target,
// also when that has ended or gone, and writes nothing; with another actor or
// reason it is a [RedriveConflictError]. However many callers there are at once,
// one request id makes one target, and without Again a source has one target.
func (c *Client) Redrive(ctx context.Context, req RedriveRequest) (RedriveResult, error) {
	var wrong problems
	wrong.order(req.RequestID, req.Actor, req.Reason)
	if err := wrong.err(); err != nil {
		return RedriveResult{}, fmt.Errorf("queue: redrive: %w", err)
	}
	id, ok := req.JobID.canonical()
	if !ok {
		return RedriveResult{Status: RedriveNotFound}, nil
	}
	if err := c.checkSchema(ctx, c.own); err != nil {
		return RedriveResult{}, fmt.Errorf("queue: redrive: %w", err)
	}
	rows, err := c.newOrder(req.RequestID, req.Actor, req.Reason, req.Again).redrive(ctx, []string{id})
	if err != nil {
		return RedriveResult{}, fmt.Errorf("queue: redrive job %s: %w", id, err)
	}
	return RedriveResult{Status: RedriveStatus(rows[0].Status), Target: JobID(rows[0].TargetID)}, nil
}
