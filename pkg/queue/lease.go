package queue

import (
	"context"
	"time"

	"github.com/onceq/onceq/db"
)

// heartbeat renews all leases three times within each. It goes on until ctx ends,
// which is after the last final write.
func (w *Worker) heartbeat(ctx context.Context) {
	beat := time.NewTicker(w.cfg.Lease / 3)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			w.renew(ctx)
		}
	}
}

// watchLeases looks for leases that have lapsed, also while a heartbeat waits for
// its answer.
func (w *Worker) watchLeases(ctx context.Context) {
	look := time.NewTicker(min(max(w.cfg.Lease/20, 20*time.Millisecond), time.Second))
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			w.dropLapsed()
		}
	}
}

// dropLapsed cancels the attempts whose lease has really run out, measured from
// when its last good renewal was sent.
func (w *Worker) dropLapsed() {
	for _, a := range w.leases.all() {
		if time.Since(*a.renewed.Load()) >= w.cfg.Lease {
			w.lose(a)
		}
	}
}

// lose is for a lease that is gone, unless that is known already.
func (w *Worker) lose(a *attempt) {
	if w.leases.remove(a) {
		a.lost()
	}
}

// renew sends one heartbeat. A failed one is no lost lease: only time is.
func (w *Worker) renew(ctx context.Context) {
	attempts := w.leases.all()
	if len(attempts) == 0 {
		return
	}
	ids, fences := fencesOf(attempts)
	answers, sent, err := w.beat(ctx, ids, fences)
	if err != nil {
		return
	}
	for _, a := range attempts {
		answer, present := answers[a.id]
		switch {
		case answer.Renewed, present && a.inTx.Load() > 0:
			// A row that the handler's own transaction holds can't be taken either.
			a.renewed.Store(&sent)
		case !present && !a.settling.Load() && !a.completing.Load():
			w.lose(a)
		}
		if answer.CancelRequested {
			a.cancel(ErrCancelled)
		}
	}
}

// beat renews leases in one statement, and returns what it found of those that
// this worker has, and when it was sent.
func (w *Worker) beat(ctx context.Context, ids []string, fences []int32) (answers map[JobID]db.RenewLeasesRow, sent time.Time, err error) {
	sent = time.Now()
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Lease/2)
	defer cancel()
	rows, err := w.pulse.RenewLeases(ctx, db.RenewLeasesParams{JobIds: ids, Fences: fences, WorkerID: w.cfg.ID, LeaseUs: w.cfg.Lease.Microseconds()})
	if err != nil {
		w.log.Warn("heartbeat failed", "error", err)
		return nil, sent, err
	}
	answers = make(map[JobID]db.RenewLeasesRow, len(rows))
	for _, row := range rows {
		answers[JobID(row.JobID)] = row
	}
	return answers, sent, nil
}

func fencesOf(attempts []*attempt) (ids []string, fences []int32) {
	for _, a := range attempts {
		ids = append(ids, string(a.id))
		fences = append(fences, a.fence)
	}
	return ids, fences
}
