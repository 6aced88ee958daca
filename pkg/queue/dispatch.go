package queue

import (
	"time"

	"github.com/onceq/onceq/db"
)

// start runs claimed jobs in goroutines of their own. A claim whose answer took
// longer than its lease starts nothing: the jobs may be others' by now. While the
// worker stops, they go back instead.
func (s *source) start(rows []db.ClaimJobsRow, sent time.Time, stopping bool) {
	attempts := make([]*attempt, 0, len(rows))
	for i := range rows {
		a, err := newAttempt(s.w, s.queue, &rows[i], sent)
		if err != nil {
			s.w.log.Error("claimed job is unreadable", "job_id", rows[i].JobID, "error", err)
			continue
		}
		a.unwanted = stopping
		attempts = append(attempts, a)
	}
	if len(attempts) > 0 && time.Since(sent) >= s.w.cfg.Lease {
		s.w.log.Warn("claim came back too late", "jobs", len(attempts))
		return
	}
	s.mu.Lock()
	s.busy += len(attempts)
	s.next = append(s.next, attempts...)
	s.mu.Unlock()
	for range attempts {
		s.w.attempts.Go(s.work)
	}
}

// work runs the next job that has not begun, and then others, if some are left.
// There is a goroutine for each, so that none waits for another's handler; but one
// whose handlers were quick takes what the others would, on a stack that has grown.
func (s *source) work() {
	for {
		s.mu.Lock()
		if len(s.next) == 0 {
			s.mu.Unlock()
			return
		}
		a := s.next[0]
		s.next[0] = nil
		s.next = s.next[1:]
		s.mu.Unlock()
		s.attend(a)
	}
}

// attend runs a job, or hands it back.
func (s *source) attend(a *attempt) {
	defer s.done()
	if a.unwanted {
		s.w.release(a)
		return
	}
	a.run(s.w.base, s.w.handlers[a.jobType])
}
