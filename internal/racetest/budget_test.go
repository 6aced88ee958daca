package racetest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// trips counts round trips on the wire: answers that come after something was
// written. pgx may be reading already when it writes.
type trips struct{ n atomic.Int64 }

func (c *trips) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	return &tripConn{Conn: conn, count: c}, err
}

type tripConn struct {
	net.Conn
	count *trips
	wrote atomic.Bool
}

func (c *tripConn) Write(b []byte) (int, error) {
	c.wrote.Store(true)
	return c.Conn.Write(b)
}

func (c *tripConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.wrote.Swap(false) {
		c.count.n.Add(1)
	}
	return n, err
}

// budget is what an operation may cost, all of it counted: round trips, and the
// records of the WAL for the queue's tables and their indexes, which are its rows.
type budget struct {
	Trips int64
	WAL   []string
}

func (a *ledger) measure(t *testing.T, do func(ctx context.Context) error) (cost budget, took time.Duration) {
	t.Helper()
	from, before, began := walPosition(t, a.pool), a.trips.n.Load(), time.Now()
	if err := do(t.Context()); err != nil {
		t.Fatal(err)
	}
	took = time.Since(began)
	return budget{a.trips.n.Load() - before, walByTable(t, a.pool, from)}, took
}

// ledger measures on a server where nothing else happens.
type ledger struct {
	pool   *pgxpool.Pool
	trips  *trips
	client *queue.Client
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	a := &ledger{pool: quiet(t), trips: &trips{}}
	if !extension(t, a.pool, "pg_walinspect") {
		t.Fatal("pg_walinspect, one of PostgreSQL's contrib modules, is not installed: the records of the WAL can't be counted")
	}
	a.client = newClient(t, pgtest.Reconnect(t, a.pool, func(cfg *pgxpool.Config) {
		pgtest.Unpinged(cfg)
		cfg.ConnConfig.DialFunc = a.trips.dial
		cfg.MaxConns = 1
	}), queue.Config{PollOnly: true})
	return a
}

// walByTable counts the records since a position that change a page of the queue's
// tables or indexes, and the commits. An index entry that splits its page counts
// as an entry like any other.
func walByTable(t *testing.T, pool *pgxpool.Pool, position string) []string {
	t.Helper()
	end := walPosition(t, pool)
	if end == position {
		return nil
	}
	pgtest.Exec(t, pool, `SELECT pg_logical_emit_message(true, '', '')`) // its commit flushes all before it
	type record struct{ Manager, Type, Relation string }
	count := map[string]int{}
	for _, r := range pgtest.Records[record](t, pool, `SELECT w.resource_manager AS manager, w.record_type AS type, coalesce(c.relname::text, '') AS relation
		FROM pg_get_wal_records_info($1::pg_lsn, $2::pg_lsn) AS w
		LEFT JOIN pg_class AS c ON c.relnamespace = 'onceq'::regnamespace
			AND c.relfilenode = substring(w.block_ref FROM 'rel \d+/\d+/(\d+)')::oid`, position, end) {
		kind := strings.TrimSuffix(r.Type, "+INIT") // the first of a page
		switch {
		case r.Manager == "Heap2" || strings.HasPrefix(kind, "PRUNE") || r.Relation == "upkeep" || strings.HasPrefix(r.Relation, "upkeep_"):
			continue
		case r.Manager == "Btree":
			if !slices.Contains([]string{"INSERT_LEAF", "SPLIT_L", "SPLIT_R"}, kind) {
				continue // of the pages above the leaves
			}
			kind = "ENTRY"
		case r.Relation == "" && r.Manager != "Transaction":
			continue
		}
		count[strings.TrimSpace(kind+" "+r.Relation)]++
	}
	var lines []string
	for _, kind := range slices.Sorted(maps.Keys(count)) {
		lines = append(lines, fmt.Sprint(count[kind], " ", kind))
	}
	return lines
}

