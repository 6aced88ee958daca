package queue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onceq/onceq/db"
)

// statementLimit bounds a statement of the worker's own, with the wait for a
// connection, so that one that went silent is given up for another: the worker's
// are few, and all of them may go silent at once.
const statementLimit = 15 * time.Second

// limited gives each statement that long.
type limited struct{ tx db.DBTX }

func (l limited) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	return l.tx.Exec(ctx, sql, args...)
}

func (l limited) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	rows, err := l.tx.Query(ctx, sql, args...)
	if err != nil {
		cancel()
		return nil, err
	}
	return limitedRows{rows, cancel}, nil
}

func (l limited) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	return limitedRow{l.tx.QueryRow(ctx, sql, args...), cancel}
}

// limitedRows ends the limit when they are closed, which db/ always does.
type limitedRows struct {
	pgx.Rows
	cancel context.CancelFunc
}

func (r limitedRows) Close() {
	r.Rows.Close()
	r.cancel()
}

// limitedRow ends the limit when it is scanned, which db/ always does.
type limitedRow struct {
	row    pgx.Row
	cancel context.CancelFunc
}

func (r limitedRow) Scan(dest ...any) error {
	defer r.cancel()
	return r.row.Scan(dest...)
}
