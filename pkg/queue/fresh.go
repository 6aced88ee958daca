package queue

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onceq/onceq/db"
)

// fresh makes PostgreSQL plan a statement each time, for the arguments and for
// the tables as they are. A prepared statement keeps a plan that was made when a
// table was small, perhaps empty, and would scan it still when it has grown;
// operators' statements are few, and planning them is cheap beside that.
type fresh struct {
	db.DBTX
	mode pgx.QueryExecMode
}

// planningMode is how pgx sends a statement that is not kept: described once,
// where the pool's connections remember descriptions. It is 0 where they prepare
// no statements anyway.
func planningMode(cfg *pgx.ConnConfig) pgx.QueryExecMode {
	switch {
	case cfg.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement:
		return 0
	case cfg.DescriptionCacheCapacity > 0:
		return pgx.QueryExecModeCacheDescribe
	}
	return pgx.QueryExecModeDescribeExec
}

// planned is tx for operators' statements.
func (c *Client) planned(tx db.DBTX) *db.Queries {
	if c.planning == 0 {
		return c.queries(tx)
	}
	return c.queries(fresh{tx, c.planning})
}

// byIndex reads in a transaction whose statements go along indexes only.
func (c *Client) byIndex(ctx context.Context, read func(q *db.Queries) error) error {
	return pgx.BeginTxFunc(ctx, c.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		q := c.planned(tx)
		if err := q.PlanByIndex(ctx); err != nil {
			return err
		}
		return read(q)
	})
}

func (f fresh) args(args []any) []any { return append([]any{f.mode}, args...) }

func (f fresh) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return f.DBTX.Exec(ctx, sql, f.args(args)...)
}

func (f fresh) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return f.DBTX.Query(ctx, sql, f.args(args)...)
}

func (f fresh) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return f.DBTX.QueryRow(ctx, sql, f.args(args)...)
}
