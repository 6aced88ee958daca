package queue_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/pkg/queue"
	"github.com/onceq/onceq/schema"
)

// The examples show no set-up: they use this client, on a database of their own.
var (
	ctx    = context.Background()
	pool   *pgxpool.Pool
	client *queue.Client
)

// TestMain makes a migrated database for the examples. Without a server it runs
// the test binary again under internal/testserver, as a program: importing what
// starts servers here would put its modules into every user's go.sum.
func TestMain(m *testing.M) {
	url := os.Getenv("ONCEQ_TEST_DATABASE_URL")
	if url == "" {
		cmd := exec.Command("go", append([]string{"run", "../../internal/testserver", "--"}, os.Args...)...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "run the tests under internal/testserver:", err)
			os.Exit(1)
		}
		return
	}
	code, err := withDatabase(url, m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "prepare the examples' database:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func withDatabase(url string, run func() int) (code int, err error) {
	admin, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer admin.Close(ctx)
	name := fmt.Sprintf("onceq_examples_%d", os.Getpid())
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return 0, err
	}
	defer func() {
		if _, dropErr := admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err == nil {
			err = dropErr
		}
	}()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return 0, err
	}
	cfg.ConnConfig.Database = name
	if pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return 0, err
	}
	defer pool.Close()
	if err := schema.Migrate(ctx, pool); err != nil {
		return 0, err
	}
	if client, err = queue.New(pool, queue.Config{}); err != nil {
		return 0, err
	}
	return run(), nil
}
