package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Querier is a pool, a connection or a transaction. What a test asks of it goes on
// in the test's clean-up, after its context has ended.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Exec runs a statement.
func Exec(t testing.TB, q Querier, sql string, args ...any) pgconn.CommandTag {
	t.Helper()
	tag, err := q.Exec(context.Background(), sql, args...)
	if err != nil {
		t.Fatalf("%.300s: %v", sql, err)
	}
	return tag
}

// Scan reads one value.
func Scan[T any](t testing.TB, q Querier, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := q.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%.300s: %v", sql, err)
	}
	return v
}

// List reads one column.
func List[T any](t testing.TB, q Querier, sql string, args ...any) []T {
	t.Helper()
	return collect(t, q, pgx.RowTo[T], sql, args)
}

// Records reads rows into structs by the names of their columns.
func Records[T any](t testing.TB, q Querier, sql string, args ...any) []T {
	t.Helper()
	return collect(t, q, pgx.RowToStructByName[T], sql, args)
}

func collect[T any](t testing.TB, q Querier, to pgx.RowToFunc[T], sql string, args []any) []T {
	t.Helper()
	rows, _ := q.Query(context.Background(), sql, args...) // CollectRows reports its error
	all, err := pgx.CollectRows(rows, to)
	if err != nil {
		t.Fatalf("%.300s: %v", sql, err)
	}
	return all
}

// Clock reads PostgreSQL's clock.
func Clock(t testing.TB, q Querier) time.Time {
	t.Helper()
	return Scan[time.Time](t, q, `SELECT clock_timestamp()`)
}
