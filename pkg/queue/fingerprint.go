package queue

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
	"sync"

	"golang.org/x/crypto/blake2b"
)

// Field names a member of a request in a conflict.
type Field string

// The fields in the order in which a conflict lists them.
const (
	FieldQueue            Field = "queue"
	FieldType             Field = "type"
	FieldPayload          Field = "payload"
	FieldPriority         Field = "priority"
	FieldConcurrencyKey   Field = "concurrency_key"
	FieldTags             Field = "tags"
	FieldMaxAttempts      Field = "max_attempts"
	FieldRetry            Field = "retry"
	FieldRunAt            Field = "run_at"
	FieldDeadline         Field = "deadline"
	FieldExecutionTimeout Field = "execution_timeout"
	// FieldRetention is the admission's own: TTL and Release, or a throttle's Window.
	FieldRetention Field = "retention"
	// FieldAdmission tells that the key is owned under another admission.
	FieldAdmission Field = "admission"
)

// fields are the members of a fingerprint in field order. A member's tag in a
// stored fingerprint is its index here plus one: the list only ever grows at
// its end.
var fields = [...]Field{
	FieldQueue, FieldType, FieldPayload, FieldPriority, FieldConcurrencyKey, FieldTags, FieldMaxAttempts,
	FieldRetry, FieldRunAt, FieldDeadline, FieldExecutionTimeout, FieldRetention,
}

// The stored form: version, digest of the whole, then tag and short digest of
// each member that differs from its default, in field order. A member at its
// default takes no room, so that a member added by a later version changes no
// fingerprint of a request that does not use it.
const (
	fingerprintVersion = 1
	wholeBytes         = blake2b.Size256
	memberBytes        = 8
)

// Fingerprint is the digest of everything material in a request: two requests
// with one key are the same request exactly when their fingerprints are equal.
// It is comparable with ==, and pure: no database and no clock is asked.
type Fingerprint struct {
	mode    mode
	whole   [wholeBytes]byte
	members [len(fields)][memberBytes]byte // zero: at its default
}

// Fingerprint returns the fingerprint of a valid request, or an error that
// wraps ErrInvalidRequest. The payload may be up to 16 MiB here, whatever a
// client's configuration allows.
func (r Request) Fingerprint() (Fingerprint, error) {
	p, err := prepare(r, maxPayloadBytes)
	if err != nil {
		return Fingerprint{}, fmt.Errorf("queue: fingerprint: %w", err)
	}
	p.digestMembers()
	return p.fingerprint, nil
}

// Diff lists the members in which two fingerprints differ, on either side, in
// field order: what a conflict between the two requests would name. It is empty
// exactly when they are equal. Requests under different admissions differ in
// that alone.
func (f Fingerprint) Diff(other Fingerprint) []Field {
	if f == other {
		return nil
	}
	if f.mode != other.mode {
		return []Field{FieldAdmission}
	}
	var differ, given []Field
	for i, field := range fields {
		if f.members[i] != other.members[i] {
			differ = append(differ, field)
		}
		if f.members[i] != [memberBytes]byte{} || other.members[i] != [memberBytes]byte{} {
			given = append(given, field)
		}
	}
	if len(differ) == 0 {
		// The wholes differ, so two short digests met by chance (2^-64): any of
		// the members that are given may be the one.
		return given
	}
	return differ
}

// same tells whether two requests are the same, also where the members of one are
// not digested.
func (f Fingerprint) same(other Fingerprint) bool {
	return f.mode == other.mode && f.whole == other.whole
}

// storedWhole is the part of the stored form that tells whether two requests under
// one admission are the same.
func (f Fingerprint) storedWhole() []byte {
	return append(append(make([]byte, 0, 1+wholeBytes+4*(1+memberBytes)), fingerprintVersion), f.whole[:]...)
}

// stored is the form that a binding keeps.
func (f Fingerprint) stored() []byte {
	out := f.storedWhole()
	for i, m := range f.members {
		if m != [memberBytes]byte{} {
			out = append(append(out, byte(i+1)), m[:]...)
		}
	}
	return out
}

