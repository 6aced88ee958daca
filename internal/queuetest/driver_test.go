package queuetest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"

	"github.com/onceq/onceq/pkg/queue"
)

// transaction is a caller's transaction of any driver: queue.Tx for the library,
// and the caller's own work in it.
type transaction struct {
	queue.Tx
	run              func(sql string) error
	commit, rollback func() error
}

// begin opens a transaction, aborted at the end of the test if it is still open.
type begin func(t testing.TB, level sql.IsolationLevel) transaction

// drivers are the ways in which a caller may open a transaction.
var drivers = map[string]func(testing.TB, *pgxpool.Pool) begin{
	"pgx": func(_ testing.TB, pool *pgxpool.Pool) begin {
		return func(t testing.TB, level sql.IsolationLevel) transaction {
			t.Helper()
			ctx := context.Background()
			options := pgx.TxOptions{}
			if level != sql.LevelDefault {
				options.IsoLevel = pgx.TxIsoLevel(strings.ToLower(level.String()))
			}
			tx, err := pool.BeginTx(ctx, options)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = tx.Rollback(ctx) })
			return transaction{
				Tx:       tx,
				run:      func(sql string) error { _, err := tx.Exec(ctx, sql); return err },
				commit:   func() error { return tx.Commit(ctx) },
				rollback: func() error { return tx.Rollback(ctx) },
			}
		}
	},
	"pgx by database/sql": func(t testing.TB, pool *pgxpool.Pool) begin {
		db := stdlib.OpenDBFromPool(pool)
		t.Cleanup(func() { _ = db.Close() })
		return sqlBegin(db)
	},
	"lib/pq by database/sql": func(t testing.TB, pool *pgxpool.Pool) begin {
		cfg := pool.Config().ConnConfig
		dsn := fmt.Sprintf("host='%s' port=%d user='%s' password='%s' dbname='%s' sslmode=disable", cfg.Host, cfg.Port, cfg.User, cfg.Password, cfg.Database)
		db, err := sql.Open("postgres", dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return sqlBegin(db)
	},
}

func sqlBegin(db *sql.DB) begin {
	return func(t testing.TB, level sql.IsolationLevel) transaction {
		t.Helper()
		tx, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: level})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() })
		return transaction{
			Tx:       queue.SQLTx(tx),
			run:      func(sql string) error { _, err := tx.Exec(sql); return err },
			commit:   tx.Commit,
			rollback: tx.Rollback,
		}
	}
}

// levels are PostgreSQL's isolation levels.
var levels = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

// everyTransaction runs f with every driver at every isolation level, each on a
// fresh set of keys told apart by the name of the test.
func everyTransaction(t *testing.T, pool *pgxpool.Pool, f func(t *testing.T, begin begin, level sql.IsolationLevel)) {
	t.Helper()
	for name, open := range drivers {
		begin := open(t, pool)
		for _, level := range levels {
			t.Run(fmt.Sprintf("with %s at %s", name, level), func(t *testing.T) { f(t, begin, level) })
		}
	}
}

// do is the caller's own work, which must succeed.
func (tx transaction) do(t testing.TB, sql string) {
	t.Helper()
	if err := tx.run(sql); err != nil {
		t.Fatalf("the caller's own %q fails: %v", sql, err)
	}
}

func (tx transaction) mustCommit(t testing.TB) {
	t.Helper()
	if err := tx.commit(); err != nil {
		t.Fatalf("the caller's commit fails: %v", err)
	}
}

func (tx transaction) mustRollback(t testing.TB) {
	t.Helper()
	if err := tx.rollback(); err != nil {
		t.Fatalf("the caller's rollback fails: %v", err)
	}
}

// sqlState is the SQLSTATE of the driver's error in err, by whichever driver.
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	var lib *pq.Error
	if errors.As(err, &lib) {
		return string(lib.Code)
	}
	return ""
}
