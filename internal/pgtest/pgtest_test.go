package pgtest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/devpg"
)

// hasSchema says whether the database holds the migrated schema.
func hasSchema(t *testing.T, pool *pgxpool.Pool) bool {
	t.Helper()
	var has bool
	if err := pool.QueryRow(t.Context(), "SELECT to_regnamespace('onceq') IS NOT NULL").Scan(&has); err != nil {
		t.Fatal(err)
	}
	return has
}

func TestNew(t *testing.T) {
	t.Parallel()

	t.Run("parallel tests do not see each other", func(t *testing.T) {
		t.Parallel()
		for i := range 4 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				pool := New(t)
				if !hasSchema(t, pool) {
					t.Error("the database is not migrated")
				}
				// The same name everywhere: a shared database would refuse it.
				if _, err := pool.Exec(t.Context(), "CREATE TABLE mine ()"); err != nil {
					t.Error(err)
				}
			})
		}
	})

	t.Run("nothing is left after the test", func(t *testing.T) {
		t.Parallel()
		var pool *pgxpool.Pool
		var name string
		t.Run("a test", func(t *testing.T) {
			pool = New(t)
			name = pool.Config().ConnConfig.Database
			if !exists(t, name) {
				t.Errorf("there is no database %s", name)
			}
		})
		if exists(t, name) {
			t.Errorf("the database %s is still there", name)
		}
		if err := pool.Ping(t.Context()); err == nil {
			t.Error("the pool is still open")
		}
	})

	t.Run("a test may ask for several", func(t *testing.T) {
		t.Parallel()
		a, b := New(t), New(t)
		if a.Config().ConnConfig.Database == b.Config().ConnConfig.Database {
			t.Error("both are the same database")
		}
	})
}

func TestNewWith(t *testing.T) {
	t.Parallel()
	pool := NewWith(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 3 })
	if got := pool.Config().MaxConns; got != 3 {
		t.Errorf("MaxConns = %d, want 3", got)
	}
	if got := New(t).Config().MaxConns; got != 8 {
		t.Errorf("MaxConns = %d without a say, want 8", got)
	}
}

func TestNewEmpty(t *testing.T) {
	t.Parallel()
	if hasSchema(t, NewEmpty(t)) {
		t.Error("the database has the schema")
	}
}

func TestURL(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"migrated": URL(t), "empty": EmptyURL(t)} {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var super bool
		if err := conn.QueryRow(t.Context(), "SELECT current_setting('is_superuser')::bool").Scan(&super); err != nil || !super {
			t.Errorf("%s: superuser = %v, %v", name, super, err)
		}
		// Left open on purpose: the database is dropped all the same.
		t.Cleanup(func() { conn.Close(context.Background()) })
	}
}

func TestQuiet(t *testing.T) {
	t.Parallel()
	s := Quiet(t, devpg.Setting("log_statement", "all"))
	pool := s.New(t)
	for setting, want := range map[string]string{"autovacuum": "off", "log_statement": "all"} {
		var got string
		if err := pool.QueryRow(t.Context(), "SELECT current_setting($1)", setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s = %q, %v; want %q", setting, got, err, want)
		}
	}
	if _, err := pool.Exec(t.Context(), "SELECT 'a needle'"); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(s.Log(t)), "a needle") {
		t.Error("the statement is not in the server's log")
	}
	if s.AdminURL == Shared(t).AdminURL {
		t.Error("the server is the shared one")
	}
}

// TestKeep changes the environment, so it cannot run in parallel.
func TestKeep(t *testing.T) {
	t.Setenv("ONCEQ_TEST_KEEP", "1")
	s := Shared(t)
	failing, passing := newRecorder(t), newRecorder(t)
	kept := s.NewEmpty(failing).Config().ConnConfig.Database
	dropped := s.NewEmpty(passing).Config().ConnConfig.Database
	failing.failed = true
	failing.end()
	passing.end()
	t.Cleanup(func() {
		if err := dropDatabase(context.Background(), s.admin, kept); err != nil {
			t.Error(err)
		}
	})

	if !exists(t, kept) {
		t.Error("the failing test did not keep its database")
	}
	if exists(t, dropped) {
		t.Error("the passing test kept its database")
	}
	if said := failing.said(); !strings.Contains(said, "psql '") || !strings.Contains(said, kept) {
		t.Errorf("the log does not say how to look into the database: %s", said)
	}
	if err := sweep(t.Context(), s.admin); err != nil {
		t.Fatal(err)
	}
	if !exists(t, kept) {
		t.Error("a later run drops what was kept")
	}
}

func TestClosePool_connectionInUse(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), Shared(t).AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	forgetful := newRecorder(t)
	closePool(forgetful, pool, 50*time.Millisecond)
	if said := forgetful.said(); !forgetful.failed || !strings.Contains(said, "1 connection(s)") {
		t.Errorf("a connection in use is reported as: %q", said)
	}
	conn.Release()
}

func TestWithDatabase(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, connection, want string }{
		{"URL", "postgres://me:p%20w@host:1/old?sslmode=disable", "postgres://me:p%20w@host:1/new?sslmode=disable"},
		{"URL of the other scheme", "postgresql://host", "postgresql://host/new"},
		{"keywords", "host=here dbname=old", "host=here dbname=old dbname=new"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := withDatabase(test.connection, "new")
			if got != test.want {
				t.Errorf("withDatabase(%q) = %q, want %q", test.connection, got, test.want)
			}
			if cfg, err := pgx.ParseConfig(got); err != nil || cfg.Database != "new" {
				t.Errorf("pgx reads it as %v, %v", cfg, err)
			}
		})
	}
}

// BenchmarkNew measures what a test pays.
func BenchmarkNew(b *testing.B) {
	Shared(b)
	New(b) // makes the template
	b.ResetTimer()
	for b.Loop() {
		one := newRecorder(b)
		if err := New(one).Ping(b.Context()); err != nil {
			b.Fatal(err)
		}
		one.end()
	}
}
