package queue

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// A batch that is likely all repeats puts off the digests of its members, and keeps
// the payloads' canonical forms for them; but not long ones, of which a batch may
// hold 256 MiB.
func TestBatch_keepsShortFormsAlone(t *testing.T) {
	c := &Client{maxPayload: maxPayloadBytes, hashers: []keyHasher{newKeyHasher(nil)}}
	var reqs []Request
	for i, length := range []int{100, maxKept + 1} {
		reqs = append(reqs, Request{Type: "a", Payload: strings.Repeat("x", length), Admission: Idempotency{Key: fmt.Sprint(i)}})
	}
	kept := func() (forms []bool) {
		b, err := c.newBatch(reqs)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range b.requests {
			forms = append(forms, p.canonical != nil)
		}
		return forms
	}
	if forms := kept(); forms[0] || forms[1] {
		t.Errorf("forms kept without a row of repeats, short and long: %v, want none", forms)
	}
	for range repeatsInARow {
		c.repeats.note(defaultScope(""), true)
	}
	if forms := kept(); !forms[0] || forms[1] {
		t.Errorf("forms kept after a row of repeats, short and long: %v, want the short one", forms)
	}
}

// Equal requests are one, whether or not their members are digested.
func TestBatch_foldsRequestsHoweverPrepared(t *testing.T) {
	c := &Client{maxPayload: maxPayloadBytes, hashers: []keyHasher{newKeyHasher(nil)}}
	for _, digested := range [][]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
		ps := make([]*prepared, len(digested))
		for i := range ps {
			p, err := c.prepareLook(Request{Type: "a", Payload: 7, Admission: Idempotency{Key: "k"}})
			if err != nil {
				t.Fatal(err)
			}
			if digested[i] {
				p.digestMembers()
			}
			ps[i] = p
		}
		b := c.batchOf(ps)
		if b.refused {
			t.Errorf("digested %v: the batch is refused, as if its requests differed", digested)
		}
		met := []held{{jobID: "j", mode: new(int16(modeIdempotency)), dead: new(false)}, {}}
		results, _, err := b.answers(met, nil)
		if err != nil || results[0] != results[1] || results[1].Outcome != OutcomeReplayed {
			t.Errorf("digested %v: got %+v, %v, want two replays", digested, results, err)
		}
	}
}

// heapShown is a payload that tells how much memory is in use while it is encoded.
type heapShown struct{ bytes *uint64 }

func (h heapShown) MarshalJSON() ([]byte, error) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	*h.bytes = m.HeapAlloc
	return []byte("1"), nil
}

// A batch whose payloads pass the bound keeps none of them while the rest of it is
// checked: 1,000 requests of 16 MiB are no more than the bound.
func TestBatch_overTheBoundKeepsNothing(t *testing.T) {
	c := &Client{maxPayload: maxPayloadBytes, hashers: []keyHasher{newKeyHasher(nil)}}
	payload := json.RawMessage(`"` + strings.Repeat("x", maxPayloadBytes-2) + `"`)
	var before, after uint64
	reqs := []Request{{Type: "a", Payload: heapShown{&before}}}
	for range maxBatchBytes / maxPayloadBytes {
		reqs = append(reqs, Request{Type: "a", Payload: payload})
	}
	reqs = append(reqs, Request{Type: "a", Payload: heapShown{&after}}, Request{Type: " b"})
	_, err := c.newBatch(reqs)
	if !errors.Is(err, ErrInvalidRequest) || !strings.Contains(err.Error(), "payloads of") || !strings.Contains(err.Error(), fmt.Sprintf("request %d: ", len(reqs)-1)) {
		t.Errorf("want a refusal that names the size and the last request, got %v", err)
	}
	if kept := int64(after) - int64(before); kept > maxBatchBytes/2 {
		t.Errorf("%d MiB are kept of a batch that is refused", kept>>20)
	}
}
