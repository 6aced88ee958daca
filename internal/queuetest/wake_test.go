package queuetest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
	"github.com/onceq/onceq/schema"
)

// quiet is how long nothing must come for "no wake-up" to be believed; wake-ups
// are held back by 15 ms at most.
const quiet = 60 * time.Millisecond

// listener collects the wake-ups of a channel.
type listener struct {
	mu   sync.Mutex
	seen []string
	last time.Time
}

func (l *listener) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.seen
	l.seen = nil
	return seen
}

func (l *listener) count() (int, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seen), l.last
}

// listen collects what is notified on the channel; look, if not nil, runs after
// each wake-up, as a worker would look at the tables.
func listen(t testing.TB, pool *pgxpool.Pool, channel string, look func()) *listener {
	t.Helper()
	conn, err := pgx.ConnectConfig(context.Background(), pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(context.Background(), `LISTEN `+pgx.Identifier{channel}.Sanitize()); err != nil {
		t.Fatal(err)
	}
	l := &listener{last: time.Now()}
	ctx, cancel := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() {
		for {
			n, err := conn.WaitForNotification(ctx)
			if err != nil {
				return
			}
			l.mu.Lock()
			l.seen = append(l.seen, n.Payload)
			l.last = time.Now()
			l.mu.Unlock()
			if look != nil {
				look()
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		loop.Wait()
		_ = conn.Close(context.Background())
	})
	return l
}

// wantWakes fails the test unless exactly these queues are woken, once each.
func (l *listener) wantWakes(t testing.TB, why string, queues ...string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if n, _ := l.count(); n >= len(queues) {
			break
		}
	}
	l.settle()
	got := map[string]int{}
	for _, name := range l.take() {
		got[name]++
	}
	want := map[string]int{}
	for _, name := range queues {
		want[name]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: wake-ups by queue (-want +got):\n%s", why, diff)
	}
}

// settle returns once nothing has come for a while.
func (l *listener) settle() {
	begin := time.Now()
	for {
		_, last := l.count()
		if time.Since(last) > quiet && time.Since(begin) > quiet {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestWake(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	l := listen(t, pool, "onceq", nil)
	on := func(name string, req queue.Request) queue.Request { req.Queue = name; return req }

	accept(t, c, queue.Request{Type: "t"})
	l.wantWakes(t, "a plain acceptance", "default")
	accept(t, c, on("q1", invoice("k")))
	l.wantWakes(t, "an idempotent acceptance", "q1")
	accept(t, c, on("q2", notice("throttled")))
	l.wantWakes(t, "a throttled acceptance", "q2")
	long := strings.Repeat("🐘", 63) + "xyz"
	accept(t, c, queue.Request{Type: "t", Queue: long, Payload: text(1<<20 - 2)})
	l.wantWakes(t, "the longest name of a queue and the largest payload (B-063)", long)
	expired(t, pool, c, on("q3", invoice("expired")))
	l.wantWakes(t, "what will expire", "q3")
	accept(t, c, on("q3", invoice("expired")))
	l.wantWakes(t, "a takeover", "q3")
	past := queue.Request{Type: "t", Queue: "q4", RunAt: time.Now().Add(-time.Hour)}
	accept(t, c, past)
	l.wantWakes(t, "a run time that has passed", "q4")

	enqueue(t, c, on("q1", invoice("k")))
	l.wantWakes(t, "a replay")
	enqueue(t, c, on("q2", notice("throttled")))
	l.wantWakes(t, "a coalesced request")
	accept(t, c, queue.Request{Type: "t", RunAt: time.Now().Add(time.Hour)})
	l.wantWakes(t, "a scheduled job")
	other := on("q1", invoice("k"))
	other.Priority = 1
	if _, err := c.EnqueueWithResult(t.Context(), other); err == nil {
		t.Error("no conflict")
	}
	l.wantWakes(t, "a conflict")

	enqueueMany(t, c, []queue.Request{on("q1", invoice("k")), on("q2", notice("throttled")), {Type: "t", Queue: "q5", RunAt: time.Now().Add(time.Hour)}})
	l.wantWakes(t, "a batch without ready work")
	var reqs []queue.Request
	for i := range 90 {
		reqs = append(reqs, queue.Request{Type: "t", Queue: fmt.Sprint("many-", i%3)})
	}
	reqs = append(reqs, on("q1", invoice("k")), queue.Request{Type: "t", Queue: "many-later", RunAt: time.Now().Add(time.Hour)})
	enqueueMany(t, c, reqs)
	l.wantWakes(t, "a batch over three queues", "many-0", "many-1", "many-2")

	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		enqueueTx(t, c, tx, on("tx-1", invoice("tx")), queue.OutcomeAccepted)
		if _, err := c.EnqueueManyTx(t.Context(), tx, []queue.Request{on("tx-2", invoice("tx-2"))}); err != nil {
			return err
		}
		l.wantWakes(t, "before the commit")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l.wantWakes(t, "at the commit", "tx-1", "tx-2")
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		enqueueTx(t, c, tx, on("tx-3", invoice("tx-3")), queue.OutcomeAccepted)
		return errors.New("roll back")
	})
	if err == nil {
		t.Error("not rolled back")
	}
	l.wantWakes(t, "after a rollback")
}

func TestWake_pollOnly(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{PollOnly: true})
	l := listen(t, pool, "onceq", nil)

	for i := range 5 {
		accept(t, c, invoice(fmt.Sprint(i)))
	}
	enqueueMany(t, c, batch("b", 0, 10))
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		enqueueTx(t, c, tx, invoice("tx"), queue.OutcomeAccepted)
		_, err := c.EnqueueManyTx(t.Context(), tx, batch("btx", 0, 3))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	l.wantWakes(t, "polling only")
}

func TestWake_channelIsTheSchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	if err := schema.Migrate(t.Context(), pool, schema.Named("order")); err != nil {
		t.Fatal(err)
	}
	here, there := listen(t, pool, "order", nil), listen(t, pool, "onceq", nil)
	accept(t, newClient(t, pool, queue.Config{Schema: "order"}), queue.Request{Type: "t", Queue: "q"})
	here.wantWakes(t, "in its own schema", "q")
	there.wantWakes(t, "in another schema")
}

