package modeltest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/onceq/onceq/pkg/queue"
)

// keyCount is how many keys a history plays with.
const keyCount = 3

// state is all that the model knows. It is a value: a step makes a new one.
type state struct {
	now  tick
	keys [keyCount]binding
	jobs []job // in the order of their acceptance
}

// binding is the ownership of a key by a job.
type binding struct {
	owned               bool
	dead                bool
	job                 queue.JobID
	request             request
	acceptedAt, expires tick
}

// place is where a job stands.
type place int8

const (
	waiting place = iota
	running
	succeeded
	dead
	cancelled
	gone // purged, or past its retention
)

func (p place) String() string {
	return [...]string{"waiting", "running", "succeeded", "dead", "cancelled", "gone"}[p]
}

// job is one accepted unit of work.
type job struct {
	id              queue.JobID
	key             int
	def             definition
	place           place
	release         queue.Release
	attempts        int // that have ended, or are under way
	fence           int32
	acceptedAt      tick
	runAt, deadline tick
	leaseUntil      tick
	endedAt         tick
	cancelRequested bool
}

func (j *job) readyAt() tick { return max(j.runAt, j.acceptedAt) }

// overdue tells that the deadline has passed.
func (j *job) overdue(now tick) bool { return j.def.due && j.deadline <= now }

func (s state) clone() state {
	s.jobs = slices.Clone(s.jobs)
	return s
}

func (s state) equal(o state) bool {
	return s.now == o.now && s.keys == o.keys && slices.Equal(s.jobs, o.jobs)
}

// job finds a job; nil for one that never was.
func (s *state) job(id queue.JobID) *job {
	for i := range s.jobs {
		if s.jobs[i].id == id {
			return &s.jobs[i]
		}
	}
	return nil
}

// live tells that a key is owned now.
func (s *state) live(key int) bool { return s.keys[key].owned && s.keys[key].expires > s.now }

// neverStarted tells that the job that a debounced key names still waits for its
// first attempt.
func (s *state) neverStarted(key int) bool {
	j := s.job(s.keys[key].job)
	return j != nil && j.place == waiting && j.fence == 0
}

// String is what the database must hold: jobs that are there, and bindings.
func (s state) String() string {
	var lines []string
	for _, j := range s.jobs {
		if j.place == gone {
			continue
		}
		line := fmt.Sprintf("%s %s attempts=%d: %s", j.id, j.place, j.attempts, j.def)
		if j.place == waiting {
			line += fmt.Sprintf(" at %d", j.readyAt())
		}
		lines = append(lines, line)
	}
	for key, b := range s.keys {
		if b.owned {
			lines = append(lines, fmt.Sprintf("%s %s of %s until %d dead=%t", keyName(key), b.request.mode, b.job, b.expires, b.dead))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// String is the definition as the database shows it.
func (d definition) String() string {
	return describe(queues[d.queue][1], kinds[d.kind], shownPayloads[d.payload], priorities[d.priority], tagSets[d.tags][0], budgets[d.maxAttempts][1], d.due)
}

// shownPayloads are the payloads in jsonb's own spelling.
var shownPayloads = [...]string{`{"a": 1, "b": 2}`, `{"a": 1}`, `null`}

func describe(queue, kind, payload string, priority int, tags []string, budget int, due bool) string {
	set := slices.Compact(slices.Sorted(slices.Values(tags)))
	return fmt.Sprintf("%s %s %s priority=%d tags=%v budget=%d due=%t", queue, kind, payload, priority, set, budget, due)
}
