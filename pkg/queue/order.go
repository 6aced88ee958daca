package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/onceq/onceq/db"
)

const (
	maxRequestIDBytes   = 512
	maxActorCharacters  = 200
	redriveScope        = "redrive" // of the KeyRefs of request ids
	redriveStep         = 200       // dead letters in one transaction
	maxEventReasonRunes = 1000
)

// order is an operator's order to redrive, checked and with its request id
// hashed.
type order struct {
	c      *Client
	ref    KeyRef
	params db.RedriveJobsParams
}

func (p *problems) order(requestID, actor, reason string) {
	p.text("request_id", requestID, maxRequestIDBytes)
	p.characters("actor", actor, maxActorCharacters)
	p.characters("reason", reason, maxReasonCharacters)
}

func (c *Client) newOrder(requestID, actor, reason string, again bool) *order {
	o := order{c: c, params: db.RedriveJobsParams{Again: again, Actor: actor, Reason: reason}}
	for _, hash := range c.orders {
		o.params.RequestHashes = append(o.params.RequestHashes, hash(redriveScope, requestID))
	}
	o.params.RequestHash = o.params.RequestHashes[0]
	if len(o.params.RequestHashes) > 1 {
		o.params.RequestAliases = o.params.RequestHashes[1:]
	}
	o.ref = newKeyRef(redriveScope, requestID, o.params.RequestHash)
	o.params.Details = string(details(struct {
		Request KeyRef `json:"request"`
		Actor   string `json:"actor"`
		Reason  string `json:"reason"`
	}{o.ref, actor, cut(reason, maxEventReasonRunes)}))
	return &o
}

// redrive carries the order out for up to redriveStep sources, each of them by
// itself, and wakes the queues that gained a job. A source that somebody else
// was redriving is asked for again. The answers come in no order; with an error
// they are those for what was done before it.
func (o *order) redrive(ctx context.Context, sources []string) ([]db.RedriveJobsRow, error) {
	var answers []db.RedriveJobsRow
	for try := range maxTries {
		if try > 0 {
			if err := pause(ctx, try); err != nil {
				return answers, err
			}
		}
		rows, err := o.ask(ctx, sources)
		if retryable(err) {
			continue
		}
		if err != nil {
			return answers, classify(err)
		}
		sources = nil
		for _, row := range rows {
			if row.Status == "" {
				sources = append(sources, row.SourceID)
			} else {
				answers = append(answers, row)
			}
		}
		o.wake(ctx, rows)
		if err := o.conflicts(rows); err != nil || len(sources) == 0 {
			return answers, err
		}
	}
	return answers, errors.New("others kept redriving; ask again")
}

func (o *order) wake(ctx context.Context, rows []db.RedriveJobsRow) {
	gained := map[string]bool{}
	for _, row := range rows {
		if row.Queue != "" && !gained[row.Queue] {
			gained[row.Queue] = true
			o.c.waker.wakeNow(ctx, row.Queue)
		}
	}
}

func (o *order) ask(ctx context.Context, sources []string) ([]db.RedriveJobsRow, error) {
	params := o.params
	params.SourceIds = sources
	params.TargetIds = make([]string, len(sources))
	for i := range sources {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("make a job id: %w", err)
		}
		params.TargetIds[i] = id.String()
	}
	return o.c.fresh.RedriveJobs(ctx, params)
}

// conflicts is the first answer, if any, of a source that the same request id
// was used for with another actor or reason.
func (o *order) conflicts(rows []db.RedriveJobsRow) error {
	for _, row := range rows {
		var fields []string
		if row.OtherActor {
			fields = append(fields, "actor")
		}
		if row.OtherReason {
			fields = append(fields, "reason")
		}
		if fields != nil {
			return &RedriveConflictError{Source: JobID(row.SourceID), Target: JobID(row.TargetID), Request: o.ref, Fields: fields}
		}
	}
	return nil
}

// cut shortens text to a number of characters.
func cut(text string, most int) string {
	for i := range text {
		if most--; most < 0 {
			return text[:i]
		}
	}
	return text
}
