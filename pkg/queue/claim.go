package queue

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/onceq/onceq/db"
)

const (
	maxClaim = 500
	// wholeClaims is how many claims ClaimJobs makes, once one was its, before
	// ClaimPlain is tried again.
	wholeClaims = 16
	// leastAhead is how many of a key's first jobs a claim passes by where others
	// have them locked: claims that are under way, mostly.
	leastAhead = 8
	// sweepInterval is how often a claim looks below its floors, for jobs that
	// became visible late: those of long transactions, and handed back ones.
	sweepInterval = 2 * time.Second
	// sweepShare is how much of its time a source spends on that, one part in so
	// many, as long as it need not wait more than sweepLimit for it: below the
	// floors lies all that an old snapshot keeps.
	sweepShare = 20
	sweepLimit = 10 * time.Second
	// gatherFor bounds how long a busy queue gathers free handlers before it
	// claims again: one claim for many jobs costs little more than for one.
	gatherFor = 2 * time.Millisecond
)

// source claims the jobs of one queue for a worker.
type source struct {
	w        *Worker
	queue    string
	capacity int

	mu       sync.Mutex
	busy     int
	short    bool           // a claim was cut short for want of free handlers
	heldBack bool           // the last claim left ready jobs behind: a pause, or the queue's cap
	ends     int            // jobs whose end is recorded
	freed    map[string]int // concurrency keys with a slot to give, and the last of the ends that gave one
	next     []claimed      // in the order in which they begin

	wake   chan struct{} // something may be ready, or a slot is free
	floors floors
	swept  time.Time
	sweep  time.Duration // what the last one took
	whole  int           // claims to come that are made by ClaimJobs
	ahead  int32         // as leastAhead; more while claims come back empty for it
}

func newSource(w *Worker, queue string, capacity int) *source {
	return &source{w: w, queue: queue, capacity: capacity, freed: map[string]int{}, wake: make(chan struct{}, 1), ahead: leastAhead}
}

// nudge makes the source look again soon. It never blocks.
func (s *source) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// ended notes that a job's end is recorded: its concurrency key, unless empty,
// has a free slot, and the queue's cap leaves room for another.
func (s *source) ended(key string) {
	s.mu.Lock()
	s.ends++
	if key != "" {
		s.freed[key] = s.ends
	}
	wanted := key != "" || s.heldBack
	s.mu.Unlock()
	if wanted {
		s.nudge()
	}
}

// done gives a handler's place back. Only a source that could have used it looks
// again for that: an idle queue is not asked after each of its last jobs.
func (s *source) done() {
	s.mu.Lock()
	s.busy--
	short := s.short
	s.mu.Unlock()
	if short {
		s.nudge()
	}
}

// room is how many handlers are free, and the keys to look at. more tells that
// the last claim left work behind.
func (s *source) room(more bool) (free int, keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.short = more || s.busy == s.capacity
	keys = []string{}
	for key := range s.freed {
		keys = append(keys, key)
	}
	return s.capacity - s.busy, keys
}

// run claims and starts jobs until ctx ends.
func (s *source) run(ctx context.Context) {
	failures := 0
	limit := maxClaim
	more := false // the last claim left work that this worker may take
	for ctx.Err() == nil {
		free, keys := s.room(more)
		if more && free < min(s.capacity/2, maxClaim) {
			s.gather(ctx, gatherFor)
			free, keys = s.room(more)
		}
		if free == 0 {
			s.wait(ctx, s.w.cfg.PollInterval)
			continue
		}
		asked := min(free, limit)
		got, again, err := s.claim(ctx, asked, keys)
		if err != nil {
			// Its payloads may have been too much for the time that it has.
			limit = max(1, asked/2)
			if ctx.Err() == nil {
				failures++
				s.w.log.Warn("claim failed", "queue", s.queue, "error", err)
				s.wait(ctx, rand.N(min(2*time.Second, 50*time.Millisecond<<min(failures, 6)))+10*time.Millisecond)
			}
			continue
		}
		failures = 0
		limit = min(maxClaim, limit+limit/8+1)
		if more = got == asked || again; more {
			if got == 0 {
				s.gather(ctx, rand.N(2*gatherFor)) // others are at it
			}
			continue
		}
		s.wait(ctx, s.untilNext(ctx))
	}
}

// gather waits for handlers to become free, for a moment.
func (s *source) gather(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (s *source) wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-s.wake:
	case <-timer.C:
	}
}

