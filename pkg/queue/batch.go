package queue

import (
	"bytes"
	"cmp"
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

// maxConflicts bounds how many conflicts of one batch are reported.
const maxConflicts = 20

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
		p, err := c.prepare(r)
		if err != nil {
			wrong = append(wrong, &RequestError{Index: i, Err: err})
			continue
		}
		ps[i] = p
		size += len(p.payload)
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
	return b, errors.Join(wrong...)
}

func (c *Client) batchOf(ps []*prepared) *batch {
	b := &batch{c: c, requests: ps, leader: make([]int, len(ps)), series: map[int]*series{}, short: map[int]*series{}}
	first := make(map[string]int, len(ps))
	for i, p := range ps {
		b.leader[i] = i
		if !p.keyed() {
			continue
		}
		f, repeated := first[string(p.hashes[0])]
		switch {
		case !repeated:
			first[string(p.hashes[0])] = i
			if p.admission.mode == modeDebounce {
				b.series[i] = newSeries(p)
			}
		case p.admission.mode == modeDebounce && b.series[f] != nil:
			b.leader[i] = f
			b.series[f].add(p)
		default:
			b.leader[i] = f
			b.refused = b.refused || p.fingerprint != ps[f].fingerprint
		}
	}
	return b
}

func (b *batch) partial() bool { return true }

