package queue

import (
	"context"
	"sync"
	"time"

	"github.com/onceq/onceq/db"
)

// wakeInterval is the shortest time between two notifications of one queue by
// one client: PostgreSQL lets transactions that notify commit one at a time.
const wakeInterval = 10 * time.Millisecond

// waker hands out the right to notify a queue's workers. The first acceptance
// after a quiet while notifies in its own statement, so that it costs no round
// trip and reaches the workers at commit; those that follow within the interval
// share one notification at its end. Notifications are hints: one that is lost
// costs a poll interval. A nil waker never notifies.
type waker struct {
	c     *Client
	mu    sync.Mutex
	last  map[string]time.Time // the last notification of a queue, sent or due
	armed map[string]bool      // a notification at the end of the interval is due
}

func newWaker(c *Client) *waker {
	return &waker{c: c, last: map[string]time.Time{}, armed: map[string]bool{}}
}

// wakeRight is the right to notify some queues now; others asked for must wait.
type wakeRight struct {
	w      *waker
	queues []string
	wait   []string
	before map[string]time.Time
}

// reserve asks for the right to notify queues that may gain ready work.
func (w *waker) reserve(queues ...string) wakeRight {
	right := wakeRight{w: w, queues: []string{}}
	if w == nil {
		return right
	}
	right.before = map[string]time.Time{}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(now)
	for _, queue := range queues {
		last := w.last[queue]
		if now.Sub(last) < wakeInterval {
			right.wait = append(right.wait, queue)
			continue
		}
		right.queues = append(right.queues, queue)
		right.before[queue] = last
		w.last[queue] = now
	}
	return right
}

// forget bounds the map: queues that were quiet for an interval need no entry.
func (w *waker) forget(now time.Time) {
	if len(w.last) < 1024 {
		return
	}
	for queue, last := range w.last {
		if now.Sub(last) >= wakeInterval {
			delete(w.last, queue)
		}
	}
}

// channel is what a single statement notifies on, nil without the right.
func (r wakeRight) channel() *string {
	if len(r.queues) == 0 {
		return nil
	}
	return &r.w.c.schema
}

// done ends the use of a right: woke tells that the statement notified, ready
// that it left ready work behind. An unused right is given back.
func (r wakeRight) done(woke, ready bool) {
	if r.w == nil {
		return
	}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if !woke {
		for queue, last := range r.before {
			r.w.last[queue] = last
		}
	}
	if !ready {
		return
	}
	for _, queue := range r.wait {
		r.w.arm(queue)
	}
}

// arm sends one notification when the interval of the queue ends.
func (w *waker) arm(queue string) {
	if w.armed[queue] {
		return
	}
	w.armed[queue] = true
	time.AfterFunc(time.Until(w.last[queue].Add(wakeInterval)), func() { w.send(queue) })
}

// send notifies, unless somebody has taken the right meanwhile: he may not use
// it, so the end of his interval is waited for.
func (w *waker) send(queue string) {
	w.mu.Lock()
	delete(w.armed, queue)
	if time.Since(w.last[queue]) < wakeInterval {
		w.arm(queue)
		w.mu.Unlock()
		return
	}
	w.last[queue] = time.Now()
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := w.c.own.Wake(ctx, db.WakeParams{Channel: w.c.schema, Queue: queue}); err != nil {
		w.c.log.Debug("wake-up not sent", "queue", queue, "error", err)
	}
}

// wakeNow notifies queues whose work an operator has just made ready, in a
// statement of its own; a queue that was notified a moment ago is notified again
// when its interval ends.
func (w *waker) wakeNow(ctx context.Context, queues ...string) {
	right := w.reserve(queues...)
	for _, queue := range right.queues {
		if err := w.c.own.Wake(ctx, db.WakeParams{Channel: w.c.schema, Queue: queue}); err != nil {
			w.c.log.Debug("wake-up not sent", "queue", queue, "error", err)
		}
	}
	right.done(true, true)
}
