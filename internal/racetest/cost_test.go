package racetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// What a request costs is counted, not timed: each statement is a round trip.
func TestClient_statements(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	trace := newTracer()
	c := newClient(t, pgtest.Reconnect(t, pool, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = trace }), queue.Config{PollOnly: true})
	other := newClient(t, pool, queue.Config{PollOnly: true})
	accept(t, c, order(-1)) // the schema's version is looked up once for each client

	enqueue := func(req queue.Request, outcome queue.Outcome) func(t *testing.T) {
		return func(t *testing.T) {
			if err := want(outcome)(c.EnqueueWithResult(t.Context(), req)); err != nil {
				t.Error(err)
			}
		}
	}
	thousand := make([]queue.Request, 1000)
	used := 1000
	many := func(t *testing.T) {
		if _, err := c.EnqueueMany(t.Context(), thousand); err != nil {
			t.Error(err)
		}
	}

	for _, row := range []struct {
		name string
		do   func(t *testing.T)
		want []string
	}{
		{"a plain request is one statement", enqueue(queue.Request{Type: "plain"}, queue.OutcomeAccepted), []string{"EnqueuePlain"}},
		{"an acceptance is one statement", enqueue(order(1), queue.OutcomeAccepted), []string{"Enqueue"}},
		{"a replay is one statement", enqueue(order(1), queue.OutcomeReplayed), []string{"Enqueue"}},
		{"an acceptance under a throttle is one statement", enqueue(reminder(), queue.OutcomeAccepted), []string{"Enqueue"}},
		{"a coalesced request is one statement", enqueue(reminder(), queue.OutcomeCoalesced), []string{"Enqueue"}},
		{"a lost race is two statements", func(t *testing.T) {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			if _, err := other.EnqueueTx(t.Context(), tx, order(2)); err != nil {
				t.Fatal(err)
			}
			answer := make(chan error, 1)
			go func() { answer <- want(queue.OutcomeReplayed)(c.EnqueueWithResult(t.Context(), order(2))) }()
			pgtest.AwaitBlocked(t, pool, 1)
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-answer; err != nil {
				t.Error(err)
			}
		}, []string{"Enqueue", "EnqueueAgain"}},
		{"a takeover of an expired key is two statements", func(t *testing.T) {
			pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp()`)
			enqueue(order(1), queue.OutcomeAccepted)(t)
		}, []string{"Enqueue", "EnqueueAgain"}},
		{"a batch of 1,000 acceptances is one statement", func(t *testing.T) {
			for i := range thousand {
				thousand[i] = order(used)
				used++
			}
			many(t)
		}, []string{"EnqueueMany"}},
		{"a batch of 1,000 takeovers is one statement", func(t *testing.T) {
			pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp()`)
			many(t)
		}, []string{"EnqueueMany"}},
		{"a batch of 1,000 replays is one statement", many, []string{"EnqueueMany"}},
		{"another is one look", many, []string{"EnqueueManyRepeats"}},
		{"an empty batch is none", func(t *testing.T) {
			if _, err := c.EnqueueMany(t.Context(), nil); err != nil {
				t.Error(err)
			}
		}, []string{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			for try := 1; ; try++ {
				began := time.Now()
				diff := cmp.Diff(row.want, trace.during(func() { row.do(t) }))
				if diff == "" {
					return
				}
				// The batches can be sent again as they are.
				if !strings.HasPrefix(row.name, "a batch of 1,000") || time.Since(began) < slack || try == 5 {
					t.Fatalf("%s (-want +sent):\n%s", row.name, diff)
				}
			}
		})
	}

	t.Run("in a caller's transaction a request is one statement and a batch three", func(t *testing.T) {
		tx, err := pgtest.Reconnect(t, pool, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = trace }).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		sent := trace.during(func() {
			if _, err := other.EnqueueTx(t.Context(), tx, order(3)); err != nil {
				t.Fatal(err)
			}
			if _, err := other.EnqueueManyTx(t.Context(), tx, []queue.Request{order(4), order(3)}); err != nil {
				t.Fatal(err)
			}
		})
		if diff := cmp.Diff([]string{"Enqueue", "Savepoint", "EnqueueMany", "ReleaseSavepoint"}, sent); diff != "" {
			t.Errorf("a batch works under one savepoint (-want +sent):\n%s", diff)
		}
	})
}

