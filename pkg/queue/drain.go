package queue

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// claimGrace is how long a claim on its way may take once the worker stops.
	claimGrace = 5 * time.Second
	// unwindTimeout is how long handlers may take to return once their contexts
	// have ended, and final writes to be answered.
	unwindTimeout = 10 * time.Second
	// afterwards is how long what only waited for PostgreSQL needs to end.
	afterwards = time.Second
)

// drain waits until nothing is claimed any more, all handlers have returned and
// all final writes are made. It ends the handlers' contexts when their time is
// over, gives them a moment to return, and then gives up.
func (w *Worker) drain(feeders *sync.WaitGroup, completing <-chan struct{}, cancelHandlers context.CancelCauseFunc, giveUp func()) error {
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		feeders.Wait()
		w.attempts.Wait()
		close(w.completions.ends)
		<-completing
	}()
	if within(finished, w.cfg.ShutdownTimeout) {
		return w.unrecorded()
	}
	cancelHandlers(errShutdown)
	if within(finished, unwindTimeout) {
		return w.unrecorded()
	}
	giveUp()
	if within(finished, afterwards) {
		return w.unrecorded()
	}
	return fmt.Errorf("queue: run worker: %d handlers did not return after their contexts had ended", len(w.leases.all()))
}

// unrecorded tells of final writes that were given up while the worker stopped.
func (w *Worker) unrecorded() error {
	if n := w.lost.Load(); n > 0 {
		return fmt.Errorf("queue: run worker: PostgreSQL did not answer; the ends of %d jobs are not recorded", n)
	}
	return nil
}

// within waits for done, at most d.
func within(done <-chan struct{}, d time.Duration) bool {
	limit := time.NewTimer(d)
	defer limit.Stop()
	select {
	case <-done:
		return true
	case <-limit.C:
		return false
	}
}
