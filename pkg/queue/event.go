package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// EventKind names what happened to a job.
type EventKind string

// EventAccepted tells that the job was accepted.
const EventAccepted EventKind = "accepted"

// Event is one step in a job's life.
type Event struct {
	Kind EventKind
	// At is by PostgreSQL's clock.
	At time.Time
	// Attempt is the attempt it belongs to; 0 before the first.
	Attempt int
	// Details is a small JSON object: references, digests, times; never a key or
	// a payload.
	Details json.RawMessage
}

// Events is the timeline of a job, oldest first. ErrJobNotFound as with Job.
// The acceptance is read from the job's own row: the hot path writes no events.
func (c *Client) Events(ctx context.Context, id JobID) ([]Event, error) {
	job, err := c.Job(ctx, id)
	if err != nil {
		return nil, err
	}
	details, err := json.Marshal(struct {
		Key *KeyRef `json:"key,omitempty"`
	}{job.Key})
	if err != nil {
		return nil, fmt.Errorf("queue: events of job %s: %w", id, err)
	}
	return []Event{{Kind: EventAccepted, At: job.AcceptedAt, Details: details}}, nil
}