// Whoever adds a round trip, a row, an index or a lock to an operation sees it here.
func TestClient_budget(t *testing.T) {
	t.Parallel()
	a := newLedger(t)
	c := a.client
	many := func(from int, fresh func(i int) bool) []queue.Request {
		reqs := make([]queue.Request, 1000)
		for i := range reqs {
			if fresh(i) {
				reqs[i] = order(from + i)
			} else {
				reqs[i] = order(i)
			}
		}
		return reqs
	}
	batch := func(reqs []queue.Request) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := c.EnqueueMany(ctx, reqs)
			return err
		}
	}
	// thousands is a batch that has other fresh requests each time.
	thousands := func(from int, fresh func(i int) bool) func(context.Context) error {
		return func(ctx context.Context) error {
			from += 10_000
			return batch(many(from-10_000, fresh))(ctx)
		}
	}
	one := func(outcome queue.Outcome, req queue.Request) func(context.Context) error {
		return func(ctx context.Context) error { return want(outcome)(c.EnqueueWithResult(ctx, req)) }
	}
	debounced := func(n int) queue.Request {
		return queue.Request{Type: "digest", Payload: n, Admission: queue.Debounce{Key: "digest", Window: time.Hour}}
	}
	other := order(1)
	other.Payload = nil
	always, never := func(int) bool { return true }, func(int) bool { return false }

	// Statements are prepared, catalogues read, the tables' first pages made.
	for _, do := range []func(context.Context) error{
		one(queue.OutcomeAccepted, queue.Request{Type: "plain"}), one(queue.OutcomeAccepted, order(5000)), one(queue.OutcomeAccepted, reminder()),
		one(queue.OutcomeAccepted, debounced(0)), one(queue.OutcomeReplaced, debounced(1)), batch([]queue.Request{order(5001)}),
	} {
		if err := do(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	accepted := func(n int) []string {
		return []string{"1 COMMIT", fmt.Sprint(n, " ENTRY binding_pkey"), fmt.Sprint(n, " ENTRY job_pkey"), fmt.Sprint(n, " ENTRY pending_pkey"),
			fmt.Sprint(n, " HEAP_CONFIRM binding"), fmt.Sprint(n, " INSERT binding"), fmt.Sprint(n, " INSERT job"), fmt.Sprint(n, " INSERT pending")}
	}
	for _, row := range []struct {
		name string
		do   func(context.Context) error
		want budget
	}{
		{"an acceptance without a key", one(queue.OutcomeAccepted, queue.Request{Type: "plain"}), budget{1, []string{
			"1 COMMIT", "1 ENTRY job_pkey", "1 ENTRY pending_pkey", "1 INSERT job", "1 INSERT pending"}}},
		{"an acceptance", one(queue.OutcomeAccepted, order(6000)), budget{1, accepted(1)}},
		{"a replay", one(queue.OutcomeReplayed, order(6000)), budget{Trips: 1}},
		{"a coalesced request", one(queue.OutcomeCoalesced, reminder()), budget{Trips: 1}},
		{"a batch of 1,000 acceptances", thousands(0, always), budget{1, accepted(1000)}},
		{"a conflict", func(ctx context.Context) error {
			if _, err := c.EnqueueWithResult(ctx, other); !isConflict(err) {
				return fmt.Errorf("not a conflict: %w", err)
			}
			return nil
		}, budget{Trips: 1}},
		{"a batch of 1,000, half of them replays", thousands(100_000, func(i int) bool { return i%2 == 0 }), budget{1, accepted(500)}},
		{"a batch of 1,000 replays", batch(many(0, never)), budget{Trips: 1}},
		{"a replacement", one(queue.OutcomeReplaced, debounced(2)), budget{1, []string{
			"1 COMMIT", "1 DELETE pending", "1 ENTRY event_pkey", "1 ENTRY pending_pkey", "1 HOT_UPDATE binding", "1 HOT_UPDATE job",
			"1 INSERT event", "1 INSERT pending", "1 LOCK binding", "1 LOCK pending"}}},
	} {
		for try := 1; ; try++ {
			got, took := a.measure(t, row.do)
			diff := cmp.Diff(row.want, got)
			if diff == "" {
				break
			}
			// The batches can be sent again as they are.
			if !strings.HasPrefix(row.name, "a batch") || took < slack || try == 5 {
				t.Errorf("%s costs something else than before (-want +got):\n%s", row.name, diff)
				break
			}
		}
	}
}

// The same for a job's way through a worker: what a hundred of them write.
func TestWorker_budget(t *testing.T) {
	t.Parallel()
	a := newLedger(t)
	const jobs = 100
	work := func(ctx context.Context) error {
		w, err := queue.NewWorker(newClient(t, a.pool, queue.Config{PollOnly: true}), queue.WorkerConfig{Queues: map[string]int{"default": jobs}})
		if err != nil {
			return err
		}
		var ended atomic.Int64
		running, stop := context.WithCancel(ctx)
		defer stop()
		queue.Handle(w, "job", func(context.Context, *queue.Job[int]) error {
			if ended.Add(1) == jobs {
				stop()
			}
			return nil
		})
		return w.Run(running)
	}
	fill := func() {
		reqs := make([]queue.Request, jobs)
		for i := range reqs {
			reqs[i] = queue.Request{Type: "job", Payload: i}
		}
		if _, err := a.client.EnqueueMany(t.Context(), reqs); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	if err := work(t.Context()); err != nil { // pages made
		t.Fatal(err)
	}
	fill()
	got, _ := a.measure(t, work)
	commits := func(line string) bool { return strings.HasSuffix(line, " COMMIT") } // how ends are gathered is chance
	want := []string{"100 DELETE pending", "100 DELETE running", "100 ENTRY finished_pkey", "100 ENTRY running_pkey",
		"100 INSERT finished", "100 INSERT running", "100 LOCK pending"}
	if diff := cmp.Diff(want, slices.DeleteFunc(got.WAL, commits)); diff != "" {
		t.Errorf("a hundred jobs write something else than before (-want +got):\n%s", diff)
	}
}
