// Package admissiontest holds the promises of debounce, throttle, key life and
// purge, each tried from outside on a real PostgreSQL.
package admissiontest

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/schema"
)

// server is the PostgreSQL to make databases in, and template a migrated one.
var (
	server    string
	template  = fmt.Sprintf("onceq_admissiontest_%d", os.Getpid())
	databases atomic.Int64
)

func TestMain(m *testing.M) {
	server = os.Getenv("ONCEQ_TEST_DATABASE_URL")
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "admissiontest:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx := context.Background()
	if err := admin(ctx, "CREATE DATABASE "+template); err != nil {
		return 1, err
	}
	defer func() {
		if dropErr := admin(ctx, "DROP DATABASE "+template+" WITH (FORCE)"); err == nil {
			err = dropErr
		}
	}()
	pool, err := open(ctx, template, nil)
	if err != nil {
		return 1, err
	}
	err = schema.Migrate(ctx, pool)
	pool.Close()
	if err != nil {
		return 1, err
	}
	return m.Run(), nil
}

func admin(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}

func open(ctx context.Context, database string, configure func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(server)
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig.Database = database
	cfg.MaxConns = 12
	if configure != nil {
		configure(cfg)
	}
	return pgxpool.NewWithConfig(ctx, cfg)
}

// newPool gives the test a migrated, empty database of its own.
func newPool(t testing.TB, configure func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	ctx := context.Background()
	name := fmt.Sprintf("%s_%d", template, databases.Add(1))
	if err := admin(ctx, "CREATE DATABASE "+name+" TEMPLATE "+template); err != nil {
		t.Fatal(err)
	}
	pool, err := open(ctx, name, configure)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		if err := admin(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	return pool
}
