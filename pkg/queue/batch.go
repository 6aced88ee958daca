package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/onceq/onceq/db"
)

// batch is the decision about several requests, in queries/enqueue_many.sql, or
// in queries/debounce_many.sql when one of them is debounced.
type batch struct {
	c        *Client
	requests []*prepared
	// single tells that the caller handed over one request and knows of no batch.
	single bool
	// leader[i] is the first request of the batch with the key of request i: i
	// itself for the first one and for a request without a key. Only leaders are
	// sent; the others follow from the leader's answer.
	leader []int
	// refused tells that two requests with one key differ: the batch is sent only
	// to learn what to name in the conflict.
	refused bool
	// series are the requests of each debounced key, by its leader's index.
	series map[int]*series
	// short are those of the series that this try sends cut short.
	short map[int]*series
}

const (
	// maxConflicts bounds how many conflicts of one batch are reported.
	maxConflicts = 20
	// maxKept bounds the canonical form that a request of a batch keeps, in bytes,
	// while it is open whether its members must be digested: there may be 1,000.
	maxKept = 16 << 10
)

// newBatch checks every request and folds repeats of a key. All invalid
// requests are reported together.
func (c *Client) newBatch(reqs []Request) (*batch, error) {
	if len(reqs) > maxBatch {
		return nil, fmt.Errorf("%w: batch: %d requests; allowed are at most %d", ErrInvalidRequest, len(reqs), maxBatch)
	}
	var wrong []error
	var size int
	ps := make([]*prepared, len(reqs))
	for i, r := range reqs {
		p, err := c.prepareLook(r)
		if err == nil && len(p.canonical) > maxKept {
			err = p.complete()
		}
		if err != nil {
			wrong = append(wrong, &RequestError{Index: i, Err: err})
			continue
		}
		if size += len(p.payload); size > maxBatchBytes {
			clear(ps) // it is refused: the others are checked, and nothing is kept
			continue
		}
		ps[i] = p
	}
	if size > maxBatchBytes {
		wrong = append(wrong, fmt.Errorf("%w: batch: payloads of %d bytes together; allowed are at most %d", ErrInvalidRequest, size, maxBatchBytes))
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	b := c.batchOf(ps)
	for i, first := range b.leader {
		if a, other := ps[i].admission.mode, ps[first].admission.mode; a != other {
			wrong = append(wrong, &RequestError{Index: i, Err: fmt.Errorf("%w: admission: the key of request %d under %s, here under %s; one batch may use a key under one admission",
				ErrInvalidRequest, first, other, a)})
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	if !b.likelyRepeats() {
		return b, b.complete()
	}
	return b, nil
}

// complete completes all requests: a batch that is likely all repeats does without,
// unless the look finds otherwise or has a conflict to name.
func (b *batch) complete() error {
	for _, p := range b.requests {
		if err := p.complete(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) batchOf(ps []*prepared) *batch {
	b := &batch{c: c, requests: ps, leader: make([]int, len(ps)), series: map[int]*series{}, short: map[int]*series{}}
	first := make(map[[hashBytes]byte]int, len(ps))
	for i, p := range ps {
		b.leader[i] = i
		if !p.keyed() {
			continue
		}
		hash := [hashBytes]byte(p.hashes[0])
		f, repeated := first[hash]
		switch {
		case !repeated:
			first[hash] = i
			if p.admission.mode == modeDebounce {
				b.series[i] = newSeries(p)
			}
		case p.admission.mode == modeDebounce && b.series[f] != nil:
			b.leader[i] = f
			b.series[f].add(p)
		default:
			b.leader[i] = f
			b.refused = b.refused || !p.fingerprint.same(ps[f].fingerprint)
		}
	}
	return b
}

func (b *batch) partial() bool { return true }

func (b *batch) decide(ctx context.Context, q *db.Queries, alone bool) ([]Result, error) {
	if alone {
		clear(b.short) // what it commits can't be looked at first
	}
	sent := b.sent()
	if b.likelyRepeats() {
		if results, err := b.repeats(ctx, q, sent); results != nil || err != nil {
			return results, err
		}
	}
	if err := b.complete(); err != nil {
		return nil, err
	}
	wake := b.c.waker.reserve(b.readyQueues()...)
	if !alone {
		wake = wake.uncommitted()
	}
	params := b.params(sent)
	params.Alone = alone
	params.Refused = b.refused
	params.WakeQueues = wake.queues()
	params.Wake = b.c.schema
	if len(b.series) > 0 {
		return b.decideMixed(ctx, q, params, sent, wake)
	}
	rows, err := q.EnqueueMany(ctx, params)
	if err != nil {
		wake.done(0, false)
		return nil, err
	}
	results, made, err := b.results(sent, rows)
	wake.done(rows[0].Wakes, err == nil && made)
	b.note(rows[0].Wanted == 0)
	if err != nil {
		return nil, err
	}
	if rows[0].Waited {
		if err := q.RestartBindings(ctx, db.RestartBindingsParams{KeyHashes: params.BindHashes, JobIds: b.ids(sent)}); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// readyQueues are the queues that may gain work that is ready at once.
func (b *batch) readyQueues() []string {
	var queues []string
	for _, p := range b.requests {
		if p.seemsReady() && !slices.Contains(queues, p.request.Queue) {
			queues = append(queues, p.request.Queue)
		}
	}
	return queues
}

// results reads the statement's answer: the summary, then the live bindings met
// by the leaders in sent. It reports whether a job was made.
func (b *batch) results(sent []int, rows []db.EnqueueManyRow) (results []Result, made bool, err error) {
	met := make([]held, len(b.requests))
	for _, row := range rows[1:] {
		i := sent[row.Ord-1]
		met[i] = met[i].or(held{jobID: *row.HeldJobID, mode: row.HeldMode, dead: row.HeldDead, expiresAt: row.HeldExpiresAt, fingerprint: row.HeldFingerprint})
	}
	if results, made, err = b.answers(met, nil); err != nil {
		return nil, false, err
	}
	if s := rows[0]; s.Made != s.Wanted {
		return nil, false, errUnsettled
	}
	return results, made, nil
}

// answers are the results of all requests: met has the live bindings of leaders
// that are not debounced, by their indexes, told what was said to those that are. It reports
// whether a job was made that may be ready.
func (b *batch) answers(met []held, told map[int]Result) (results []Result, made bool, err error) {
	results = make([]Result, len(b.requests))
	nth := map[int]int{} // how many requests of a series were answered
	var conflicts []error
	for i, p := range b.requests {
		first := b.leader[i]
		var refused error
		switch {
		case b.series[first] != nil:
			results[i] = b.sends(first).answer(nth[first], told[first])
			nth[first]++
		case met[first].jobID != "" && b.single:
			results[i], refused = p.answer(-1, met[i])
		case met[first].jobID != "" && first == i:
			results[i], refused = p.answer(i, met[i])
		case met[first].jobID != "":
			results[i], refused = p.answer(i, met[first].asMetBy(p, b.requests[first]))
		case first == i:
			results[i] = Result{JobID: JobID(p.id), Outcome: OutcomeAccepted}
			made = true
		default:
			results[i], refused = b.follow(i)
		}
		if refused != nil && len(conflicts) < maxConflicts {
			conflicts = append(conflicts, refused)
		}
	}
	if len(conflicts) == 1 {
		return nil, false, conflicts[0]
	}
	if err := errors.Join(conflicts...); err != nil {
		return nil, false, err
	}
	return results, made, nil
}

// follow is the answer to a request behind one of the same batch and key that is
// accepted.
func (b *batch) follow(i int) (Result, error) {
	p, leader := b.requests[i], b.requests[b.leader[i]]
	if p.fingerprint.same(leader.fingerprint) {
		return Result{JobID: JobID(leader.id), Outcome: p.admission.mode.repeated()}, nil
	}
	return Result{}, &EnqueueIdempotencyConflictError{JobID: JobID(leader.id), Key: p.key, Fields: p.fingerprint.Diff(leader.fingerprint), Index: i, batch: true}
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