func (b *batch) decide(ctx context.Context, q *db.Queries, alone bool) ([]Result, error) {
	if alone {
		clear(b.short) // what it commits can't be looked at first
	}
	params, sent := b.params()
	if b.likelyRepeats() {
		if results, err := b.repeats(ctx, q, params, sent); results != nil || err != nil {
			return results, err
		}
	}
	wake := b.c.waker.reserve(b.readyQueues()...)
	if !alone {
		wake = wake.uncommitted()
	}
	params.Alone = alone
	params.Refused = b.refused
	params.WakeQueues = wake.queues()
	params.Wake = b.c.schema
	if len(b.series) > 0 {
		return b.decideMixed(ctx, q, params, sent, wake)
	}
	thin(&params)
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
		if err := q.RestartBindings(ctx, db.RestartBindingsParams{KeyHashes: params.BindHashes, JobIds: params.JobIds}); err != nil {
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

// params are the leaders in the form of the statement, and their indexes.
func (b *batch) params() (db.EnqueueManyParams, []int) {
	var a db.EnqueueManyParams
	var sent []int
	var binds []bind
	slack := maxSlack
	for i, p := range b.requests {
		slack = min(slack, p.slack())
		if b.leader[i] != i {
			continue
		}
		sent = append(sent, i)
		if s := b.sends(i); s != nil {
			p = s.folded()
		}
		r := p.request
		a.JobIds = append(a.JobIds, p.id)
		a.RunAts = append(a.RunAts, orEmpty(instantText(r.RunAt)))
		a.Deadlines = append(a.Deadlines, orEmpty(instantText(r.Deadline)))
		a.ExecutionTimeoutsUs = append(a.ExecutionTimeoutsUs, r.ExecutionTimeout.Microseconds())
		a.Priorities = append(a.Priorities, int16(r.Priority))
		a.MaxAttempts = append(a.MaxAttempts, int16(r.MaxAttempts))
		a.Queues = append(a.Queues, r.Queue)
		a.Types = append(a.Types, r.Type)
		a.Payloads = append(a.Payloads, p.payload)
		a.Retries = append(a.Retries, orEmpty(r.Retry.retryPolicy().stored()))
		a.Tags = append(a.Tags, tagsText(r.Tags))
		a.ConcurrencyKeys = append(a.ConcurrencyKeys, r.ConcurrencyKey)
		a.Modes = append(a.Modes, int16(p.admission.mode))
		a.Releases = append(a.Releases, int16(p.admission.release))
		a.Scopes = append(a.Scopes, p.admission.scope)
		a.KeyPreviews = append(a.KeyPreviews, p.key.Preview)
		a.KeyLengths = append(a.KeyLengths, int16(p.key.Length))
		a.KeyHashes = append(a.KeyHashes, p.hash())
		for _, hash := range p.hashes {
			binds = append(binds, bind{p, hash, int64(len(sent))})
		}
		a.Aliased = a.Aliased || len(p.hashes) > 1
	}
	a.SlackUs = slack.Microseconds()
	addBinds(&a, binds)
	return a, sent
}

// bind is one hash of a request that is sent at place ord.
type bind struct {
	p    *prepared
	hash []byte
	ord  int64
}

// addBinds adds the hashes in the order in which every statement locks them.
func addBinds(a *db.EnqueueManyParams, binds []bind) {
	slices.SortFunc(binds, func(x, y bind) int {
		return cmp.Or(cmp.Compare(x.p.admission.scope, y.p.admission.scope), bytes.Compare(x.hash, y.hash))
	})
	a.BindHashes, a.BindOrds, a.BindJobIds, a.BindModes = [][]byte{}, []int64{}, []string{}, []int16{}
	a.BindTtlsUs, a.BindScopes, a.BindFingerprints = []int64{}, []string{}, [][]byte{}
	for _, x := range binds {
		a.BindHashes = append(a.BindHashes, x.hash)
		a.BindOrds = append(a.BindOrds, x.ord)
		a.BindJobIds = append(a.BindJobIds, x.p.id)
		a.BindModes = append(a.BindModes, int16(x.p.admission.mode))
		a.BindTtlsUs = append(a.BindTtlsUs, x.p.admission.retention.Microseconds())
		a.BindScopes = append(a.BindScopes, x.p.admission.scope)
		a.BindFingerprints = append(a.BindFingerprints, x.p.fingerprint.stored())
	}
}

// results reads the statement's answer: the summary, then the live bindings met
// by the leaders in sent. It reports whether a job was made.
func (b *batch) results(sent []int, rows []db.EnqueueManyRow) (results []Result, made bool, err error) {
	met := make(map[int]held, len(rows)-1)
	for _, row := range rows[1:] {
		i := sent[row.Ord-1]
		met[i] = deciding(met, i, held{jobID: *row.HeldJobID, mode: row.HeldMode, dead: row.HeldDead, expiresAt: row.HeldExpiresAt, fingerprint: row.HeldFingerprint})
	}
	if results, made, err = b.answers(met, nil); err != nil {
		return nil, false, err
	}
	if s := rows[0]; s.Made != s.Wanted {
		return nil, false, errUnsettled
	}
	return results, made, nil
}

// answers are the results of all requests: met are the live bindings of leaders
// that are not debounced, told what was said to those that are. It reports
// whether a job was made that may be ready.
func (b *batch) answers(met map[int]held, told map[int]Result) (results []Result, made bool, err error) {
	results = make([]Result, len(b.requests))
	nth := map[int]int{} // how many requests of a series were answered
	var conflicts []error
	for i, p := range b.requests {
		first := b.leader[i]
		h, isHeld := met[first]
		var refused error
		switch {
		case b.series[first] != nil:
			results[i] = b.sends(first).answer(nth[first], told[first])
			nth[first]++
		case isHeld:
			results[i], refused = p.answer(i, h.asMetBy(p, b.requests[first]))
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
	if p.fingerprint == leader.fingerprint {
		return Result{JobID: JobID(leader.id), Outcome: p.admission.mode.repeated()}, nil
	}
	return Result{}, &EnqueueIdempotencyConflictError{JobID: JobID(leader.id), Key: p.key, Fields: p.fingerprint.Diff(leader.fingerprint), Index: i, batch: true}
}

// thin empties the arrays that hold nothing but defaults: PostgreSQL takes them for
// arrays of NULLs, and reading a long one costs it more than anything else that
// these columns need.
func thin(a *db.EnqueueManyParams) {
	for _, texts := range []*[]string{&a.RunAts, &a.Deadlines, &a.Retries, &a.Tags, &a.ConcurrencyKeys} {
		*texts = thinned(*texts)
	}
	a.ExecutionTimeoutsUs = thinned(a.ExecutionTimeoutsUs)
	a.Priorities = thinned(a.Priorities)
	a.Releases = thinned(a.Releases)
}

func thinned[T comparable](values []T) []T {
	var zero T
	if slices.ContainsFunc(values, func(v T) bool { return v != zero }) {
		return values
	}
	return []T{}
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
