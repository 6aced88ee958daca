package modeltest

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/onceq/onceq/pkg/queue"
)

// source is where the choices of a history come from: rapid, which can shrink
// them, or a seed. The first of n choices is the simplest.
type source interface {
	choose(n int) int
}

// drawn makes choices by rapid: bit by bit, because rapid's own small numbers
// come far more often than large ones.
type drawn struct{ t *rapid.T }

var bit = rapid.Bool()

func (d drawn) choose(n int) int {
	x := 0
	for range 8 {
		x <<= 1
		if bit.Draw(d.t, "") {
			x++
		}
	}
	return x * n >> 8
}

// oneIn is true once in n times.
func oneIn(s source, n int) bool { return s.choose(n) == n-1 }

func pick[T any](s source, from ...T) T { return from[s.choose(len(from))] }

// chooseDefinition is mostly the same, so that requests are mostly equal, and
// otherwise differs in a few members.
func chooseDefinition(s source) definition {
	var d definition
	if s.choose(2) == 0 {
		return d
	}
	for range 1 + s.choose(3) {
		switch s.choose(10) {
		case 0, 1:
			d.payload = int8(s.choose(len(payloads)))
		case 2:
			d.queue = 1
		case 3:
			d.kind = 1
		case 4:
			d.priority = 1
		case 5:
			d.tags = 1
		case 6:
			d.maxAttempts = 1
		case 7:
			d.retry = 1
		case 8:
			d.timed = true
		case 9:
			d.timeout = 1
			d.due = s.choose(2) == 1
		}
	}
	return d
}

// chooseRequest repeats an earlier request, spelt as it may be, or makes one: it
// prefers for each key one admission, with the same options, so that a request
// often meets its like.
func chooseRequest(s source, p *past) request {
	if len(p.requests) > 0 && oneIn(s, 3) {
		r := recent(s, p.requests)
		r.respelt = s.choose(2) == 1
		return r
	}
	r := request{key: s.choose(keyCount), def: chooseDefinition(s), respelt: s.choose(2) == 1, retention: window}
	r.mode = mode(r.key + 1)
	switch s.choose(8) {
	case 5, 6:
		r.mode = mode(1 + s.choose(3))
	case 7:
		r.mode, r.key, r.retention = plain, -1, 0
		return r
	}
	if oneIn(s, 4) {
		r.retention = pick(s, window, 3*window)
	}
	switch r.mode {
	case idempotency:
		r.release = pick(s, queue.ReleaseExpiry, queue.ReleaseFinished, queue.ReleaseFinished, queue.ReleaseDead)
	case debounce:
		r.def.timed = false
		r.hold, r.followUp = oneIn(s, 4), oneIn(s, 3)
		if oneIn(s, 3) {
			r.maxWait = pick(s, window, 2*window)
		}
	}
	return r
}

// past is what a history knows of itself when it chooses its next operation.
type past struct {
	requests []request
	jobs     []queue.JobID
	attempts []attempt
}

func (p *past) note(op operation, a answer) {
	p.requests = append(p.requests, op.requests...)
	for _, r := range a.results {
		if r.Outcome == queue.OutcomeAccepted && !slices.Contains(p.jobs, r.JobID) {
			p.jobs = append(p.jobs, r.JobID)
		}
	}
	for _, c := range a.claimed {
		p.attempts = append(p.attempts, c.attempt)
	}
}

// recent picks one of a list, rather a late one.
func recent[T any](s source, from []T) T {
	last := len(from) - 1
	if s.choose(2) == 0 {
		return from[last]
	}
	return from[last-s.choose(len(from))]
}

// chooseOperation is any operation that makes sense by what is known. What it
// names may be over long since.
func chooseOperation(s source, p *past) operation {
	op := operation{action: pick(s, nothing,
		enqueue, enqueue, enqueue, enqueue, enqueue, enqueue, enqueue, enqueue, enqueue, enqueue,
		enqueueMany, enqueueMany, enqueueMany, enqueueMany, enqueueMany,
		pass, pass, pass, pass, pass, claim, claim, claim, claim, claim, claim, succeed, succeed, succeed, fail, fail, fail, handBack,
		cancel, cancel, purge, maintain, maintain, maintain)}
	switch op.action {
	case enqueue:
		op.requests = []request{chooseRequest(s, p)}
		op.way = chooseWay(s)
	case enqueueMany:
		for range 1 + s.choose(6) {
			op.requests = append(op.requests, chooseRequest(s, p))
		}
		if s.choose(4) > 0 {
			oneAdmissionEach(op.requests)
		}
		op.way = chooseWay(s)
	case pass:
		op.by = pick(s, 1, 1, 1+window, 1+window, 1+window, 1+2*window, 1+3*window)
	case claim:
		op.most = pick(s, 1, 2, 100)
		op.early = oneIn(s, 3)
		op.everyday = s.choose(2) == 1
		if oneIn(s, 4) {
			op.queue = 1
		}
	case succeed, fail, handBack:
		if len(p.attempts) == 0 {
			return operation{}
		}
		op.attempt = recent(s, p.attempts)
		op.again = op.action == fail && s.choose(2) == 1
	case cancel:
		if len(p.jobs) == 0 {
			return operation{}
		}
		op.jobs = []queue.JobID{recent(s, p.jobs)}
	case purge:
		if len(p.jobs) > 0 && s.choose(2) == 0 {
			op.jobs = []queue.JobID{recent(s, p.jobs), recent(s, p.jobs)}
		}
		op.byQueue, op.byType = oneIn(s, 3), oneIn(s, 3)
		op.only = definition{queue: int8(s.choose(2)), kind: int8(s.choose(2))}
	}
	return op
}

func chooseWay(s source) way {
	return pick(s, byClient, byClient, byClient, byClient, committed, rolledBack)
}

// oneAdmissionEach makes a batch one that is not refused for using a key under
// two admissions.
func oneAdmissionEach(requests []request) {
	first := map[int]request{}
	for i, r := range requests {
		f, ok := first[r.key]
		switch {
		case r.mode == plain:
		case !ok:
			first[r.key] = r
		case f.mode != r.mode:
			def := r.def
			def.timed = def.timed && f.mode != debounce
			requests[i] = f
			requests[i].def = def
		}
	}
}
