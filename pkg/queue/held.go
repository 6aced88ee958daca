package queue

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// held is a live binding that a request met; without a job id it is none.
type held struct {
	jobID       string
	mode        *int16
	dead        *bool
	expiresAt   *string // as parseInstant reads it
	fingerprint *string // in hex; nil when it equals the request's
}

// parseHeld reads a live binding as queries/enqueue.sql tells it in one text. Its
// expiry and its fingerprint are left out where nobody needs them.
func parseHeld(text string) (held, error) {
	parts := strings.Split(text, " ")
	if len(parts) < 3 || len(parts) > 5 {
		return held{}, fmt.Errorf("queue: read a binding: %d parts", len(parts))
	}
	number, err := strconv.ParseInt(parts[1], 10, 16)
	if err != nil {
		return held{}, fmt.Errorf("queue: read a binding: %w", err)
	}
	h := held{jobID: parts[0], mode: new(int16(number)), dead: new(parts[2] == "t")}
	if len(parts) > 3 {
		h.expiresAt = &parts[3]
	}
	if len(parts) > 4 {
		h.fingerprint = &parts[4]
	}
	return h, nil
}

// answer is what a request without Debounce is told about the live binding of its
// key: README has the table. index is its place in a batch, -1 for a single.
func (p *prepared) answer(index int, h held) (Result, error) {
	res := Result{JobID: JobID(h.jobID), Dead: *h.dead}
	same := mode(*h.mode) == p.admission.mode
	if same && h.fingerprint == nil {
		res.Outcome = p.admission.mode.repeated()
		return res, nil
	}
	fields := []Field{FieldAdmission}
	if same {
		other, err := parseFingerprint(mode(*h.mode), *h.fingerprint)
		if err != nil {
			return Result{}, err
		}
		fields = p.fingerprint.Diff(other)
	}
	until, err := h.until()
	if err != nil {
		return Result{}, err
	}
	return Result{}, &EnqueueIdempotencyConflictError{JobID: res.JobID, Key: p.key, Fields: fields, ExpiresAt: until, Index: max(index, 0), batch: index >= 0}
}

// or is the binding that decides, of two that one request has met: while a secret
// is rotated one key can stand under several hashes, and one that differs decides.
// The zero value stands for none.
func (h held) or(other held) held {
	if h.jobID != "" && (h.fingerprint != nil || other.fingerprint == nil) {
		return h
	}
	return other
}

// asMetBy is the same binding as a later request of a batch meets it, after the
// leader, the first with that key, has met it.
func (h held) asMetBy(p, leader *prepared) held {
	switch {
	case h.fingerprint != nil:
		if hex.EncodeToString(p.fingerprint.stored()) == *h.fingerprint {
			h.fingerprint = nil
		}
	case !p.fingerprint.same(leader.fingerprint):
		h.fingerprint = new(hex.EncodeToString(leader.fingerprint.stored()))
	}
	return h
}

// until is when the binding expires.
func (h held) until() (time.Time, error) {
	t, err := parseInstant(*h.expiresAt)
	if err != nil {
		return t, fmt.Errorf("queue: read when a binding expires: %w", err)
	}
	return t, nil
}

// repeated is the outcome of an equal request for a key that is owned.
func (m mode) repeated() Outcome {
	if m == modeThrottle {
		return OutcomeCoalesced
	}
	return OutcomeReplayed
}

// tagsText is tags as the text of an array, "" for none. Every driver can send
// a text, and a batch can hold one for each request.
func tagsText(tags []string) string {
	if len(tags) == 0 {
		return ""
	}
	text, err := pgtype.NewMap().Encode(pgtype.TextArrayOID, pgtype.TextFormatCode, tags, nil)
	if err != nil {
		panic("queue: a slice of strings has no text form: " + err.Error())
	}
	return string(text)
}
