package queue

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onceq/onceq/db"
)

// wakes stands in for PostgreSQL: it notes when a wake-up came alone, in
// milliseconds.
type wakes struct {
	db.DBTX
	began time.Time
	mu    sync.Mutex
	at    []int64
}

func (w *wakes) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = append(w.at, time.Since(w.began).Milliseconds())
	return pgconn.CommandTag{}, nil
}

func (w *wakes) QueryRow(context.Context, string, ...any) pgx.Row { panic("a wake-up returns no row") }

// When the wake-ups are sent that no acceptance carries. The clock is the bubble's,
// so every time is exact.
func TestWaker(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		do     func(w *waker, accept func())
		inline int     // acceptances that notified
		alone  []int64 // wake-ups by themselves
	}{
		{"one acceptance carries its own", func(_ *waker, accept func()) { accept() }, 1, nil},
		{"those that follow at once share one", func(_ *waker, accept func()) { accept(); accept(); accept() }, 1, []int64{15}},
		{"under a steady load the acceptances carry all but the last", func(_ *waker, accept func()) {
			for range 100 {
				accept()
				time.Sleep(time.Millisecond)
			}
		}, 10, []int64{105}},
		{"one that comes within the grace carries those before it", func(_ *waker, accept func()) {
			accept()
			accept()
			time.Sleep(14 * time.Millisecond)
			accept()
		}, 2, nil},
		{"a right that is not used leaves it to the timer", func(w *waker, accept func()) {
			accept()
			accept()
			time.Sleep(10 * time.Millisecond)
			w.reserve("q").done(0, false)
		}, 1, []int64{15}},
		{"a right covers what was visible before it alone", func(w *waker, accept func()) {
			accept()
			accept()
			time.Sleep(10 * time.Millisecond)
			right := w.reserve("q")
			accept() // its commit may come after the notification of the right
			right.done(1, true)
		}, 1, []int64{25}},
		{"two rights that cover the same cover it once", func(w *waker, accept func()) {
			accept()
			accept()
			time.Sleep(10 * time.Millisecond)
			first := w.reserve("q")
			time.Sleep(10 * time.Millisecond)
			second := w.reserve("q")
			first.done(1, true)
			second.done(1, true)
			accept()
		}, 1, []int64{35}},
		{"a right that the next one has overtaken gives nothing back", func(w *waker, accept func()) {
			first := w.reserve("q")
			time.Sleep(10 * time.Millisecond)
			accept()
			first.done(0, false)
			accept()
		}, 1, []int64{25}},
		{"a batch that may not have notified a queue leaves it to the timer", func(w *waker, accept func()) {
			accept()
			accept()
			time.Sleep(10 * time.Millisecond)
			w.reserve("q", "other").done(1, true)
		}, 1, []int64{25}},
		{"a batch that notified all covers all", func(w *waker, accept func()) {
			accept()
			accept()
			time.Sleep(10 * time.Millisecond)
			w.reserve("q", "other").done(2, true)
		}, 1, nil},
		{"a transaction that goes on covers nobody", func(w *waker, accept func()) {
			accept()
			accept()
			time.Sleep(10 * time.Millisecond)
			w.reserve("q").uncommitted().done(1, true)
		}, 1, []int64{25}},
		{"rights that are given back, one after the other, hold nobody up", func(w *waker, accept func()) {
			for at := range 100 {
				right := w.reserve("q")
				time.Sleep(time.Millisecond)
				if at == 0 {
					accept()
				}
				time.Sleep(time.Millisecond)
				right.done(0, false)
			}
		}, 0, []int64{16}},
		{"a right that is held for long keeps nobody waiting, and covers nothing later", func(w *waker, accept func()) {
			accept()
			accept()
			time.Sleep(10 * time.Millisecond)
			right := w.reserve("q")
			time.Sleep(18 * time.Millisecond) // at 25 a wake-up by itself
			accept()
			right.done(1, true)
		}, 1, []int64{25, 40}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent := &wakes{began: time.Now()}
				w := newWaker(&Client{own: db.New(sent), schema: "onceq", log: slog.New(slog.DiscardHandler)})
				inline := 0
				row.do(w, func() {
					right := w.reserve("q")
					woke := right.channel() != nil
					if woke {
						inline++
					}
					right.done(int64(len(right.granted)), true)
				})
				time.Sleep(time.Second)
				synctest.Wait()
				if inline != row.inline || !slices.Equal(sent.at, row.alone) {
					t.Errorf("%d acceptances notified and wake-ups came alone at %v ms; want %d and %v", inline, sent.at, row.inline, row.alone)
				}
				if len(w.owed) > 0 {
					t.Errorf("%d queues are still kept", len(w.owed))
				}
			})
		})
	}
}
