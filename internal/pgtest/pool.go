package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// closeLimit is how long a pool's last connections may take to come back when
// the test is over.
const closeLimit = 10 * time.Second

// openPool connects to a database and disconnects after the test.
func openPool(t testing.TB, url string, configure func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	cfg.MaxConns = 8
	// The test's name shows in pg_stat_activity, as far as it fits.
	cfg.ConnConfig.RuntimeParams["application_name"] = t.Name()
	if configure != nil {
		configure(cfg)
	}
	// Not the test's context, which ends before the clean-up.
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool, closeLimit) })
	return pool
}

// closePool closes the pool. Close waits for every connection in use, so a
// test that forgot to give one back would hang here without a word.
func closePool(t testing.TB, pool *pgxpool.Pool, limit time.Duration) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(limit):
		t.Errorf("pgtest: %d connection(s) of the test's pool are still in use: close every Rows, Tx and Conn, and wait for every goroutine that has one",
			pool.Stat().AcquiredConns())
	}
}

// Reconnect opens another pool on the database of one, as change has it.
func Reconnect(t testing.TB, pool *pgxpool.Pool, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg := pool.Config()
	change(cfg)
	other, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(other.Close)
	return other
}

// Unpinged has a pool send only what it is asked to, for tests that count. By
// itself it asks a connection that rested for a second whether it is still there.
func Unpinged(cfg *pgxpool.Config) {
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
}