// claim leases up to most jobs and starts them. again tells that it got fewer but
// that another look will find more.
func (s *source) claim(ctx context.Context, most int, keys []string) (got int, again bool, err error) {
	s.mu.Lock()
	ends := s.ends
	s.mu.Unlock()
	rows, sent, err := s.send(ctx, most, keys)
	if err != nil {
		return 0, false, err
	}
	heldBack := false
	if n := len(rows) - 1; n >= 0 && rows[n].JobID == "" {
		rows, again, heldBack = rows[:n], rows[n].Again, rows[n].HeldBack
	}
	s.mu.Lock()
	s.heldBack = heldBack
	missed := heldBack && s.ends != ends
	if len(rows) > 0 || !heldBack && !again { // else it has not looked at them
		for _, key := range keys {
			if s.freed[key] <= ends { // else another slot has come since
				delete(s.freed, key)
			}
		}
	}
	s.mu.Unlock()
	if missed {
		s.nudge() // a job ended while this claim was on its way
	}
	if len(rows) == 0 && again {
		s.ahead = min(2*s.ahead, maxClaim)
	} else {
		s.ahead = leastAhead
	}
	s.start(ctx, rows, sent)
	if len(rows) == most {
		s.floors.follow(rows)
	}
	return len(rows), again, nil
}

// send makes a claim once it has a connection, whose wait is no part of the lease,
// nor of the time that the claim has: one that is given up in the middle may leave
// its jobs leased to nobody. For the same reason it goes on for a while when ctx
// ends.
func (s *source) send(ctx context.Context, most int, keys []string) (rows []db.ClaimJobsRow, sent time.Time, err error) {
	waiting, cancel := context.WithTimeout(ctx, statementLimit)
	conn, err := s.w.control.Acquire(waiting)
	cancel()
	if err != nil {
		return nil, sent, err
	}
	defer conn.Release()
	sent = time.Now()
	if sent.Sub(s.swept) >= min(max(sweepInterval, sweepShare*s.sweep), sweepLimit) {
		s.floors = floors{}
		s.swept = sent
		defer func() { s.sweep = time.Since(sent) }()
	}
	asking, cancel := context.WithTimeout(s.w.final, s.w.cfg.Lease)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(claimGrace, cancel) })()
	rows, err = s.ask(asking, s.w.c.queries(limited{conn}), most, keys)
	return rows, sent, err
}

// ask asks for jobs by ClaimPlain, unless the last claims met what it leaves to
// ClaimJobs.
func (s *source) ask(ctx context.Context, q *db.Queries, most int, keys []string) ([]db.ClaimJobsRow, error) {
	params := db.ClaimJobsParams{
		Queue: s.queue, Most: int64(most), Floors: s.floors[:], Types: s.w.types, FreedKeys: keys, Ahead: s.ahead,
		LeaseUs: s.w.cfg.Lease.Microseconds(), WorkerID: s.w.cfg.ID,
	}
	if s.whole == 0 && len(keys) == 0 {
		plain, err := q.ClaimPlain(ctx, db.ClaimPlainParams{
			Queue: params.Queue, Most: params.Most, Floors: params.Floors, Types: params.Types, LeaseUs: params.LeaseUs, WorkerID: params.WorkerID,
		})
		if err != nil {
			s.whole = wholeClaims // whatever it was, it must not hold up the queue
			return nil, err
		}
		rows := make([]db.ClaimJobsRow, len(plain))
		for i, row := range plain {
			rows[i] = db.ClaimJobsRow(row)
		}
		if n := len(rows); n == 0 || !rows[n-1].Again {
			return rows, nil
		}
		s.whole = wholeClaims
		if len(rows) > 1 {
			return rows, nil
		}
	}
	rows, err := q.ClaimJobs(ctx, params)
	if needed := slices.ContainsFunc(rows, func(row db.ClaimJobsRow) bool { return row.ConcurrencyKey != nil || row.HeldBack }); needed {
		s.whole = wholeClaims
	} else if s.whole > 0 {
		s.whole--
	}
	return rows, err
}

// untilNext is how long to wait when nothing more can be claimed: until the next
// scheduled job is due, at most a poll interval. When nothing more is ready the
// floors follow the clock.
func (s *source) untilNext(ctx context.Context) time.Duration {
	poll := s.w.cfg.PollInterval
	next, err := s.w.q.NextReadyAt(ctx, s.queue)
	if err != nil {
		return poll
	}
	if !s.heldBack {
		s.floors.raiseAll(time.UnixMicro(next.AtUs))
	}
	if next.DueInUs < 0 {
		return poll
	}
	return min(poll, time.Duration(min(next.DueInUs, poll.Microseconds()))*time.Microsecond+time.Millisecond)
}
