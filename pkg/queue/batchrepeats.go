package queue

import (
	"context"
	"slices"

	"github.com/onceq/onceq/db"
)

// likelyRepeats tells that every request of the batch is likely a repeat.
func (b *batch) likelyRepeats() bool {
	return !b.refused && !slices.ContainsFunc(b.requests, func(p *prepared) bool { return !b.c.likelyRepeat(p) })
}

// repeats answers a batch whose keys all have a live binding, and gives no results
// for any other.
func (b *batch) repeats(ctx context.Context, q *db.Queries, sent []int) ([]Result, error) {
	params := db.EnqueueManyRepeatsParams{KeyHashes: make([][]byte, len(sent)), Wholes: make([][]byte, len(sent))}
	asked := make([]*prepared, len(sent))
	for n, i := range sent {
		p := b.requests[i]
		asked[n], params.KeyHashes[n], params.Wholes[n] = p, p.hashes[0], p.fingerprint.storedWhole()
	}
	params.Modes = column(asked, (*prepared).storedMode)
	rows, err := q.EnqueueManyRepeats(ctx, params)
	if err != nil || len(rows) < len(sent) {
		return nil, err
	}
	met := make([]held, len(b.requests))
	conflict := false
	for _, row := range rows {
		met[sent[row.Ord-1]] = held{jobID: row.HeldJobID, mode: &row.HeldMode, dead: &row.HeldDead,
			expiresAt: orNil(row.HeldExpiresAt), fingerprint: orNil(row.HeldFingerprint)}
		conflict = conflict || row.HeldFingerprint != ""
	}
	if conflict { // which names the members
		if err := b.complete(); err != nil {
			return nil, err
		}
	}
	results, _, err := b.answers(met, nil)
	return results, err
}

// note takes down whether all of the batch's keys met a live binding.
func (b *batch) note(repeated bool) {
	for _, p := range b.requests {
		if p.keyed() {
			b.c.repeats.note(p.admission.scope, repeated)
		}
	}
}
