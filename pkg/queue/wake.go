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

// wakeGrace is how long after the interval an acceptance may come that notifies
// for those before it, which saves a statement of its own, with a commit of its
// own: under a steady load all of them.
const wakeGrace = 5 * time.Millisecond

// waker hands out the right to notify a queue's workers. The first acceptance
// after a quiet while notifies in its own statement, so that it costs no round
// trip and reaches the workers at commit; those that follow within the interval
// share one notification after its end, which the next acceptance makes, or, when
// none comes, a statement for it alone. Notifications are hints: one that is lost
// costs a poll interval. A nil waker never notifies.
type waker struct {
	c    *Client
	mu   sync.Mutex
	last map[string]time.Time // the last notification of a queue, sent or due
	owed map[string]*owed
}

// owed are the acceptances of a queue that nothing was notified for yet.
type owed struct {
	count int  // all since the first of them
	told  int  // how many of these a notification has covered
	armed bool // a timer will notify for the others
	late  bool // it came while somebody held the right
}

func newWaker(c *Client) *waker {
	return &waker{c: c, last: map[string]time.Time{}, owed: map[string]*owed{}}
}

// wakeRight is the right to notify some queues now; others asked for must wait.
type wakeRight struct {
	w       *waker
	at      time.Time // when it was given
	granted []grant
	wait    []string
	// pending tells that the statement's transaction goes on, so its notification
	// may come late or never.
	pending bool
}

// grant is the right for one queue.
type grant struct {
	queue  string
	before time.Time // its last notification, to come back if the right is not used
	// owed and covers tell which acceptances were visible before the right is used,
	// so that its notification is theirs, too.
	owed   *owed
	covers int
}

// reserve asks for the right to notify queues that may gain ready work.
func (w *waker) reserve(queues ...string) wakeRight {
	if w == nil {
		return wakeRight{}
	}
	right := wakeRight{w: w, at: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(right.at)
	for _, queue := range queues {
		last := w.last[queue]
		if right.at.Sub(last) < wakeInterval {
			right.wait = append(right.wait, queue)
			continue
		}
		g := grant{queue: queue, before: last, owed: w.owed[queue]}
		if g.owed != nil {
			g.covers = g.owed.count
		}
		right.granted = append(right.granted, g)
		w.last[queue] = right.at
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
	if len(r.granted) == 0 {
		return nil
	}
	return &r.w.c.schema
}

// queues are those that may be notified.
func (r wakeRight) queues() []string {
	names := make([]string, len(r.granted))
	for i, g := range r.granted {
		names[i] = g.queue
	}
	return names
}

// uncommitted is the right for a statement in a transaction that goes on: its
// notification covers nobody else.
func (r wakeRight) uncommitted() wakeRight {
	r.pending = true
	return r
}

// done ends the use of a right: woken is how many queues the statement notified,
// ready tells that it left ready work behind. An unused right is given back. Where
// not all were notified nobody knows which, so nothing is covered.
func (r wakeRight) done(woken int64, ready bool) {
	if r.w == nil {
		return
	}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	for _, g := range r.granted {
		switch {
		case woken == 0 && r.w.last[g.queue].Equal(r.at): // else another's by now
			r.w.last[g.queue] = g.before
			if o := r.w.owed[g.queue]; o != nil && o.late && r.w.take(g.queue) {
				go r.w.notify(g.queue)
			}
		case woken == int64(len(r.granted)) && g.owed != nil && !r.pending:
			g.owed.told = max(g.owed.told, g.covers)
		}
	}
	if !ready {
		return
	}
	for _, queue := range r.wait {
		r.w.arm(queue)
	}
}

// arm has one notification sent after the interval of the queue.
func (w *waker) arm(queue string) {
	o := w.owed[queue]
	if o == nil {
		o = &owed{}
		w.owed[queue] = o
	}
	o.count++
	w.start(queue, o)
}

func (w *waker) start(queue string, o *owed) {
	if o.armed {
		return
	}
	o.armed = true
	time.AfterFunc(time.Until(w.last[queue].Add(wakeInterval+wakeGrace)), func() { w.send(queue) })
}

// send notifies, unless an acceptance has done so. If somebody holds the right
// meanwhile, he may not use it, so it is waited for that he gives it back, or for
// the end of his interval.
func (w *waker) send(queue string) {
	w.mu.Lock()
	o := w.owed[queue]
	if o == nil { // sent when a right was given back
		w.mu.Unlock()
		return
	}
	o.armed = false
	due := w.take(queue)
	if !due && w.owed[queue] == o {
		o.late = true
		w.start(queue, o)
	}
	w.mu.Unlock()
	if due {
		w.notify(queue)
	}
}

// take takes the right to notify for what is owed, if there is anything and the
// right is free.
func (w *waker) take(queue string) bool {
	o := w.owed[queue]
	if o.count > o.told && time.Since(w.last[queue]) < wakeInterval {
		return false
	}
	delete(w.owed, queue)
	if o.count == o.told {
		return false
	}
	w.last[queue] = time.Now()
	return true
}

func (w *waker) notify(queue string) {
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
	var woken int64
	for _, queue := range right.queues() {
		if err := w.c.own.Wake(ctx, db.WakeParams{Channel: w.c.schema, Queue: queue}); err != nil {
			w.c.log.Debug("wake-up not sent", "queue", queue, "error", err)
			continue
		}
		woken++
	}
	right.done(woken, true)
}