// A burst makes no more wake-ups than one in 10 ms, and the last acceptance is
// followed by one: whoever looks at the tables at each wake-up sees all in the end.
func TestWake_burst(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	alone := func(c *queue.Client) error {
		_, err := c.Enqueue(context.Background(), queue.Request{Type: "t", Queue: "burst"})
		return err
	}
	batched := func(c *queue.Client) error {
		_, err := c.EnqueueMany(context.Background(), []queue.Request{{Type: "t", Queue: "burst"}})
		return err
	}
	const accepts = 200
	for _, row := range []struct {
		name    string
		send    func(*queue.Client) error
		callers int
	}{
		{"alone, by one caller", alone, 1}, {"alone, by four callers", alone, 4}, {"in batches, by one caller", batched, 1}, {"in batches, by four callers", batched, 4},
	} {
		t.Run(row.name, func(t *testing.T) {
			pgtest.Exec(t, pool, `TRUNCATE onceq.job, onceq.pending`)
			c := newClient(t, pool, queue.Config{})
			visible := &lastLook{}
			l := listen(t, pool, "onceq", func() { visible.look(pool) })

			begin := time.Now()
			together(row.callers, func(int) {
				for range accepts / row.callers {
					if err := row.send(c); err != nil {
						t.Error(err)
					}
				}
			})
			pgtest.Await(t, "a wake-up after the last acceptance of a burst", func() bool { return visible.get() == accepts })
			l.settle()
			n, last := l.count()
			elapsed := last.Sub(begin)
			if bound := int(elapsed/(10*time.Millisecond)) + 2; n > bound {
				t.Errorf("%d wake-ups within %s, want at most %d", n, elapsed, bound)
			}
		})
	}

	t.Run("a second acceptance right after a wake-up is followed by another", func(t *testing.T) {
		pgtest.Exec(t, pool, `TRUNCATE onceq.job, onceq.pending`)
		c := newClient(t, pool, queue.Config{})
		visible := &lastLook{}
		l := listen(t, pool, "onceq", func() { visible.look(pool) })
		for round := range 20 {
			accept(t, c, queue.Request{Type: "t", Queue: "pairs"})
			pgtest.Await(t, "the wake-up of the first acceptance", func() bool { return visible.get() == 2*round+1 })
			accept(t, c, queue.Request{Type: "t", Queue: "pairs"})
			pgtest.Await(t, "a wake-up after the second acceptance", func() bool { return visible.get() == 2*round+2 })
			l.settle()
		}
	})

	t.Run("one queue's burst holds no other queue's wake-up back", func(t *testing.T) {
		c := newClient(t, pool, queue.Config{})
		l := listen(t, pool, "onceq", nil)
		names := []string{}
		for i := range 50 {
			name := fmt.Sprint("other-", i)
			names = append(names, name)
			accept(t, c, queue.Request{Type: "t", Queue: name})
		}
		l.wantWakes(t, "50 queues at once", names...)
	})
}

