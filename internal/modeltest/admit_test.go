package modeltest

import (
	"fmt"

	"github.com/onceq/onceq/pkg/queue"
)

// admit is the model of one call that hands over requests. ids are those that
// the real answer gave to new jobs.
func (s state) admit(op operation, seen answer) (state, answer) {
	var a answer
	if a.invalid = twoAdmissions(op.requests); a.invalid != nil {
		return s, a
	}
	next := s.clone()
	known := len(next.jobs)
	for i, r := range op.requests {
		// A refused request changes nothing, so what follows is told as without it.
		res, refused := next.decide(r, newID(&next, seen, i))
		if refused != nil {
			refused.index = i
			if fresh(next.jobs[known:], refused.job) {
				refused.job, refused.expires = "", 0
			}
			a.conflicts = append(a.conflicts, *refused)
			continue
		}
		a.results = append(a.results, res)
	}
	if a.conflicts != nil {
		return s, answer{conflicts: a.conflicts}
	}
	if op.way == rolledBack {
		return s, a
	}
	return next, a
}

// twoAdmissions are the requests whose key stands earlier in the batch under
// another admission.
func twoAdmissions(requests []request) []int {
	var wrong []int
	first := map[int]mode{}
	for i, r := range requests {
		if r.mode == plain {
			continue
		}
		if m, ok := first[r.key]; !ok {
			first[r.key] = r.mode
		} else if m != r.mode {
			wrong = append(wrong, i)
		}
	}
	return wrong
}

// newID is the id of the job that request i makes: the real one where the real
// answer has a job that nobody knows yet.
func newID(s *state, seen answer, i int) queue.JobID {
	if i < len(seen.results) && seen.results[i].Outcome == queue.OutcomeAccepted {
		if id := seen.results[i].JobID; id != "" && s.job(id) == nil {
			return id
		}
	}
	return queue.JobID(fmt.Sprintf("a new job (%d)", i))
}

func fresh(made []job, id queue.JobID) bool {
	for i := range made {
		if made[i].id == id {
			return true
		}
	}
	return false
}

// decide is the rules of one request: docs/architecture.md, "Debounce", "Key life".
func (s *state) decide(r request, id queue.JobID) (queue.Result, *conflict) {
	if r.mode == plain {
		return s.accept(r, id), nil
	}
	b := &s.keys[r.key]
	if r.mode == debounce {
		return s.debounce(r, id), nil
	}
	switch {
	case !s.live(r.key):
		return s.accept(r, id), nil
	case b.request.mode != r.mode:
		return queue.Result{}, &conflict{job: b.job, key: keyName(r.key), fields: []queue.Field{queue.FieldAdmission}, expires: b.expires}
	}
	if fields := b.request.differences(r); fields != nil {
		return queue.Result{}, &conflict{job: b.job, key: keyName(r.key), fields: fields, expires: b.expires}
	}
	outcome := queue.OutcomeReplayed
	if r.mode == throttle {
		outcome = queue.OutcomeCoalesced
	}
	return queue.Result{JobID: b.job, Outcome: outcome, Dead: b.dead}, nil
}

func (s *state) debounce(r request, id queue.JobID) queue.Result {
	b := &s.keys[r.key]
	refuse := func(reason queue.NonReplaceableReason) queue.Result {
		return queue.Result{JobID: b.job, Outcome: queue.OutcomeNonReplaceable, Reason: reason, Dead: b.dead}
	}
	if !b.owned {
		return s.accept(r, id)
	}
	if b.request.mode != debounce {
		if s.live(r.key) {
			return refuse(queue.ReasonIncompatibleMode)
		}
		return s.accept(r, id)
	}
	switch waits := s.neverStarted(r.key); {
	case s.live(r.key) && waits:
		return s.replace(r)
	case s.live(r.key) && !r.followUp:
		return refuse(queue.ReasonNotPending)
	case waits && !s.live(r.key):
		return refuse(queue.ReasonWindowElapsed)
	}
	return s.accept(r, id)
}

// accept makes a job, and gives it the key.
func (s *state) accept(r request, id queue.JobID) queue.Result {
	j := job{id: id, key: r.key, def: r.def, release: r.release, acceptedAt: s.now, runAt: s.now}
	switch {
	case r.mode == debounce:
		j.runAt = s.now + r.retention
	case r.def.timed:
		j.runAt = s.now + runAfter
	}
	if r.def.due {
		j.deadline = s.now + deadlineAfter
	}
	s.jobs = append(s.jobs, j)
	if r.mode != plain {
		s.keys[r.key] = binding{owned: true, job: id, request: r, acceptedAt: s.now, expires: s.now + r.retention}
	}
	return queue.Result{JobID: id, Outcome: queue.OutcomeAccepted}
}

// replace gives the waiting job of a debounced key a new definition.
func (s *state) replace(r request) queue.Result {
	b := &s.keys[r.key]
	j := s.job(b.job)
	if !r.hold {
		b.expires = s.now + r.retention
		if r.maxWait > 0 {
			b.expires = min(b.expires, b.acceptedAt+r.maxWait)
		}
	}
	b.request = r
	j.def, j.runAt = r.def, b.expires
	if r.def.due {
		j.deadline = s.now + deadlineAfter
	}
	return queue.Result{JobID: j.id, Outcome: queue.OutcomeReplaced}
}
