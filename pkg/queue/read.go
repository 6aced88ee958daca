package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/db"
)

// JobInfo is a job as people see it.
type JobInfo struct {
	ID          JobID
	Type, Queue string
	State       State
	Priority    int
	// Payload is the stored JSON; nil in a list that did not ask for it.
	Payload        json.RawMessage
	Tags           []string
	ConcurrencyKey string
	// Attempt is the number of attempts begun and not handed back.
	Attempt, MaxAttempts int
	// AcceptedAt is when the job was accepted, by PostgreSQL's clock.
	AcceptedAt time.Time
	// RunAt is the earliest time to run: the request's, or else AcceptedAt; after
	// a failed attempt, that of the next.
	RunAt time.Time
	// Deadline is zero without one, FinishedAt until the job has ended.
	Deadline, FinishedAt time.Time
	// LastError is what the last failed attempt, or the job's end, left behind.
	LastError string
	// WorkerID is the worker that holds the job or held it last; empty while it waits.
	WorkerID string
	// Key shows the key that the job was accepted under; nil without one. It may
	// be another job's by now.
	Key *KeyRef
	// RedriveOf is the dead letter that the job was redriven from, and RedrivenAs
	// the newest job that this one was redriven as; empty where there is none.
	RedriveOf, RedrivenAs JobID
}

// Job reads one job, payload and all; a role without the right to read payloads
// gets none. ErrJobNotFound tells that there is no job with the id, or no longer.
func (c *Client) Job(ctx context.Context, id JobID) (JobInfo, error) {
	row, err := c.jobRow(ctx, id)
	if err != nil {
		return JobInfo{}, err
	}
	job, err := jobInfo(row)
	if err != nil {
		return JobInfo{}, err
	}
	payloads, err := c.payloads(ctx, []string{row.ID})
	if err != nil && sqlState(err) != "42501" { // insufficient_privilege
		return JobInfo{}, fmt.Errorf("queue: job %s: read the payload: %w", row.ID, classify(err))
	}
	job.Payload = payloads[row.ID]
	return job, nil
}

func (c *Client) jobRow(ctx context.Context, id JobID) (db.GetJobsRow, error) {
	text, ok := id.canonical()
	if !ok {
		return db.GetJobsRow{}, fmt.Errorf("queue: job: %w: the id is not a UUID", ErrJobNotFound)
	}
	if err := c.checkSchema(ctx, c.own); err != nil {
		return db.GetJobsRow{}, fmt.Errorf("queue: job: %w", err)
	}
	rows, err := c.jobRows(ctx, []string{text})
	if err != nil {
		return db.GetJobsRow{}, fmt.Errorf("queue: job %s: %w", text, classify(err))
	}
	if len(rows) == 0 {
		return db.GetJobsRow{}, fmt.Errorf("queue: job %s: %w", text, ErrJobNotFound)
	}
	return rows[0], nil
}

func (c *Client) jobRows(ctx context.Context, ids []string) (rows []db.GetJobsRow, err error) {
	err = again(ctx, func() (err error) {
		rows, err = c.fresh.GetJobs(ctx, ids)
		return err
	})
	return rows, err
}

// payloads reads payloads by job id.
func (c *Client) payloads(ctx context.Context, ids []string) (map[string]json.RawMessage, error) {
	var rows []db.GetPayloadsRow
	err := again(ctx, func() (err error) {
		rows, err = c.fresh.GetPayloads(ctx, ids)
		return err
	})
	found := make(map[string]json.RawMessage, len(rows))
	for _, row := range rows {
		found[row.ID] = json.RawMessage(row.Payload)
	}
	return found, err
}

// canonical is the id in the form that PostgreSQL reads and writes; false tells
// that it is no UUID.
func (id JobID) canonical() (string, bool) {
	parsed, err := uuid.Parse(string(id))
	return parsed.String(), err == nil
}

func jobInfo(row db.GetJobsRow) (JobInfo, error) {
	info := JobInfo{
		ID: JobID(row.ID), Type: row.Type, Queue: row.Queue, State: State(row.State), Priority: int(row.Priority),
		Attempt: int(row.Attempt), MaxAttempts: int(row.MaxAttempts), LastError: row.LastError, WorkerID: row.WorkerID,
		RedriveOf: JobID(row.RedriveOf), RedrivenAs: JobID(row.RedrivenAs),
	}
	if err := instants(map[*time.Time]string{
		&info.AcceptedAt: row.AcceptedAt, &info.RunAt: row.RunAt, &info.Deadline: row.Deadline, &info.FinishedAt: row.FinishedAt,
	}); err != nil {
		return JobInfo{}, fmt.Errorf("queue: job %s: read its times: %w", row.ID, err)
	}
	if row.ConcurrencyKey != nil {
		info.ConcurrencyKey = *row.ConcurrencyKey
	}
	if err := json.Unmarshal([]byte(row.Tags), &info.Tags); err != nil {
		return JobInfo{}, fmt.Errorf("queue: job %s: read the tags: %w", row.ID, err)
	}
	if row.KeyHash != "" {
		info.Key = &KeyRef{Scope: *row.KeyScope, Preview: *row.KeyPreview, Digest: row.KeyHash[:digestDigits], Length: int(*row.KeyLength)}
	}
	return info, nil
}

// BindingInfo tells who owns a key.
type BindingInfo struct {
	Key KeyRef
	// Mode is the admission that bound the key: "idempotency", "debounce" or
	// "throttle".
	Mode  string
	JobID JobID
	// AcceptedAt and ExpiresAt bound the ownership, by PostgreSQL's clock.
	AcceptedAt, ExpiresAt time.Time
	// Dead tells that the job has died or been cancelled.
	Dead bool
}

// Binding reads who owns a key now. The key is hashed here and not sent; an
// empty scope is "default". ErrBindingNotFound tells that the key is free; Key
// is then all that is set.
func (c *Client) Binding(ctx context.Context, scope, key string) (BindingInfo, error) {
	a := admission{key: key, scope: defaultScope(scope)}
	var wrong problems
	wrong.key(a)
	if err := wrong.err(); err != nil {
		return BindingInfo{}, fmt.Errorf("queue: binding: %w", err)
	}
	if err := c.checkSchema(ctx, c.own); err != nil {
		return BindingInfo{}, fmt.Errorf("queue: binding: %w", err)
	}
	hashes := c.keyHashes(a.scope, a.key)
	ref := newKeyRef(a.scope, a.key, hashes[0])
	var row db.GetBindingRow
	err := again(ctx, func() (err error) {
		row, err = c.own.GetBinding(ctx, hashes)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return BindingInfo{Key: ref}, fmt.Errorf("queue: binding: %s: %w", ref, ErrBindingNotFound)
	}
	if err != nil {
		return BindingInfo{}, fmt.Errorf("queue: binding: %s: %w", ref, classify(err))
	}
	ref.Digest = row.KeyHash[:digestDigits]
	info := BindingInfo{Key: ref, Mode: mode(row.Mode).String(), JobID: JobID(row.JobID), Dead: row.Dead}
	if err := instants(map[*time.Time]string{&info.AcceptedAt: row.AcceptedAt, &info.ExpiresAt: row.ExpiresAt}); err != nil {
		return BindingInfo{}, fmt.Errorf("queue: binding: %s: read its times: %w", ref, err)
	}
	return info, nil
}
