package queue

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/db"
)

// CancelStatus is the answer to a cancel.
type CancelStatus string

const (
	// CancelledNow tells that the job waited and will not run.
	CancelledNow CancelStatus = "cancelled"
	// CancelRequested tells that the job runs: its handler's context ends at the
	// worker's next heartbeat.
	CancelRequested CancelStatus = "requested"
	// CancelTooLate tells that the job has ended.
	CancelTooLate CancelStatus = "already_terminal"
	// CancelNotFound tells that there is no such job.
	CancelNotFound CancelStatus = "not_found"
)

const maxReasonCharacters = 2000

// Cancel ends a job that waits, also one that waits for a retry, or asks the
// worker of a running one to stop it. The job's key goes on answering for it
// until it expires, unless the request asked for another Release. The reason is
// 1 to 2,000 characters of valid UTF-8.
func (c *Client) Cancel(ctx context.Context, id JobID, reason string) (CancelStatus, error) {
	var wrong problems
	wrong.characters("reason", reason, maxReasonCharacters)
	if err := wrong.err(); err != nil {
		return "", fmt.Errorf("queue: cancel: %w", err)
	}
	text, ok := id.canonical()
	if !ok {
		return CancelNotFound, nil
	}
	if err := c.checkSchema(ctx, c.own); err != nil {
		return "", fmt.Errorf("queue: cancel: %w", err)
	}
	// The job may move from one table to another between two looks; each move
	// ends something, so few rounds are enough.
	for try := range maxTries {
		if try > 0 {
			if err := pause(ctx, try); err != nil {
				return "", fmt.Errorf("queue: cancel job %s: %w", id, err)
			}
		}
		status, err := c.cancelOnce(ctx, text, reason)
		if err != nil && !retryable(err) {
			return "", fmt.Errorf("queue: cancel job %s: %w", id, classify(err))
		}
		if status != "" {
			return status, nil
		}
	}
	return "", fmt.Errorf("queue: cancel job %s: it kept moving; ask again", id)
}

func (c *Client) cancelOnce(ctx context.Context, id, reason string) (CancelStatus, error) {
	_, err := c.own.CancelPending(ctx, db.CancelPendingParams{JobID: id, Reason: reason})
	if err == nil {
		return CancelledNow, nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return "", err
	}
	_, err = c.own.CancelRunning(ctx, db.CancelRunningParams{JobID: id, Reason: reason})
	if err == nil {
		return CancelRequested, nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return "", err
	}
	place, err := c.own.WhereIsJob(ctx, id)
	switch {
	case err != nil:
		return "", err
	case place == "finished":
		return CancelTooLate, nil
	case place == "":
		return CancelNotFound, nil
	}
	return "", nil
}

// characters checks text that is counted in characters and stored as it is.
func (p *problems) characters(field, value string, most int) {
	switch n := utf8.RuneCountInString(value); {
	case n < 1 || n > most:
		p.add(field, "%d characters; allowed are 1 to %d", n, most)
	case !utf8.ValidString(value):
		p.add(field, "not valid UTF-8")
	default:
		p.storable(field, value, 4*most)
	}
}
