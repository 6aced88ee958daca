package queue

import (
	"time"

	"github.com/onceq/onceq/db"
)

// claimed is a job that this worker holds and has not begun.
type claimed struct {
	row  *db.ClaimJobsRow
	sent time.Time // when its claim was
}

// start has claimed jobs run in goroutines of their own. A claim whose answer took
// longer than its lease starts nothing: the jobs may be others' by now. While the
// worker stops, they go back instead.
func (s *source) start(rows []db.ClaimJobsRow, sent time.Time, stopping bool) {
	switch {
	case len(rows) == 0:
		return
	case time.Since(sent) >= s.w.cfg.Lease:
		s.w.log.Warn("claim came back too late", "jobs", len(rows))
		return
	case stopping:
		s.handBack(rows, sent)
		return
	}
	s.mu.Lock()
	s.busy += len(rows)
	for i := range rows {
		s.next = append(s.next, claimed{&rows[i], sent})
	}
	s.mu.Unlock()
	s.w.attempts.Go(s.work)
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
func (s *source) handBack(rows []db.ClaimJobsRow, sent time.Time) {
	attempts := make([]*attempt, 0, len(rows))
	for i := range rows {
		if a := s.read(claimed{&rows[i], sent}); a != nil {
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
