package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/db"
)

// completions gathers attempts that succeeded, so that those which end while a
// statement is under way share the next one. A lone one is sent at once.
type completions struct {
	w    *Worker
	ends chan *attempt
}

// maxCompletions bounds one statement.
const maxCompletions = 1000

func (c *completions) add(a *attempt) { c.ends <- a }

// run sends what was gathered until the channel is closed and empty.
func (c *completions) run() {
	for a := range c.ends {
		batch := []*attempt{a}
	gather:
		for len(batch) < maxCompletions {
			select {
			case next, ok := <-c.ends:
				if !ok {
					break gather
				}
				batch = append(batch, next)
			default:
				break gather
			}
		}
		c.w.complete(batch)
	}
}

// complete records successes. It tries for as long as the leases hold: each try
// is fenced, so a repeat after a lost answer can only find the rows gone.
func (w *Worker) complete(batch []*attempt) {
	ids, fences := fencesOf(batch)
	frees := make([]bool, len(batch))
	for i, a := range batch {
		frees[i] = a.frees
	}
	plain := !slices.Contains(frees, true)
	w.persist(batch, "complete", func(ctx context.Context) error {
		if plain {
			_, err := w.q.CompletePlain(ctx, db.CompletePlainParams{JobIds: ids, Fences: fences, WorkerID: w.cfg.ID})
			if !refusedItself(err) {
				return err
			}
			plain = false
		}
		_, err := w.q.CompleteJobs(ctx, db.CompleteJobsParams{JobIds: ids, Fences: fences, WorkerID: w.cfg.ID, Frees: frees})
		return err
	})
	w.ended(batch)
}

// fail records a failed attempt; delay nil: there is to be no next one.
func (w *Worker) fail(a *attempt, cause error, delay *int64) {
	w.persist([]*attempt{a}, "fail", func(ctx context.Context) error {
		kind, err := w.q.FailJob(ctx, db.FailJobParams{JobID: string(a.id), Fence: a.fence, WorkerID: w.cfg.ID, DelayUs: delay, Error: errorText(cause)})
		if errors.Is(err, pgx.ErrNoRows) {
			w.log.Warn("failure not recorded: the lease is lost", "job_id", a.id)
			return nil
		}
		if err == nil {
			w.log.Debug("attempt failed", "job_id", a.id, "attempt", a.number, "then", kind)
		}
		return err
	})
	w.ended([]*attempt{a})
}

// release hands jobs back without spending the attempts.
func (w *Worker) release(batch ...*attempt) {
	ids, fences := fencesOf(batch)
	w.persist(batch, "release", func(ctx context.Context) error {
		_, err := w.q.ReleaseJobs(ctx, db.ReleaseJobsParams{JobIds: ids, Fences: fences, WorkerID: w.cfg.ID})
		return err
	})
	w.ended(batch)
}

// settleTx ends an attempt whose handler called CompleteTx. If that transaction
// was committed the job has succeeded and the handler's answer changes nothing;
// if not, the effects that were to go with it are gone too, so it is a failure
// even when the handler says nothing. One that ended because the worker stops is
// handed back like any other; should the commit still be under way, the hand-back
// waits for it, and finds nothing.
func (w *Worker) settleTx(a *attempt, err, cause error) {
	var still bool
	w.persist([]*attempt{a}, "look up", func(ctx context.Context) error {
		var lookErr error
		still, lookErr = w.q.HoldsLease(ctx, db.HoldsLeaseParams{JobID: string(a.id), Fence: a.fence, WorkerID: w.cfg.ID})
		return lookErr
	})
	if !still {
		w.ended([]*attempt{a})
		return
	}
	if err != nil && errors.Is(cause, errShutdown) {
		w.release(a)
		return
	}
	if err == nil {
		err = errors.New("the transaction of CompleteTx was not committed")
	}
	w.fail(a, err, a.delay(err))
}

// persist repeats a final write until PostgreSQL has answered it, every lease
// concerned has run out, or Run gives up. Where handlers have run, the heartbeat
// goes on meanwhile.
func (w *Worker) persist(batch []*attempt, what string, write func(context.Context) error) {
	for try := 1; ; try++ {
		ctx, cancel := context.WithTimeout(w.final, max(w.cfg.Lease/2, time.Second))
		err := write(ctx)
		cancel()
		if err == nil {
			return
		}
		w.log.Warn("final write failed", "what", what, "jobs", len(batch), "error", err)
		held := false
		for _, a := range batch {
			held = held || time.Since(*a.renewed.Load()) < w.cfg.Lease
		}
		if !held {
			return
		}
		if within(w.final.Done(), min(time.Second, 20*time.Millisecond<<min(try, 6))) {
			w.lost.Add(int64(len(batch)))
			return
		}
	}
}

// ended forgets attempts and tells their queues that there is room for others.
func (w *Worker) ended(batch []*attempt) {
	for _, a := range batch {
		w.leases.remove(a)
		w.queues[a.queue].ended(a.concurrency)
	}
}
