package queuetest_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

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
		if n := scan[int](t, pool, `SELECT count(*) FROM `+pgx.Identifier{name, "job"}.Sanitize()); n != 6 {
			t.Errorf("schema %q holds %d jobs, want 6", name, n)
		}
	}
}

func TestErrSchemaOutdated(t *testing.T) {
	t.Parallel()
	bare, migrated := pgtest.NewEmpty(t), pgtest.New(t)
	last := scan[int64](t, migrated, `SELECT max(version_id) FROM onceq.goose_version`)
	exec(t, migrated, `DELETE FROM onceq.goose_version WHERE version_id = $1`, last)

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
			exec(t, bare, `CREATE TABLE IF NOT EXISTS orders (scope text)`)
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
