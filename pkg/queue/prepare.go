package queue

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/onceq/onceq/internal/canon"
)

// canonicalNull is the canonical form of the default payload.
var canonicalNull = func() []byte {
	form, err := canon.Append(nil, jsonNull)
	if err != nil {
		panic("queue: JSON null has no canonical form: " + err.Error())
	}
	return form
}()

// prepared is a valid request in the form that SQL takes: the pure half of an
// enqueue. It holds the key's hashes and its preview, no longer the key.
type prepared struct {
	request     Request // defaults filled in; Payload and Admission are not read any more
	payload     string  // JSON text
	canonical   []byte  // its canonical form, until the fingerprint's members are digested
	fingerprint Fingerprint
	id          string // the id of the job, should it be accepted
	admission   admission
	hashes      [][]byte // the newest secret's first; none without an admission
	key         KeyRef
}

func (p *prepared) keyed() bool { return p.admission.mode != modeNone }

// hash is the newest of the key's hashes, empty without a key.
func (p *prepared) hash() []byte {
	if !p.keyed() {
		return []byte{}
	}
	return p.hashes[0]
}

// prepare checks a request and digests it, as a whole. The error wraps
// ErrInvalidRequest and names everything that is wrong.
func prepare(r Request, payloadLimit int) (*prepared, error) {
	r = r.withDefaults()
	var wrong problems
	wrong.check(r)
	text, canonical, err := encodePayload(r.Payload, payloadLimit)
	if err != nil {
		wrong.add("payload", "%v", err)
	}
	if err := wrong.err(); err != nil {
		return nil, err
	}
	p := &prepared{request: r, payload: text, canonical: canonical}
	if r.Admission != nil {
		p.admission = r.Admission.admission()
	}
	values := newMemberValues(r, p.admission, canonical)
	p.fingerprint = Fingerprint{mode: p.admission.mode, whole: values.whole()}
	return p, nil
}

// digestMembers makes the fingerprint tell the members apart.
func (p *prepared) digestMembers() {
	if p.canonical == nil {
		return
	}
	values := newMemberValues(p.request, p.admission, p.canonical)
	p.fingerprint.members = values.members()
	p.canonical = nil
}

// complete adds to a request that was prepared for a look what its acceptance needs:
// the fingerprint's members, and an id for the job.
func (p *prepared) complete() error {
	if p.id != "" {
		return nil
	}
	p.digestMembers()
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make a job id: %w", err)
	}
	p.id = id.String()
	return nil
}

// prepareLook prepares as much as a look for the key's binding needs: the request
// is checked and digested as a whole, its key hashed under every secret.
func (c *Client) prepareLook(r Request) (*prepared, error) {
	p, err := prepare(r, c.maxPayload)
	if err != nil {
		return nil, err
	}
	if p.keyed() {
		p.hashes = c.keyHashes(p.admission.scope, p.admission.key)
		p.key = newKeyRef(p.admission.scope, p.admission.key, p.hashes[0])
		p.admission.key = ""
	}
	p.request.Payload, p.request.Admission = nil, nil
	return p, nil
}

// seemsReady tells whether the job may be ready at once. This process's clock is
// good enough for it: it decides about wake-ups alone, which are hints.
func (p *prepared) seemsReady() bool {
	return p.admission.mode != modeDebounce && time.Until(p.request.RunAt) < time.Second
}

// keyHashes are the hashes under which a key may stand, the newest secret's
// first.
func (c *Client) keyHashes(scope, key string) [][]byte {
	hashes := make([][]byte, len(c.hashers))
	for i, h := range c.hashers {
		hashes[i] = h(scope, key)
	}
	return hashes
}

// maxSlack is the longest time that may pass between a binding's clock reading
// and its job's before it counts as a wait for another transaction.
const maxSlack = 250 * time.Millisecond

// slack is that time for this request: a key that lives shortly gives little.
func (p *prepared) slack() time.Duration {
	if !p.keyed() {
		return maxSlack
	}
	return min(maxSlack, p.admission.retention/4)
}