// parseFingerprint reads what a binding keeps, given in hex. Tags of a later version are
// passed over: their members are told apart by the whole.
func parseFingerprint(m mode, text string) (Fingerprint, error) {
	f := Fingerprint{mode: m}
	stored, err := hex.DecodeString(text)
	if err != nil {
		return f, fmt.Errorf("queue: read a stored fingerprint: %w", err)
	}
	if len(stored) < 1+wholeBytes || stored[0] != fingerprintVersion || (len(stored)-1-wholeBytes)%(1+memberBytes) != 0 {
		return f, fmt.Errorf("queue: a stored fingerprint of %d bytes is not one of version %d", len(stored), fingerprintVersion)
	}
	copy(f.whole[:], stored[1:])
	for rest := stored[1+wholeBytes:]; len(rest) > 0; rest = rest[1+memberBytes:] {
		if i := int(rest[0]) - 1; i >= 0 && i < len(fields) {
			copy(f.members[i][:], rest[1:])
		}
	}
	return f, nil
}

// memberValues are the values of the members, in field order.
type memberValues [len(fields)][]byte

// hashers are of BLAKE2b-256, used again and again. They are given the values piece
// by piece, since one of them is the payload, which a text of them all would copy.
var hashers = sync.Pool{New: func() any {
	h, err := blake2b.New256(nil)
	if err != nil {
		panic("queue: BLAKE2b refused to do without a key: " + err.Error())
	}
	return h
}}

// whole is the digest of all of them.
func (v *memberValues) whole() [wholeBytes]byte {
	h := hashers.Get().(hash.Hash)
	defer hashers.Put(h)
	h.Reset()
	head := append(make([]byte, 0, 64), "onceq.fingerprint.v1"...)
	for i, value := range v {
		if value == nil {
			continue
		}
		h.Write(binary.AppendUvarint(append(head, byte(i+1)), uint64(len(value))))
		h.Write(value)
		head = head[:0]
	}
	return [wholeBytes]byte(h.Sum(head[:0]))
}

// members are the short digests of each.
func (v *memberValues) members() (short [len(fields)][memberBytes]byte) {
	h := hashers.Get().(hash.Hash)
	defer hashers.Put(h)
	head := append(make([]byte, 0, 64), "onceq.member.v1"...)
	for i, value := range v {
		if value == nil {
			continue
		}
		h.Reset()
		h.Write(append(head, byte(i+1)))
		h.Write(value)
		copy(short[i][:], h.Sum(head[len(head):]))
	}
	return short
}

// newMemberValues gives the value of each member, in field order, nil for one at
// its default, of a request whose other defaults are filled in; canonical is the
// canonical form of its payload. A stored format.
func newMemberValues(r Request, a admission, canonical []byte) memberValues {
	var v memberValues
	if r.Queue != defaultQueue {
		v[0] = []byte(r.Queue)
	}
	v[1] = []byte(r.Type)
	if !slices.Equal(canonical, canonicalNull) {
		v[2] = canonical
	}
	if r.Priority != 0 {
		v[3] = appendInt(nil, int64(r.Priority))
	}
	if r.ConcurrencyKey != "" {
		v[4] = []byte(r.ConcurrencyKey)
	}
	for _, tag := range tagSet(r.Tags) {
		v[5] = append(binary.AppendUvarint(v[5], uint64(len(tag))), tag...)
	}
	if r.MaxAttempts != defaultMaxAttempts {
		v[6] = appendInt(nil, int64(r.MaxAttempts))
	}
	if policy := r.Retry.retryPolicy(); policy != defaultRetry {
		v[7] = policy.fingerprint(nil)
	}
	if !r.RunAt.IsZero() {
		seconds, micros := microseconds(r.RunAt)
		v[8] = appendInt(appendInt(nil, seconds), micros)
	}
	if !r.Deadline.IsZero() {
		seconds, micros := microseconds(r.Deadline)
		v[9] = appendInt(appendInt(nil, seconds), micros)
	}
	if r.ExecutionTimeout != 0 {
		v[10] = appendInt(nil, r.ExecutionTimeout.Microseconds())
	}
	switch {
	case a.mode == modeIdempotency && (a.retention.Microseconds() != DefaultTTL.Microseconds() || a.release != ReleaseExpiry):
		v[11] = appendInt(appendInt(nil, a.retention.Microseconds()), int64(a.release))
	case a.mode == modeThrottle:
		v[11] = appendInt(nil, a.retention.Microseconds())
	}
	return v
}

// tagSet is the tags sorted bytewise, repeats dropped.
func tagSet(tags []string) []string {
	set := slices.Clone(tags)
	slices.Sort(set)
	return slices.Compact(set)
}

func appendInt(dst []byte, v int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(v)) }
