package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/onceq/onceq/db"
)

// EventKind names what happened to a job.
type EventKind string

// The steps of a job's life.
const (
	EventAccepted        EventKind = "accepted"
	EventReplaced        EventKind = "replaced"
	EventClaimed         EventKind = "claimed"
	EventRetryScheduled  EventKind = "retry_scheduled"
	EventReleased        EventKind = "released"
	EventLeaseExpired    EventKind = "lease_expired"
	EventSucceeded       EventKind = "succeeded"
	EventDead            EventKind = "dead"
	EventCancelRequested EventKind = "cancel_requested"
	EventCancelled       EventKind = "cancelled"
	EventCheckpointSaved EventKind = "checkpoint_saved"
	// EventRedriven is on a dead job that was redriven, EventRedriveCreated on the
	// job that came of it.
	EventRedriven       EventKind = "redriven"
	EventRedriveCreated EventKind = "redrive_created"
	// EventRunNow tells that an operator moved the run time to now.
	EventRunNow EventKind = "run_now"
	// EventPurged is the summary that a purge leaves; it belongs to no job.
	EventPurged EventKind = "purged"
)

// Event is one step in a job's life.
type Event struct {
	Kind EventKind
	// At is by PostgreSQL's clock.
	At time.Time
	// Attempt is the attempt it belongs to; 0 before the first.
	Attempt int
	// Details is a small JSON object: references, digests, times, the worker, an
	// error of at most 1,000 characters; never a key or a payload.
	Details json.RawMessage
}

// Events is the timeline of a job, oldest first. ErrJobNotFound as with Job. The
// hot path writes no events: the acceptance, the claims and the success are read
// from the rows that the job has anyway.
func (c *Client) Events(ctx context.Context, id JobID) ([]Event, error) {
	row, err := c.jobRow(ctx, id)
	if err != nil {
		return nil, err
	}
	job, err := jobInfo(row)
	if err != nil {
		return nil, err
	}
	var stored []db.GetEventsRow
	err = again(ctx, func() (err error) {
		stored, err = c.fresh.GetEvents(ctx, row.ID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("queue: events of job %s: %w", id, classify(err))
	}
	events := []Event{{Kind: EventAccepted, At: job.AcceptedAt, Details: details(struct {
		Key *KeyRef `json:"key,omitempty"`
	}{job.Key})}}
	for _, e := range stored {
		at, err := parseInstant(e.At)
		if err != nil {
			return nil, fmt.Errorf("queue: events of job %s: read a time: %w", id, err)
		}
		events = append(events, claimOf(e)...)
		events = append(events, Event{Kind: EventKind(e.Kind), At: at, Attempt: int(e.Attempt), Details: json.RawMessage(e.Details)})
	}
	current, err := currentClaim(row, job)
	if err != nil {
		return nil, fmt.Errorf("queue: events of job %s: read a time: %w", id, err)
	}
	events = append(events, current...)
	slices.SortStableFunc(events, func(x, y Event) int { return x.At.Compare(y.At) })
	return events, nil
}

type claimDetails struct {
	Worker    string    `json:"worker"`
	ClaimedAt time.Time `json:"claimed_at,omitzero"`
}

// claimOf is the claim of the attempt that a stored event ended.
func claimOf(e db.GetEventsRow) []Event {
	var d claimDetails
	if json.Unmarshal([]byte(e.Details), &d) != nil || d.ClaimedAt.IsZero() {
		return nil
	}
	return []Event{{Kind: EventClaimed, At: d.ClaimedAt, Attempt: int(e.Attempt), Details: details(claimDetails{Worker: d.Worker})}}
}

// currentClaim is the claim that no stored event has ended: of a running job or
// of one that succeeded, with its success.
func currentClaim(row db.GetJobsRow, job JobInfo) ([]Event, error) {
	text := row.RunningSince
	if job.State == StateSucceeded {
		text = row.LastClaimedAt
	}
	at, err := parseInstant(text)
	if err != nil || at.IsZero() {
		return nil, err
	}
	d := details(claimDetails{Worker: job.WorkerID})
	events := []Event{{Kind: EventClaimed, At: at, Attempt: job.Attempt, Details: d}}
	if job.State == StateSucceeded {
		events = append(events, Event{Kind: EventSucceeded, At: job.FinishedAt, Attempt: job.Attempt, Details: d})
	}
	return events, nil
}

func details(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic("queue: event details did not marshal: " + err.Error())
	}
	return text
}
