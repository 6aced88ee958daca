package racetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

func order(i int) queue.Request {
	return queue.Request{Type: "order.place", Payload: map[string]int{"order": i}, Admission: queue.Idempotency{Key: fmt.Sprintf("order-%d", i)}}
}

func reminder() queue.Request {
	return queue.Request{Type: "reminder.send", Admission: queue.Throttle{Key: "reminder", Window: day}}
}

// A replay is told apart from a write by PostgreSQL itself: on a server where
// nothing else happens, its WAL, its transaction ids, its rows and what it
// notifies are as they were before.
func TestClient_replayLeavesNoTrace(t *testing.T) {
	t.Parallel()
	pool := quiet(t)
	o := observe(t, pool)
	first := newClient(t, pool, queue.Config{PollOnly: true}) // wakes nobody later on
	c := newClient(t, pool, queue.Config{})
	rotated := newClient(t, pool, queue.Config{KeySecret: []byte("sixteen bytes or more"), PreviousKeySecrets: [][]byte{nil}})
	batch := make([]queue.Request, 100)
	for i := range batch {
		batch[i] = order(i)
		accept(t, first, batch[i])
	}
	accept(t, first, reminder())
	other := order(0)
	other.Payload = nil
	// What the server sets up or notes at a first look is no part of a replay.
	o.take(t)

	t.Run("the queue has no sequence that a request could advance", func(t *testing.T) {
		if found := pgtest.List[string](t, pool, `SELECT relname::text FROM pg_class
			WHERE relnamespace = 'onceq'::regnamespace AND relkind = 'S' AND relname NOT LIKE 'goose\_version%'`); len(found) > 0 {
			t.Errorf("enqueue uses no sequences, but there are %q", found)
		}
	})

	for _, way := range []struct {
		name string
		ask  func(context.Context) error
	}{
		{"a replay", func(ctx context.Context) error {
			return want(queue.OutcomeReplayed)(c.EnqueueWithResult(ctx, order(7)))
		}},
		{"a coalesced request", func(ctx context.Context) error {
			return want(queue.OutcomeCoalesced)(c.EnqueueWithResult(ctx, reminder()))
		}},
		{"a conflict", func(ctx context.Context) error {
			if _, err := c.EnqueueWithResult(ctx, other); !isConflict(err) {
				return fmt.Errorf("not a conflict: %w", err)
			}
			return nil
		}},
		{"a replay while a secret is rotated", func(ctx context.Context) error {
			return want(queue.OutcomeReplayed)(rotated.EnqueueWithResult(ctx, order(7)))
		}},
		{"a batch of 100 replays", func(ctx context.Context) error { return wantAll(c.EnqueueMany(ctx, batch)) }},
		{"a replay in a caller's transaction at read committed", inTx(pool, pgx.ReadCommitted, func(ctx context.Context, tx pgx.Tx) error {
			return want(queue.OutcomeReplayed)(c.EnqueueTx(ctx, tx, order(7)))
		})},
		{"a replay in a caller's transaction at serializable", inTx(pool, pgx.Serializable, func(ctx context.Context, tx pgx.Tx) error {
			return want(queue.OutcomeReplayed)(c.EnqueueTx(ctx, tx, order(7)))
		})},
		{"a batch of 100 replays in a caller's transaction", inTx(pool, pgx.RepeatableRead, func(ctx context.Context, tx pgx.Tx) error {
			return wantAll(c.EnqueueManyTx(ctx, tx, batch))
		})},
	} {
		t.Run("200 times "+way.name, func(t *testing.T) {
			// Long enough to have met each statement: the first look at a function
			// may make the server tidy up a page of its catalog.
			for range 20 {
				if err := way.ask(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			o.wantUntouched(t, "200 times "+way.name, func() {
				for range 200 {
					if err := way.ask(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}

	t.Run("replays right after an acceptance add no wake-up to its own", func(t *testing.T) {
		heard := len(o.listen(t))
		accept(t, c, order(1000))
		next := nextXID(t, pool)
		for began := time.Now(); time.Since(began) < 50*time.Millisecond; { // some intervals between wake-ups
			if err := want(queue.OutcomeReplayed)(c.EnqueueWithResult(t.Context(), order(7))); err != nil {
				t.Fatal(err)
			}
		}
		if more := o.listen(t)[heard:]; len(more) != 1 {
			t.Errorf("an acceptance wakes its queue once, a replay wakes nobody: heard %q", more)
		}
		if after := nextXID(t, pool); after != next {
			t.Errorf("a replay needs no transaction id: the next one was %s and is %s", next, after)
		}
	})

	// Were the measure blind, all of the above would pass.
	for _, control := range []struct{ name, sql, fields string }{
		{"an UPDATE moves the WAL, takes a transaction id and shows in row and page", `UPDATE onceq.binding SET dead = dead WHERE mode = 3`, "WAL NextXID Rows Pages"},
		{"a row lock moves the WAL, takes a transaction id and shows as xmax", `SELECT FROM onceq.binding WHERE mode = 3 FOR UPDATE`, "WAL NextXID Rows Pages"},
		{"a notification is heard", `SELECT pg_notify('onceq', 'control')`, "Heard"},
		{"a transaction id alone is seen", `SELECT pg_current_xact_id()`, "NextXID"},
		{"a sequence that advances is seen", `SELECT nextval('onceq.goose_version_id_seq')`, "Sequences"},
	} {
		t.Run("control: "+control.name, func(t *testing.T) {
			before := reflect.ValueOf(o.take(t))
			pgtest.Exec(t, pool, control.sql)
			after := reflect.ValueOf(o.take(t))
			for _, field := range strings.Fields(control.fields) {
				if field == "Pages" && !o.pages {
					continue
				}
				if reflect.DeepEqual(before.FieldByName(field).Interface(), after.FieldByName(field).Interface()) {
					t.Errorf("the test is blind: %s does not show in %s", control.sql, field)
				}
			}
		})
	}
}

// want turns an answer with another outcome into an error.
func want(outcome queue.Outcome) func(queue.Result, error) error {
	return func(res queue.Result, err error) error {
		if err != nil || res.Outcome != outcome || res.JobID == "" {
			return fmt.Errorf("want %s, got %+v, %w", outcome, res, err)
		}
		return nil
	}
}

func wantAll(results []queue.Result, err error) error {
	if err != nil {
		return err
	}
	for _, res := range results {
		if err := want(queue.OutcomeReplayed)(res, nil); err != nil {
			return err
		}
	}
	return nil
}

func isConflict(err error) bool {
	_, ok := asConflict(err)
	return ok
}

func asConflict(err error) (*queue.EnqueueIdempotencyConflictError, bool) {
	return errors.AsType[*queue.EnqueueIdempotencyConflictError](err)
}

// inTx asks in a transaction of its own, which must need no transaction id.
func inTx(pool *pgxpool.Pool, level pgx.TxIsoLevel, ask func(context.Context, pgx.Tx) error) func(context.Context) error {
	return func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			if err := ask(ctx, tx); err != nil {
				return err
			}
			var xid *string
			if err := tx.QueryRow(ctx, `SELECT pg_current_xact_id_if_assigned()::text`).Scan(&xid); err != nil {
				return err
			}
			if xid != nil {
				return fmt.Errorf("a replay needs no transaction id, this one got %s", *xid)
			}
			return nil
		})
	}
}
