package modeltest

import (
	"slices"

	"github.com/onceq/onceq/pkg/queue"
)

const (
	lease = 3 * window
	// ahead is how far the clock of an early claim is ahead: every waiting job is
	// due by it.
	ahead     = 12 * window
	retention = window // of ended jobs
	retryIn   = window // what a failed attempt waits
)

// claim checks what a claim took, which the rules leave open in part: jobs that
// are due, the more urgent first, and all that there is room for. With racing it
// may leave any, as others may hold them at the moment.
func (s state) claim(op operation, seen answer, racing bool) (state, answer) {
	next, clock := s.clone(), s.now
	if op.early {
		clock += ahead
	}
	due := func(j *job) bool {
		return j.place == waiting && j.def.queue == op.queue && j.readyAt() <= clock && !j.overdue(clock)
	}
	var a answer
	for _, c := range seen.claimed {
		j := next.job(c.attempt.job)
		if j == nil || !due(j) || len(a.claimed) == op.most {
			a.claimed = append(a.claimed, claimed{def: "no job that is due"})
			break
		}
		if !racing && slices.ContainsFunc(next.jobs, func(o job) bool { return due(&o) && o.before(j) }) {
			a.claimed = append(a.claimed, claimed{def: "a more urgent job"})
			break
		}
		j.place, j.fence, j.attempts, j.leaseUntil = running, j.fence+1, j.attempts+1, clock+lease
		j.cancelRequested = false
		a.claimed = append(a.claimed, claimed{
			attempt: attempt{job: j.id, fence: j.fence, frees: j.release == queue.ReleaseFinished}, number: j.attempts, def: j.def.String(),
		})
	}
	if !racing && len(a.claimed) < op.most && slices.ContainsFunc(next.jobs, func(j job) bool { return due(&j) }) {
		a.claimed = append(a.claimed, claimed{def: "one job more"})
	}
	return next, a
}

// before is the order of claims, as far as the model's clock can tell.
func (j *job) before(o *job) bool {
	if j.def.priority != o.def.priority {
		return priorities[j.def.priority] > priorities[o.def.priority]
	}
	return j.readyAt() < o.readyAt()
}

// end is how an attempt ends: only that of the last fence, within its lease.
func (s state) end(op operation) (state, answer) {
	next := s.clone()
	j := next.job(op.attempt.job)
	if j == nil || j.place != running || j.fence != op.attempt.fence || j.leaseUntil <= s.now {
		return s, answer{told: "lost"}
	}
	switch {
	case op.action == succeed:
		next.finish(j, succeeded)
		return next, answer{told: "ended"}
	case j.cancelRequested:
		next.finish(j, cancelled)
		if op.action == handBack {
			return next, answer{told: "ended"}
		}
		return next, answer{told: "cancelled"}
	case op.action == handBack:
		j.place, j.attempts, j.runAt = waiting, j.attempts-1, s.now
		return next, answer{told: "ended"}
	case !op.again || j.attempts >= budgets[j.def.maxAttempts][1] || j.overdue(s.now):
		next.finish(j, dead)
		return next, answer{told: "dead"}
	}
	j.place, j.runAt = waiting, s.now+retryIn
	return next, answer{told: "retry_scheduled"}
}

// finish ends a job. Its key is freed or marked if it still owns it.
func (s *state) finish(j *job, as place) {
	j.place, j.endedAt = as, s.now
	if j.key < 0 || s.keys[j.key].job != j.id || !s.live(j.key) {
		return
	}
	switch {
	case j.release == queue.ReleaseFinished, j.release == queue.ReleaseDead && as != succeeded:
		s.keys[j.key] = binding{}
	case as != succeeded:
		s.keys[j.key].dead = true
	}
}

// cancel ends a job that waits and asks a running one to stop.
func (s state) cancel(op operation) (state, answer) {
	next := s.clone()
	j := next.job(op.jobs[0])
	if j == nil || j.place == gone {
		return s, answer{told: string(queue.CancelNotFound)}
	}
	switch j.place {
	case waiting:
		next.finish(j, cancelled)
		return next, answer{told: string(queue.CancelledNow)}
	case running:
		j.cancelRequested = true
		return next, answer{told: string(queue.CancelRequested)}
	}
	return s, answer{told: string(queue.CancelTooLate)}
}

// purge deletes waiting jobs, with their bindings.
func (s state) purge(op operation) (state, answer) {
	next := s.clone()
	var purged int64
	for i := range next.jobs {
		j := &next.jobs[i]
		if j.place != waiting || op.jobs != nil && !slices.Contains(op.jobs, j.id) ||
			op.byQueue && j.def.queue != op.only.queue || op.byType && j.def.kind != op.only.kind {
			continue
		}
		purged++
		j.place = gone
		if j.key >= 0 && next.keys[j.key].job == j.id {
			next.keys[j.key] = binding{}
		}
	}
	return next, answer{counts: []int64{purged}}
}

// maintain is a pass of maintenance: expired leases, deadlines, expired bindings
// and ended jobs past their retention.
func (s state) maintain() (state, answer) {
	next := s.clone()
	counts := make([]int64, 4)
	for i := range next.jobs {
		j := &next.jobs[i]
		if j.place != running || j.leaseUntil > s.now {
			continue
		}
		counts[0]++
		switch {
		case j.cancelRequested:
			next.finish(j, cancelled)
		case j.overdue(s.now) || j.attempts >= budgets[j.def.maxAttempts][1]:
			next.finish(j, dead)
		default:
			j.place, j.runAt = waiting, s.now
		}
	}
	for i := range next.jobs {
		if j := &next.jobs[i]; j.place == waiting && j.overdue(s.now) {
			counts[1]++
			next.finish(j, dead)
		}
	}
	for key, b := range next.keys {
		// An expired debounce binding stays while its job has never started.
		if b.owned && !next.live(key) && !(b.request.mode == debounce && next.neverStarted(key)) {
			counts[2]++
			next.keys[key] = binding{}
		}
	}
	for i := range next.jobs {
		if j := &next.jobs[i]; j.place >= succeeded && j.place <= cancelled && j.endedAt+retention <= s.now {
			counts[3]++
			j.place = gone
		}
	}
	return next, answer{counts: counts}
}

// step is the whole model: what an operation is told, and what is so after it.
// Of the real answer it takes only what the rules leave open: the ids of new
// jobs, and which of the jobs that are due a claim took.
func step(s state, op operation, seen answer, racing bool) (state, answer) {
	switch op.action {
	case enqueue, enqueueMany:
		return s.admit(op, seen)
	case pass:
		s.now += op.by
	case claim:
		return s.claim(op, seen, racing)
	case succeed, fail, handBack:
		return s.end(op)
	case cancel:
		return s.cancel(op)
	case purge:
		return s.purge(op)
	case maintain:
		return s.maintain()
	case look:
		return s, answer{told: s.String()}
	}
	return s, answer{}
}