// The WAL of an acceptance is its three rows, an entry in the primary key of
// each, the confirmation of the binding, which might have met another, and the
// commit. Whoever adds a row or an index sees it here.
func TestClient_walOfAnAcceptance(t *testing.T) {
	t.Parallel()
	pool := quiet(t)
	if !extension(t, pool, "pg_walinspect") {
		t.Fatal("pg_walinspect, one of PostgreSQL's contrib modules, is not installed: the records of the WAL can't be counted")
	}
	c := newClient(t, pool, queue.Config{PollOnly: true})
	waking := newClient(t, pool, queue.Config{})
	brief := func(i int) queue.Request {
		return queue.Request{Type: "brief", Admission: queue.Idempotency{Key: fmt.Sprint("brief-", i), TTL: time.Second}}
	}
	for i := range 20 { // the first rows also make the tables' pages
		accept(t, c, brief(i))
	}
	accepted := want(queue.OutcomeAccepted)
	keyed := []string{"3 Btree INSERT_LEAF", "1 Heap HEAP_CONFIRM", "3 Heap INSERT", "1 Transaction COMMIT"}
	for n, row := range []struct {
		name  string
		do    func(ctx context.Context, i int) error
		want  []string
		bytes int64 // measured with PostgreSQL 15
	}{
		{"of a plain request", func(ctx context.Context, _ int) error {
			return accepted(c.EnqueueWithResult(ctx, queue.Request{Type: "plain"}))
		}, []string{"2 Btree INSERT_LEAF", "2 Heap INSERT", "1 Transaction COMMIT"}, 433},
		{"of a keyed request", func(ctx context.Context, i int) error {
			return accepted(c.EnqueueWithResult(ctx, order(i)))
		}, keyed, 845},
		{"of one that wakes workers, which is no more", func(ctx context.Context, i int) error {
			req := order(i)
			req.Queue = fmt.Sprint("queue", i) // one that was not woken a moment ago
			return accepted(waking.EnqueueWithResult(ctx, req))
		}, keyed, 845},
		{"of a batch of one, which is no more", func(ctx context.Context, i int) error {
			results, err := c.EnqueueMany(ctx, []queue.Request{order(i)})
			if err != nil {
				return err
			}
			return accepted(results[0], nil)
		}, keyed, 845},
		{"of a takeover", func(ctx context.Context, i int) error {
			return accepted(c.EnqueueWithResult(ctx, brief(i%20)))
		}, []string{"3 Btree INSERT_LEAF", "1 Heap DELETE", "1 Heap HEAP_CONFIRM", "3 Heap INSERT", "1 Heap LOCK", "1 Transaction COMMIT"}, 953},
	} {
		t.Run(row.name, func(t *testing.T) {
			pgtest.Await(t, "the brief keys to expire", func() bool {
				return pgtest.Scan[bool](t, pool, `SELECT bool_and(expires_at <= clock_timestamp()) FROM onceq.binding WHERE expires_at - accepted_at = interval '1 second'`)
			})
			for i := range 11 {
				before := walPosition(t, pool)
				if err := row.do(t.Context(), 100*(n+1)+i); err != nil {
					t.Fatal(err)
				}
				kinds, bytes := walKinds(walSince(t, pool, before))
				if i == 0 {
					continue // statements prepared, catalogues read
				}
				if diff := cmp.Diff(row.want, kinds); diff != "" {
					t.Fatalf("the WAL %s holds other records than before (-want +got):\n%s", row.name, diff)
				}
				if bytes < row.bytes*95/100 || bytes > row.bytes*105/100 {
					t.Fatalf("the WAL %s is %d bytes; it was %d", row.name, bytes, row.bytes)
				}
			}
		})
	}
}

// walKinds counts the records of each kind, and their bytes together. Dead rows
// that PostgreSQL clears from a full page in passing are nobody's.
func walKinds(wal []walRecord) (kinds []string, bytes int64) {
	count := map[string]int{}
	for _, r := range wal {
		if strings.HasPrefix(r.Type, "PRUNE") {
			continue
		}
		count[r.Manager+" "+strings.TrimSuffix(r.Type, "+INIT")]++ // the first of a page
		bytes += r.Bytes
	}
	for _, kind := range slices.Sorted(maps.Keys(count)) {
		kinds = append(kinds, fmt.Sprint(count[kind], " ", kind))
	}
	return kinds, bytes
}
