package racetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/devpg"
	"github.com/onceq/onceq/internal/pgtest"
)

// quiet starts a server whose WAL holds nothing but what a test has written.
func quiet(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return pgtest.Quiet(t,
		// With a higher level the background writer logs the running transactions.
		devpg.Setting("wal_level", "minimal"), devpg.Setting("max_wal_senders", "0"),
		// So that a commit flushes what came before it, and walSince can read it.
		devpg.Setting("synchronous_commit", "on"),
	).New(t)
}

// extension installs one of PostgreSQL's own extensions, if the server has it.
func extension(t testing.TB, pool *pgxpool.Pool, name string) bool {
	t.Helper()
	if !pgtest.Scan[bool](t, pool, `SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = $1)`, name) {
		t.Logf("the server does not have the extension %s, so a part of this test is left out", name)
		return false
	}
	pgtest.Exec(t, pool, `CREATE EXTENSION IF NOT EXISTS `+name)
	return true
}

// footprint is all that any write, row lock, transaction id or notification on
// the server would change.
type footprint struct {
	WAL     string // where the next record goes
	NextXID string
	// Rows are all rows of the queue's tables: place, creating and locking
	// transaction, content.
	Rows []string
	// Pages is when each page of bindings was last changed, by its WAL address.
	Pages []string
	// Sequences are the queue's sequences and how far each has gone. There is one,
	// of the table of applied migrations.
	Sequences []string
	// Heard is what came on the queue's channel since the listener began.
	Heard []string
}

// observer takes footprints on connections of its own.
type observer struct {
	pool     *pgxpool.Pool
	listener *pgx.Conn
	pages    bool
	heard    []string
}

func observe(t testing.TB, pool *pgxpool.Pool) *observer {
	t.Helper()
	o := &observer{pool: pool, pages: extension(t, pool, "pageinspect")}
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	o.listener = conn
	pgtest.Exec(t, conn, `LISTEN onceq`)
	return o
}

func (o *observer) take(t testing.TB) footprint {
	t.Helper()
	var f footprint
	// First of all, since the rest may itself write: hint bits, say.
	f.WAL = walPosition(t, o.pool)
	f.NextXID = nextXID(t, o.pool)
	for _, table := range pgtest.List[string](t, o.pool, `SELECT relname::text FROM pg_class
		WHERE relnamespace = 'onceq'::regnamespace AND relkind IN ('r', 'p', 'm') ORDER BY relname`) {
		f.Rows = append(f.Rows, pgtest.List[string](t, o.pool, fmt.Sprintf(`SELECT format('%[1]s %%s %%s %%s %%s', r.ctid, r.xmin, r.xmax, r::text)
			FROM onceq.%[1]s AS r ORDER BY r.ctid`, pgx.Identifier{table}.Sanitize()))...)
	}
	if o.pages {
		f.Pages = pgtest.List[string](t, o.pool, `SELECT page || ' ' || (page_header(get_raw_page('onceq.binding', page::integer))).lsn
			FROM generate_series(0, pg_relation_size('onceq.binding') / current_setting('block_size')::integer - 1) AS page`)
	}
	f.Sequences = pgtest.List[string](t, o.pool, `SELECT c.relname || ' ' || coalesce(pg_sequence_last_value(c.oid)::text, '-') FROM pg_class AS c
		WHERE c.relnamespace = 'onceq'::regnamespace AND c.relkind = 'S' ORDER BY 1`)
	f.Heard = o.listen(t)
	return f
}

// listen returns all that was heard so far. PostgreSQL delivers what was sent
// when the listener asks for something, so nothing has to be waited for.
func (o *observer) listen(t testing.TB) []string {
	t.Helper()
	pgtest.Exec(t, o.listener, `SELECT 1`)
	for {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // only what has arrived already
		n, err := o.listener.WaitForNotification(ctx)
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			return append([]string(nil), o.heard...)
		}
		o.heard = append(o.heard, n.Payload)
	}
}

// wantUntouched fails the test unless f leaves no trace on the server.
func (o *observer) wantUntouched(t testing.TB, what string, f func()) {
	t.Helper()
	before := o.take(t)
	f()
	if diff := cmp.Diff(before, o.take(t)); diff != "" {
		t.Errorf("%s writes nothing, locks nothing, needs no transaction id and wakes nobody (-before +after):\n%s", what, diff)
	}
}

// walPosition is where the next record of the WAL goes.
func walPosition(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	return pgtest.Scan[string](t, pool, `SELECT pg_current_wal_insert_lsn()::text`)
}

// nextXID is the transaction id that is assigned next, as far as transactions
// that have ended tell.
func nextXID(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	return pgtest.Scan[string](t, pool, `SELECT pg_snapshot_xmax(pg_current_snapshot())::text`)
}

// walRecord is a record of the WAL as pg_walinspect shows it.
type walRecord struct {
	XID, Manager, Type string
	Bytes              int64
}

// walSince reads the WAL from a position on. It needs pg_walinspect.
func walSince(t testing.TB, pool *pgxpool.Pool, position string) []walRecord {
	t.Helper()
	end := walPosition(t, pool)
	if end == position {
		return nil
	}
	pgtest.Exec(t, pool, `SELECT pg_logical_emit_message(true, '', '')`) // its commit flushes all before it
	return pgtest.Records[walRecord](t, pool, `SELECT xid::text AS xid, resource_manager AS manager, record_type AS type,
			(record_length + fpi_length)::bigint AS bytes
		FROM pg_get_wal_records_info($1::pg_lsn, $2::pg_lsn) ORDER BY start_lsn`, position, end)
}
