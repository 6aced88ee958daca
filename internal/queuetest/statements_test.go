package queuetest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// What a warm client sends: one statement and one round trip for an acceptance
// and for a repeat, one more at most where a race was lost or a key taken over.
func TestClient_statements(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	setup := newClient(t, pool, queue.Config{})

	for _, cfg := range []queue.Config{{PollOnly: true}, {}} {
		other, sent, writes := observed(t, pool)
		c := newClient(t, other, cfg)
		// One queue a request, so that no wake-up of an earlier one is due.
		serial := 0
		own := func(req queue.Request) queue.Request {
			serial++
			req.Queue = fmt.Sprintf("q-%t-%d", cfg.PollOnly, serial)
			return req
		}
		key := func() string { serial++; return fmt.Sprintf("k-%t-%d", cfg.PollOnly, serial) }
		known := own(invoice(key()))
		knownNotice := own(notice(key()))

		for range 3 { // warms client and connection up
			enqueue(t, c, known)
			enqueue(t, c, knownNotice)
			enqueue(t, c, own(queue.Request{Type: "t"}))
			enqueue(t, c, own(invoice(key())))
			again := own(invoice(key()))
			expired(t, pool, setup, again)
			enqueue(t, c, again)
		}

		for _, row := range []struct {
			name    string
			most    int
			outcome queue.Outcome
			request func() queue.Request
		}{
			{"a plain acceptance", 1, queue.OutcomeAccepted, func() queue.Request { return own(queue.Request{Type: "t"}) }},
			{"an idempotent acceptance", 1, queue.OutcomeAccepted, func() queue.Request { return own(invoice(key())) }},
			{"a throttled acceptance", 1, queue.OutcomeAccepted, func() queue.Request { return own(notice(key())) }},
			{"a full acceptance", 1, queue.OutcomeAccepted, func() queue.Request { return own(everything(key())) }},
			{"a replay", 1, queue.OutcomeReplayed, func() queue.Request { return known }},
			{"a coalesced request", 1, queue.OutcomeCoalesced, func() queue.Request { return knownNotice }},
			{"a takeover of an expired key", 2, queue.OutcomeAccepted, func() queue.Request {
				req := own(invoice(key()))
				expired(t, pool, setup, req)
				return req
			}},
		} {
			t.Run(fmt.Sprintf("%s, polling only %t", row.name, cfg.PollOnly), func(t *testing.T) {
				for range 3 {
					req := row.request()
					trips := writes.Load()
					got := sent.during(func() {
						if res := enqueue(t, c, req); res.Outcome != row.outcome {
							t.Errorf("%s, want %s", res.Outcome, row.outcome)
						}
					})
					trips = writes.Load() - trips
					if len(got) > row.most || int(trips) > row.most {
						t.Errorf("%d statements and %d round trips, want at most %d:\n%q", len(got), trips, row.most, got)
					}
				}
			})
		}

		t.Run(fmt.Sprintf("a lost race, polling only %t", cfg.PollOnly), func(t *testing.T) {
			req := own(invoice(key()))
			tx, first := held(t, setup, pool, req)
			got := sent.during(func() {
				second := sendBehind(t, pool, func() (queue.Result, error) { return c.EnqueueWithResult(context.Background(), req) })
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				if res := <-second; res.err != nil || res.Outcome != queue.OutcomeReplayed || res.JobID != first {
					t.Errorf("the loser is told %+v", res)
				}
			})
			if len(got) > 2 {
				t.Errorf("%d statements, want at most 2:\n%q", len(got), got)
			}
		})

		t.Run(fmt.Sprintf("in a caller's transaction nothing is added, polling only %t", cfg.PollOnly), func(t *testing.T) {
			err := pgx.BeginFunc(t.Context(), other, func(tx pgx.Tx) error {
				for _, req := range []queue.Request{own(queue.Request{Type: "t"}), own(invoice(key())), known, knownNotice} {
					got := sent.during(func() {
						if _, err := c.EnqueueTx(t.Context(), tx, req); err != nil {
							t.Error(err)
						}
					})
					if len(got) != 1 {
						t.Errorf("%d statements, want 1:\n%q", len(got), got)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A batch is set-based: the number of statements and of round trips does not
// grow with it.
func TestClient_batchStatements(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	other, sent, writes := observed(t, pool)
	c := newClient(t, other, queue.Config{PollOnly: true})

	mixed := func(prefix string, n int) []queue.Request {
		reqs := batch(prefix, 0, n)
		for i := range reqs {
			reqs[i].Queue = fmt.Sprint("q", i%7)
			switch i % 4 {
			case 1:
				reqs[i].Admission = nil
			case 2:
				reqs[i].Admission = queue.Throttle{Key: fmt.Sprint(prefix, i), Window: day}
			}
		}
		return reqs
	}
	// count is of the try that took the fewest statements: where the server paused
	// for longer than the slack, it looked like a wait, and the batch was asked again.
	count := func(prepare func(try int) []queue.Request, send func([]queue.Request)) (statements int, trips int64) {
		for try := range 5 {
			reqs := prepare(try)
			before, began := writes.Load(), time.Now()
			sent := len(sent.during(func() { send(reqs) }))
			took := time.Since(began)
			if try == 0 || sent < statements {
				statements, trips = sent, writes.Load()-before
			}
			if took < slack {
				break
			}
		}
		return statements, trips
	}
	send := map[string]func(reqs []queue.Request){
		"alone": func(reqs []queue.Request) { enqueueMany(t, c, reqs) },
		"in a transaction": func(reqs []queue.Request) {
			if err := pgx.BeginFunc(t.Context(), other, func(tx pgx.Tx) error { _, err := c.EnqueueManyTx(t.Context(), tx, reqs); return err }); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, send := range send {
		for i := range 3 {
			send(mixed(fmt.Sprint(name, "-warm-", i), 8))
			send(mixed(fmt.Sprint(name, "-warm-", i), 8))
		}
		for _, row := range []struct {
			name    string
			prepare func(prefix string, n int) []queue.Request
		}{
			{"fresh requests", func(prefix string, n int) []queue.Request { return mixed(prefix, n) }},
			{"repeats", func(prefix string, n int) []queue.Request {
				reqs := mixed(prefix, n)
				for i := range reqs {
					if reqs[i].Admission == nil {
						reqs[i] = reqs[0]
					}
				}
				enqueueMany(t, c, reqs)
				return reqs
			}},
			{"expired keys", func(prefix string, n int) []queue.Request {
				reqs := mixed(prefix, n)
				enqueueMany(t, c, reqs)
				pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp()`)
				return reqs
			}},
		} {
			t.Run(row.name+" "+name, func(t *testing.T) {
				seen := map[int]int{}
				for i, n := range []int{8, 100, 1000} {
					statements, trips := count(func(try int) []queue.Request {
						return row.prepare(fmt.Sprint(name, row.name, i, "-", try, "-"), n)
					}, send)
					seen[n] = statements
					if trips > int64(statements)+200 { // a large batch is written in several pieces
						t.Errorf("%d requests: %d statements but %d writes", n, statements, trips)
					}
				}
				if seen[1000] > seen[8] || seen[1000] > seen[100] {
					t.Errorf("the number of statements grows with the batch: %v", seen)
				}
			})
		}
	}
}
