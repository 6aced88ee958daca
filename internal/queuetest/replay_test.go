package queuetest_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onceq/onceq/internal/devpg"
	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// repeats are all the ways to ask again for what was accepted already.
func repeats(t testing.TB, c *queue.Client) map[string]func(context.Context, queue.Tx) error {
	t.Helper()
	accept(t, c, invoice("repeat"))
	accept(t, c, notice("repeat-throttle"))
	batch := []queue.Request{invoice("repeat"), notice("repeat-throttle"), invoice("repeat")}
	return map[string]func(context.Context, queue.Tx) error{
		"a replay": func(ctx context.Context, tx queue.Tx) error {
			_, err := c.EnqueueTx(ctx, tx, invoice("repeat"))
			return err
		},
		"a coalesced request": func(ctx context.Context, tx queue.Tx) error {
			_, err := c.EnqueueTx(ctx, tx, notice("repeat-throttle"))
			return err
		},
		"a batch of repeats": func(ctx context.Context, tx queue.Tx) error {
			_, err := c.EnqueueManyTx(ctx, tx, batch)
			return err
		},
	}
}

func TestClient_repeatWritesNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	for name, repeat := range repeats(t, c) {
		t.Run(name+" writes nothing, locks nothing and needs no transaction id", func(t *testing.T) {
			before := allRows(t, pool, "onceq")
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			if err := repeat(t.Context(), tx); err != nil {
				t.Fatalf("an identical repeat is not an error: %v", err)
			}
			var xid *string
			if err := tx.QueryRow(t.Context(), `SELECT pg_current_xact_id_if_assigned()::text`).Scan(&xid); err != nil {
				t.Fatal(err)
			}
			if xid != nil {
				t.Errorf("the repeat was given transaction id %s: it wrote or locked a row", *xid)
			}
			var exclusive int
			if err := tx.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()
				AND (locktype IN ('tuple', 'advisory', 'transactionid')
				OR locktype = 'relation' AND mode IN ('ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'))`).Scan(&exclusive); err != nil {
				t.Fatal(err)
			}
			if exclusive != 0 {
				t.Errorf("the repeat holds %d locks that others would have to wait for", exclusive)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantSameRows(t, pool, before)
		})
	}
}

func TestClient_repeatWritesNoWAL(t *testing.T) {
	t.Parallel()
	// With a higher level the background writer logs the running transactions.
	pool := pgtest.Quiet(t, devpg.Setting("wal_level", "minimal"), devpg.Setting("max_wal_senders", "0")).New(t)
	c := newClient(t, pool, queue.Config{})
	accept(t, c, invoice("wal"))
	// Of another client, which owes nobody a wake-up a moment later.
	accept(t, newClient(t, pool, queue.Config{PollOnly: true}), notice("wal-throttle"))
	again := func() {
		replay(t, c, invoice("wal"), enqueue(t, c, invoice("wal")).JobID)
		enqueue(t, c, notice("wal-throttle"))
		if _, err := c.EnqueueMany(t.Context(), []queue.Request{invoice("wal"), notice("wal-throttle"), invoice("wal")}); err != nil {
			t.Fatal(err)
		}
	}
	again() // what the server has to set up for the first time
	pgtest.Exec(t, pool, `CHECKPOINT`)
	before := pgtest.Scan[string](t, pool, `SELECT pg_current_wal_insert_lsn()::text`)
	for range 100 {
		again()
	}
	if after := pgtest.Scan[string](t, pool, `SELECT pg_current_wal_insert_lsn()::text`); after != before {
		t.Errorf("400 repeats wrote WAL: from %s to %s", before, after)
	}
}

func TestClient_replay(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	t.Run("never extends the retention and never changes the job", func(t *testing.T) {
		req := invoice("unchanged")
		req.Tags = []string{"second", "first"}
		id := accept(t, c, req)
		job, _ := c.Job(t.Context(), id)
		binding, _ := c.Binding(t.Context(), "", "unchanged")
		again := req
		again.Tags = []string{"first", "second", "first"}
		again.Payload = map[string]any{"invoice": 42.0}
		for range 3 {
			replay(t, c, again, id)
		}
		jobAfter, err := c.Job(t.Context(), id)
		if diff := cmp.Diff(job, jobAfter); err != nil || diff != "" {
			t.Errorf("a replay changed the job: %v (-before +after):\n%s", err, diff)
		}
		bindingAfter, err := c.Binding(t.Context(), "", "unchanged")
		if diff := cmp.Diff(binding, bindingAfter); err != nil || diff != "" {
			t.Errorf("a replay changed the binding: %v (-before +after):\n%s", err, diff)
		}
	})

	t.Run("names a job whose row is gone", func(t *testing.T) {
		id := accept(t, c, invoice("gone"))
		pgtest.Exec(t, pool, `DELETE FROM onceq.pending WHERE job_id = $1`, string(id))
		replay(t, c, invoice("gone"), id) // as if it were running or had ended
		pgtest.Exec(t, pool, `DELETE FROM onceq.job WHERE id = $1`, string(id))
		replay(t, c, invoice("gone"), id) // as if retention had cleaned it
	})

	t.Run("answers while the job waits, however long", func(t *testing.T) {
		req := invoice("scheduled")
		req.RunAt = time.Now().Add(30 * day)
		replay(t, c, req, accept(t, c, req))
	})

	t.Run("gives the id of the job that was stored, not of another payload", func(t *testing.T) {
		id := accept(t, c, invoice("stored")) // B-027
		other := invoice("stored")
		other.Payload = map[string]any{"invoice": 43}
		_, err := c.EnqueueWithResult(t.Context(), other)
		wantConflict(t, err, id, queue.FieldPayload)
		if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.job WHERE payload->>'invoice' = '43'`); n != 0 {
			t.Errorf("the refused payload was stored %d times", n)
		}
	})
}

// counting is a log handler that counts what is logged at all.
type counting struct {
	slog.Handler
	records *atomic.Int64
}

func (h counting) Handle(context.Context, slog.Record) error { h.records.Add(1); return nil }
func (h counting) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h counting) WithGroup(string) slog.Handler             { return h }

func TestClient_repeatsAreNotLogged(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	records := &atomic.Int64{}
	h := counting{slog.NewTextHandler(nil, nil), records}
	c := newClient(t, pool, queue.Config{Logger: slog.New(h)})

	accept(t, c, invoice("quiet"))
	accept(t, c, notice("quiet-throttle"))
	for range 50 {
		enqueue(t, c, invoice("quiet"))
		enqueue(t, c, notice("quiet-throttle"))
	}
	if n := records.Load(); n != 0 {
		t.Errorf("100 ordinary repeats made %d log lines at the default level, want none", n)
	}
}
