package queue

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The bounds of docs/architecture.md, in one place.
const (
	maxNameBytes       = 255
	maxKeyBytes        = 512
	maxScopeBytes      = 256
	maxConcurrencyKey  = 256
	maxTags            = 20
	maxTagCharacters   = 100
	maxPriority        = 100
	maxAttemptsAllowed = 100
	minDuration        = time.Millisecond
	maxDuration        = 365 * 24 * time.Hour
	maxBatch           = 1000
	minSecretBytes     = 16

	defaultPayloadBytes = 1 << 20
	maxPayloadBytes     = 16 << 20
	// maxBatchBytes bounds the payloads of one batch together: a statement's
	// parameters share one message, which PostgreSQL caps at 1 GiB.
	maxBatchBytes = 256 << 20
)

// problems gathers everything that is wrong with a request, so that its author
// needs one round to mend it.
type problems struct{ list []string }

// add notes what is wrong with a field. The text holds sizes and bounds, never
// the value of a key or a payload.
func (p *problems) add(field, format string, args ...any) {
	p.list = append(p.list, field+": "+fmt.Sprintf(format, args...))
}

func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrInvalidRequest, strings.Join(p.list, "; "))
}

// name checks a type or a queue.
func (p *problems) name(field, value string) {
	switch {
	case value == "" || len(value) > maxNameBytes:
		p.add(field, "%d bytes; allowed are 1 to %d", len(value), maxNameBytes)
	case !utf8.ValidString(value):
		p.add(field, "not valid UTF-8")
	case strings.ContainsFunc(value, unicode.IsControl):
		p.add(field, "has a control character; none is allowed")
	case strings.TrimSpace(value) != value:
		p.add(field, "has a space at an end; none is allowed there")
	}
}

// text checks a value that is counted in bytes.
func (p *problems) text(field, value string, most int) {
	switch {
	case value == "" || len(value) > most:
		p.add(field, "%d bytes; allowed are 1 to %d", len(value), most)
	case !utf8.ValidString(value):
		p.add(field, "not valid UTF-8")
	}
}

// storable checks text that PostgreSQL stores as it is: it holds no NUL.
func (p *problems) storable(field, value string, most int) {
	before := len(p.list)
	p.text(field, value, most)
	if len(p.list) == before && strings.ContainsRune(value, 0) {
		p.add(field, "has a NUL; none is allowed")
	}
}

func (p *problems) number(field string, value, least, most int) {
	if value < least || value > most {
		p.add(field, "%d; allowed are %d to %d", value, least, most)
	}
}

func (p *problems) duration(field string, value time.Duration) {
	if value < minDuration || value > maxDuration {
		p.add(field, "%s; allowed are 1ms to 365 days", value)
	}
}

func (p *problems) instant(field string, value time.Time) {
	if s := value.Unix(); !value.IsZero() && (s < earliestSecond || s >= endSecond) {
		p.add(field, "outside what PostgreSQL holds: 24 November 4714 BC to 31 December 294276")
	}
}

func (p *problems) tags(tags []string) {
	if len(tags) > maxTags {
		// Each of them may be wrong; a text about all would have no bound.
		p.add("tags", "%d tags; allowed are at most %d", len(tags), maxTags)
		return
	}
	for i, tag := range tags {
		switch n := utf8.RuneCountInString(tag); {
		case !utf8.ValidString(tag):
			p.add("tags", "tag %d is not valid UTF-8", i)
		case n < 1 || n > maxTagCharacters:
			p.add("tags", "tag %d has %d characters; allowed are 1 to %d", i, n, maxTagCharacters)
		case strings.ContainsFunc(tag, unicode.IsControl):
			p.add("tags", "tag %d has a control character; none is allowed", i)
		}
	}
}

// check finds everything that is wrong with a request, defaults filled in, but
// for its payload.
func (p *problems) check(r Request) {
	p.name("type", r.Type)
	p.name("queue", r.Queue)
	p.number("priority", r.Priority, 0, maxPriority)
	p.number("max_attempts", r.MaxAttempts, 1, maxAttemptsAllowed)
	p.instant("run_at", r.RunAt)
	p.instant("deadline", r.Deadline)
	if r.ExecutionTimeout != 0 {
		p.duration("execution_timeout", r.ExecutionTimeout)
	}
	switch policy := r.Retry.(type) {
	case Fixed, Exponential, DecorrelatedJitter:
		if err := policy.retryPolicy().check(); err != nil {
			p.add("retry", "%v", err)
		}
	default:
		p.add("retry", "%T; allowed are Fixed, Exponential and DecorrelatedJitter, by value", policy)
	}
	p.tags(r.Tags)
	if r.ConcurrencyKey != "" {
		p.storable("concurrency_key", r.ConcurrencyKey, maxConcurrencyKey)
	}
	p.admission(r)
}

func (p *problems) admission(r Request) {
	switch a := r.Admission.(type) {
	case nil:
	case Idempotency:
		p.key(a.admission())
		p.duration("ttl", a.admission().retention)
		if a.Release < ReleaseExpiry || a.Release > ReleaseDead {
			p.add("release", "%d; allowed are ReleaseExpiry, ReleaseFinished and ReleaseDead", a.Release)
		}
	case Debounce:
		p.key(a.admission())
		p.duration("window", a.Window)
		if a.MaxWait != 0 {
			p.duration("max_wait", a.MaxWait)
		}
		if !r.RunAt.IsZero() {
			p.add("run_at", "given with Debounce, which sets the run time itself")
		}
	case Throttle:
		p.key(a.admission())
		p.duration("window", a.Window)
	default:
		p.add("admission", "%T; allowed are Idempotency, Debounce and Throttle, by value", a)
	}
}

func (p *problems) key(a admission) {
	p.text("key", a.key, maxKeyBytes)
	p.storable("scope", a.scope, maxScopeBytes)
}
