package queuetest_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
	"github.com/onceq/onceq/schema"
)

// Queues in two schemas of one database know nothing of each other, whatever
// the schemas are called.
func TestSchema_apart(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	names := []string{"", "order", "tenant_a", "_", "onceq_", strings.Repeat("s", 63), strings.Repeat("s", 62) + "t", "select", "binding"}
	clients := map[string]*queue.Client{}
	for _, name := range names {
		if name != "" {
			if err := schema.Migrate(t.Context(), pool, schema.Named(name)); err != nil {
				t.Fatalf("schema %q can't be made: %v", name, err)
			}
		}
		clients[name] = newClient(t, pool, queue.Config{Schema: name})
	}
	ids := map[queue.JobID]string{}
	for _, name := range names {
		id := accept(t, clients[name], invoice("shared key"))
		ids[id] = name
		replay(t, clients[name], invoice("shared key"), id)
		enqueue(t, clients[name], notice("shared throttle"))
		enqueueMany(t, clients[name], []queue.Request{{Type: "t"}, invoice("shared key"), invoice("batch key")})
		enqueueMany(t, clients[name], []queue.Request{{Type: "t"}, invoice("shared key"), invoice("batch key")})
		if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := clients[name].EnqueueManyTx(t.Context(), tx, []queue.Request{invoice("shared key"), invoice("tx key")})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for id, home := range ids {
		for _, name := range names {
			_, err := clients[name].Job(t.Context(), id)
			if home == name && err != nil || home != name && !errors.Is(err, queue.ErrJobNotFound) {
				t.Errorf("job of schema %q looked for in schema %q: %v", home, name, err)
			}
		}
	}
	for _, name := range names {
		if name == "" {
			name = "onceq"
		}
		if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM `+pgx.Identifier{name, "job"}.Sanitize()); n != 6 {
			t.Errorf("schema %q holds %d jobs, want 6", name, n)
		}
	}
}

func TestErrSchemaOutdated(t *testing.T) {
	t.Parallel()
	bare, migrated := pgtest.NewEmpty(t), pgtest.New(t)
	last := pgtest.Scan[int64](t, migrated, `SELECT max(version_id) FROM onceq.goose_version`)
	pgtest.Exec(t, migrated, `DELETE FROM onceq.goose_version WHERE version_id = $1`, last)

	wantOutdated := func(t *testing.T, err error) {
		t.Helper()
		if !errors.Is(err, queue.ErrSchemaOutdated) {
			t.Fatalf("a database that lacks migrations must be told as ErrSchemaOutdated, got %v", err)
		}
		if !strings.Contains(err.Error(), "migrate") {
			t.Errorf("the error must say what to run: %v", err)
		}
	}
	for name, pool := range map[string]*struct {
		c *queue.Client
	}{
		"a database without the schema":        {newClient(t, bare, queue.Config{})},
		"a schema that lacks a migration":      {newClient(t, migrated, queue.Config{})},
		"another schema than the migrated one": {newClient(t, migrated, queue.Config{Schema: "elsewhere"})},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // also the second time
				_, err := pool.c.EnqueueWithResult(t.Context(), invoice("k"))
				wantOutdated(t, err)
				_, err = pool.c.EnqueueMany(t.Context(), []queue.Request{{Type: "t"}})
				wantOutdated(t, err)
				_, err = pool.c.Enqueue(t.Context(), queue.Request{Type: "t"})
				wantOutdated(t, err)
			}
			_, err := pool.c.EnqueueWithResult(t.Context(), queue.Request{})
			wantInvalid(t, err, "type")
		})
	}

	for name, open := range drivers {
		t.Run("with "+name+" the caller's transaction stays usable", func(t *testing.T) {
			pgtest.Exec(t, bare, `CREATE TABLE IF NOT EXISTS orders (scope text)`)
			begin := open(t, bare)
			for _, level := range levels {
				c := newClient(t, bare, queue.Config{}) // knows nothing yet
				tx := begin(t, level)
				tx.do(t, `INSERT INTO orders VALUES ('`+name+`')`)
				_, err := c.EnqueueTx(t.Context(), tx, invoice("k"))
				wantOutdated(t, err)
				_, err = c.EnqueueManyTx(t.Context(), tx, []queue.Request{invoice("k")})
				wantOutdated(t, err)
				tx.do(t, `INSERT INTO orders VALUES ('`+name+`')`)
				tx.mustCommit(t)
			}
			if n := ordersOf(t, bare, name); n != 2*len(levels) {
				t.Errorf("%d business rows were committed, want %d", n, 2*len(levels))
			}
		})
	}

	t.Run("a client goes on once the migrations are there", func(t *testing.T) {
		pool := pgtest.NewEmpty(t)
		c := newClient(t, pool, queue.Config{})
		_, err := c.EnqueueWithResult(t.Context(), invoice("k"))
		wantOutdated(t, err)
		if err := schema.Migrate(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		replay(t, c, invoice("k"), accept(t, c, invoice("k")))
	})

	t.Run("a migrated schema is found from inside a transaction too", func(t *testing.T) {
		pool := pgtest.New(t)
		for name, open := range drivers {
			c := newClient(t, pool, queue.Config{}) // knows nothing yet
			tx := open(t, pool)(t, sql.LevelSerializable)
			enqueueTx(t, c, tx, invoice(name), queue.OutcomeAccepted)
			tx.mustCommit(t)
		}
	})
}

// What Print gives makes the same schema as Migrate, run as it stands; run where
// the schema is in use, it changes nothing.
func TestSchema_printed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"onceq", "order"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.NewEmpty(t)
			text, err := schema.Print(schema.Named(name))
			if err != nil {
				t.Fatal(err)
			}
			run := func() error {
				conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close(t.Context())
				for statement := range strings.SplitAfterSeq(text, ";\n") { // as psql goes on after an error
					if _, ran := conn.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol); err == nil {
						err = ran
					}
				}
				return err
			}
			if err := run(); err != nil {
				t.Fatal(err)
			}
			c := newClient(t, pool, queue.Config{Schema: name})
			id := accept(t, c, invoice("k"))
			if err := run(); err == nil {
				t.Error("it ran a second time without an error")
			}
			if err := schema.Migrate(t.Context(), pool, schema.Named(name)); err != nil {
				t.Error(err)
			}
			replay(t, c, invoice("k"), id)
			if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM `+pgx.Identifier{name, "job"}.Sanitize()); n != 1 {
				t.Errorf("%d jobs are left, want 1", n)
			}

			const columns = `SELECT string_agg(format('%s.%s %s %s %s', table_name, column_name, data_type, is_nullable, column_default), E'\n' ORDER BY table_name, ordinal_position)
				FROM information_schema.columns WHERE table_schema = $1`
			const indexes = `SELECT string_agg(replace(indexdef, quote_ident(schemaname) || '.', ''), E'\n' ORDER BY indexname) FROM pg_indexes WHERE schemaname = $1`
			migrated := pgtest.New(t)
			for _, sql := range []string{columns, indexes} {
				got, want := pgtest.Scan[string](t, pool, sql, name), pgtest.Scan[string](t, migrated, sql, "onceq")
				if diff := cmp.Diff(want, strings.ReplaceAll(got, `"order".`, "onceq.")); diff != "" {
					t.Errorf("Print makes another schema than Migrate (-want +got):\n%s", diff)
				}
			}
		})
	}
}
