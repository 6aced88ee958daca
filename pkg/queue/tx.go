package queue

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onceq/onceq/internal/sqltx"
)

// Tx is a caller's open transaction. pgx.Tx satisfies it; a pool or a
// connection does not, since what they run is not one transaction. For
// database/sql use [SQLTx]. The methods are those of pgx.Tx; the library never
// calls Commit or Rollback of a caller's transaction.
type Tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// SQLTx lets a database/sql transaction be used where a Tx is asked for,
// whichever PostgreSQL driver is behind it.
func SQLTx(tx *sql.Tx) Tx { return sqltx.New(tx) }
