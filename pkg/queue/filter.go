package queue

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// JobFilter says which jobs to list. What is given must all fit; the zero value
// lists all.
type JobFilter struct {
	// Queue and Type are compared as they are. Empty is no restriction.
	Queue, Type string
	// Tag is one that the job must have. Empty is no restriction.
	Tag string
	// State is where the job must stand. Empty is no restriction.
	State State
	// Since and Until bound the time of the acceptance, or for dead letters that of
	// the death: not before Since, and before Until. Zero is no bound.
	Since, Until time.Time
	// Error is a part of the error that an ended job left behind, compared as it
	// is: at most 1,000 bytes. Empty is no restriction.
	Error string
	// WithPayload reads payloads too.
	WithPayload bool
}

const (
	maxErrorPart = 1000
	// clockSkew is how far the clock of a client that made an id may be from
	// PostgreSQL's.
	clockSkew = time.Hour
)

func (p *problems) filter(f JobFilter) {
	if f.Queue != "" {
		p.name("queue", f.Queue)
	}
	if f.Type != "" {
		p.name("type", f.Type)
	}
	if f.Tag != "" {
		p.tags([]string{f.Tag})
	}
	switch f.State {
	case "", StateScheduled, StateReady, StateRunning, StateSucceeded, StateDead, StateCancelled:
	default:
		p.add("state", "allowed are scheduled, ready, running, succeeded, dead and cancelled")
	}
	p.instant("since", f.Since)
	p.instant("until", f.Until)
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		p.add("until", "not after since")
	}
	if f.Error != "" {
		p.storable("error", f.Error, maxErrorPart)
	}
}

// passes tells whether a job fits still: it may have moved or been replaced since
// its id was listed.
func (f JobFilter) passes(job JobInfo, at time.Time) bool {
	return (f.Queue == "" || job.Queue == f.Queue) && (f.Type == "" || job.Type == f.Type) &&
		(f.Tag == "" || slices.Contains(job.Tags, f.Tag)) && (f.State == "" || job.State == f.State) &&
		(f.Since.IsZero() || !at.Before(f.Since.Truncate(time.Microsecond))) && (f.Until.IsZero() || at.Before(f.Until.Truncate(time.Microsecond))) &&
		(f.Error == "" || !job.FinishedAt.IsZero() && strings.Contains(job.LastError, f.Error))
}

// since and until are the bounds as PostgreSQL reads them.
func (f JobFilter) since() string { return orElse(instantText(f.Since), "-infinity") }
func (f JobFilter) until() string { return orElse(instantText(f.Until), "infinity") }

func orElse(text *string, other string) string {
	if text == nil {
		return other
	}
	return *text
}

// ids are the bounds of the ids of jobs that can fit: an id begins with the time
// at which a client made it, which is that of the acceptance but for the clocks.
func (f JobFilter) ids() (least, before string) {
	first, last := uuid.Nil, uuid.Max
	if !f.Since.IsZero() {
		first = idAt(f.Since.Add(-clockSkew))
	}
	if !f.Until.IsZero() {
		last = idAt(f.Until.Add(clockSkew + time.Millisecond))
	}
	return first.String(), last.String()
}

// idAt is the least UUIDv7 of an instant.
func idAt(t time.Time) uuid.UUID {
	var id uuid.UUID
	ms := min(max(t.UnixMilli(), 0), 1<<48-1)
	binary.BigEndian.PutUint64(id[:8], uint64(ms)<<16)
	return id
}
