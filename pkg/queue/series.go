package queue

import "time"

// series is the requests of one batch that are debounced under one key, in their
// order. They are decided at one instant, as if sent one after the other, so one
// request can stand for all of them: the last definition wins, and what they say
// of the run time composes here, without a clock.
type series struct {
	requests []*prepared
	// fresh is how far away the job runs that the first of them makes; follow is
	// that of the job made by the first with FollowUp, at place followAt, -1 for none.
	fresh, follow time.Duration
	followAt      int
	// For a job that waits already: hold tells that none of them moves its run
	// time; otherwise the last one that does, does it by window and maxWait.
	hold            bool
	window, maxWait time.Duration
	// cut is the shortest MaxWait of those that are followed by another: once it
	// has passed, such a request ends the window before the next is decided.
	cut time.Duration
}

func newSeries(p *prepared) *series {
	s := &series{followAt: -1, hold: true, fresh: p.admission.retention}
	s.put(p)
	return s
}

// until is the series up to the first request that ends the window of a job that
// has waited for so long.
func (s *series) until(age time.Duration) *series {
	short := newSeries(s.requests[0])
	for i, p := range s.requests {
		if i > 0 {
			short.add(p)
		}
		if a := p.admission; !a.hold && a.maxWait > 0 && a.maxWait <= age {
			break
		}
	}
	return short
}

// add appends a request; for a job that an earlier one has made, it is a
// replacement at the same instant.
func (s *series) add(p *prepared) {
	s.fresh = replacedWindow(s.fresh, p.admission)
	if s.followAt >= 0 {
		s.follow = replacedWindow(s.follow, p.admission)
	}
	if last := s.requests[len(s.requests)-1].admission; !last.hold && last.maxWait > 0 && (s.cut == 0 || last.maxWait < s.cut) {
		s.cut = last.maxWait
	}
	s.put(p)
}

func (s *series) put(p *prepared) {
	a := p.admission
	if s.followAt < 0 && a.followUp {
		s.followAt, s.follow = len(s.requests), a.retention
	}
	if !a.hold {
		s.hold, s.window, s.maxWait = false, a.retention, a.maxWait
	}
	s.requests = append(s.requests, p)
}

// replacedWindow is how far away a job runs that was accepted at this instant,
// to run after some time, once it is replaced.
func replacedWindow(before time.Duration, by admission) time.Duration {
	switch {
	case by.hold:
		return before
	case by.maxWait > 0:
		return min(by.retention, by.maxWait)
	}
	return by.retention
}

// folded is the request that stands for all: the last definition, with the id
// that the first one's job would have.
func (s *series) folded() *prepared {
	last := *s.requests[len(s.requests)-1]
	last.id = s.requests[0].id
	last.admission.retention = s.fresh
	return &last
}

// digests are 6 bytes of each request's fingerprint, for the events.
func (s *series) digests() []byte {
	var out []byte
	for _, p := range s.requests {
		out = append(out, p.fingerprint.whole[:6]...)
	}
	return out
}

// answer is the result of the nth request, from what PostgreSQL told of the key:
// the zero Result for a fresh job. Requests beyond a series that was cut short
// found the window over.
func (s *series) answer(nth int, told Result) Result {
	madeBy := -1
	switch {
	case told == Result{}:
		madeBy = 0
	case told.Reason == ReasonNotPending && s.followAt >= 0:
		madeBy = s.followAt
	default:
		if nth >= len(s.requests) {
			return Result{JobID: told.JobID, Outcome: OutcomeNonReplaceable, Reason: ReasonWindowElapsed}
		}
		return told
	}
	id := JobID(s.requests[0].id)
	switch {
	case nth < madeBy:
		return told
	case nth == madeBy:
		return Result{JobID: id, Outcome: OutcomeAccepted}
	}
	return Result{JobID: id, Outcome: OutcomeReplaced}
}
