package queue

import (
	"context"
	"time"

	"github.com/onceq/onceq/db"
)

// claimed is a job that this worker holds and has not begun.
type claimed struct {
	row  *db.ClaimJobsRow
	sent time.Time // when its claim was, or what renewed its lease since
}

// start has claimed jobs run in goroutines of their own. Once the worker stops,
// they go back instead.
func (s *source) start(ctx context.Context, rows []db.ClaimJobsRow, sent time.Time) {
	jobs := make([]claimed, len(rows))
	for i := range rows {
		jobs[i] = claimed{&rows[i], sent}
	}
	if len(jobs) > 0 && ctx.Err() == nil && time.Since(sent) >= s.w.cfg.Lease/3 {
		jobs = s.confirm(jobs)
	}
	switch {
	case len(jobs) == 0:
		return
	case ctx.Err() != nil:
		s.handBack(jobs)
		return
	}
	s.mu.Lock()
	s.busy += len(jobs)
	s.next = append(s.next, jobs...)
	s.mu.Unlock()
	s.w.attempts.Go(s.work)
}

// confirm renews the leases of a claim that took so long that a heartbeat is due,
// and returns the jobs that may begin. Their leases are counted from when the
// claim was sent, and PostgreSQL may have seen it much later, or long ago: a job
// must not begin on what is left of a lease, nor on none.
func (s *source) confirm(jobs []claimed) (held []claimed) {
	ids, fences := make([]string, len(jobs)), make([]int32, len(jobs))
	for i, job := range jobs {
		ids[i], fences[i] = job.row.JobID, job.row.Fence
	}
	answers, sent, err := s.w.beat(s.w.final, ids, fences)
	for _, job := range jobs {
		answer, present := answers[JobID(job.row.JobID)]
		switch {
		case answer.Renewed:
			held = append(held, claimed{job.row, sent})
		case (present || err != nil) && time.Since(job.sent) < s.w.cfg.Lease:
			held = append(held, job)
		}
	}
	if lost := len(jobs) - len(held); lost > 0 {
		s.w.log.Warn("claim came back too late", "jobs", lost)
	}
	return held
}

// work runs the next job that has not begun, and then others, if some are left.
// Before its first one it has another goroutine look for the next, so that no job
// waits for another's handler; but goroutines whose handlers are quick share what
// is left, on stacks that have grown.
func (s *source) work() {
	for first := true; ; first = false {
		s.mu.Lock()
		if len(s.next) == 0 {
			s.mu.Unlock()
			return
		}
		job := s.next[0]
		s.next[0] = claimed{}
		s.next = s.next[1:]
		others := len(s.next) > 0
		s.mu.Unlock()
		if first && others {
			s.w.attempts.Go(s.work)
		}
		s.attend(job)
	}
}

// attend runs a job.
func (s *source) attend(job claimed) {
	defer s.done()
	if a := s.read(job); a != nil {
		a.run(s.w.base, s.w.handlers[a.jobType])
	}
}

// handBack releases a claim's jobs in one statement.
func (s *source) handBack(jobs []claimed) {
	attempts := make([]*attempt, 0, len(jobs))
	for _, job := range jobs {
		if a := s.read(job); a != nil {
			attempts = append(attempts, a)
		}
	}
	if len(attempts) > 0 {
		s.w.release(attempts...)
	}
}

// read makes the attempt of a claimed job, or none of a row that can't be read:
// its lease will run out.
func (s *source) read(job claimed) *attempt {
	a, err := newAttempt(s.w, s.queue, job.row, job.sent)
	if err != nil {
		s.w.log.Error("claimed job is unreadable", "job_id", job.row.JobID, "error", err)
		return nil
	}
	return a
}