// Whatever makes a job ready within 10 ms of another wake-up of its queue is
// followed by a wake-up, when others can see the job. (In a caller's transaction
// that commits later the closing wake-up comes too early, and polling finds it.)
func TestWake_shortlyAfterAnother(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	past := func() time.Time { return time.Now().Add(-time.Hour) }

	for i, row := range []struct {
		name string
		send func(t *testing.T, name string)
	}{
		{"alone", func(t *testing.T, name string) { accept(t, c, queue.Request{Type: "t", Queue: name}) }},
		{"alone, with a run time that has passed", func(t *testing.T, name string) {
			accept(t, c, queue.Request{Type: "t", Queue: name, RunAt: past()})
		}},
		{"in a batch", func(t *testing.T, name string) { enqueueMany(t, c, []queue.Request{{Type: "t", Queue: name}}) }},
		{"in a batch, with a run time that has passed", func(t *testing.T, name string) {
			enqueueMany(t, c, []queue.Request{{Type: "t", Queue: name, RunAt: past()}})
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			name := fmt.Sprint("shortly-", i)
			ready := func() int { return pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.pending`) }
			visible := &lastLook{}
			l := listen(t, pool, "onceq", func() { visible.look(pool) })
			for range 5 {
				accept(t, c, queue.Request{Type: "t", Queue: name})
				first := ready()
				pgtest.Await(t, "the first wake-up", func() bool { return visible.get() == first })
				row.send(t, name)
				pgtest.Await(t, "a wake-up after the last job: whoever looks at each must see all", func() bool { return visible.get() == ready() })
				l.settle()
			}
		})
	}

	t.Run("before a transaction that rolls back", func(t *testing.T) {
		visible := &lastLook{}
		listen(t, pool, "onceq", func() { visible.look(pool) })
		for range 20 {
			accept(t, c, queue.Request{Type: "t", Queue: "undone"})
			accept(t, c, queue.Request{Type: "t", Queue: "undone"}) // is owed a wake-up
			for range 4 {
				time.Sleep(4 * time.Millisecond) // until a transaction may notify
				err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					enqueueTx(t, c, tx, queue.Request{Type: "t", Queue: "undone"}, queue.OutcomeAccepted)
					return errUndone
				})
				if !errors.Is(err, errUndone) {
					t.Fatal(err)
				}
			}
			want := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.pending`)
			pgtest.Await(t, "a wake-up after the second acceptance", func() bool { return visible.get() == want })
		}
	})

	t.Run("a batch with a run time that has passed wakes by itself", func(t *testing.T) {
		// A database of its own: a wake-up that is owed from before may still come.
		pool := pgtest.New(t)
		c := newClient(t, pool, queue.Config{})
		l := listen(t, pool, "onceq", nil)
		enqueueMany(t, c, []queue.Request{{Type: "t", Queue: "past", RunAt: past()}})
		l.wantWakes(t, "a job that is ready", "past")
	})
}

var errUndone = errors.New("undone")

// lastLook is what a worker saw when it last looked at the tables.
type lastLook struct {
	mu   sync.Mutex
	seen int
}

func (v *lastLook) look(pool *pgxpool.Pool) {
	var n int
	if err := pool.QueryRow(context.Background(), `SELECT count(*) FROM onceq.pending`).Scan(&n); err != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen = n
}

func (v *lastLook) get() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen
}
