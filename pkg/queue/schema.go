package queue

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onceq/onceq/db"
	"github.com/onceq/onceq/internal/schemaname"
)

// requiredSchema is the newest migration that this version's SQL needs; a test
// holds it equal to the newest in schema/.
const requiredSchema = 6

// checkSchema looks, until it has once seen a schema that is new enough, which
// migrations were applied. A newer schema is fine: it is how an upgrade without
// downtime begins.
func (c *Client) checkSchema(ctx context.Context, q *db.Queries) error {
	if c.current.Load() {
		return nil
	}
	present, err := q.HasVersionTable(ctx)
	if err != nil {
		return fmt.Errorf("read the schema's version: %w", err)
	}
	var version int64
	if present {
		if version, err = q.SchemaVersion(ctx); err != nil {
			return fmt.Errorf("read the schema's version: %w", err)
		}
	}
	if version < requiredSchema {
		return fmt.Errorf("%w: schema %q is at version %d and %d is needed; run `onceq migrate up` or schema.Migrate",
			ErrSchemaOutdated, c.schema, version, requiredSchema)
	}
	c.current.Store(true)
	return nil
}

// queries are the statements of db/ on tx, in the client's schema.
func (c *Client) queries(tx db.DBTX) *db.Queries {
	if c.schema == schemaname.Default {
		return db.New(tx)
	}
	return db.New(inSchema{tx, c.schema})
}

// inSchema puts another schema into each statement on its way.
type inSchema struct {
	tx     db.DBTX
	schema string
}

// rewritten holds each statement's text for each schema: a few dozen each.
var rewritten sync.Map

type statement struct{ schema, sql string }

func (s inSchema) text(sql string) string {
	key := statement{s.schema, sql}
	if text, ok := rewritten.Load(key); ok {
		return text.(string)
	}
	text, _ := rewritten.LoadOrStore(key, schemaname.Rewrite(sql, s.schema))
	return text.(string)
}

func (s inSchema) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return s.tx.Exec(ctx, s.text(sql), args...)
}

func (s inSchema) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return s.tx.Query(ctx, s.text(sql), args...)
}

func (s inSchema) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return s.tx.QueryRow(ctx, s.text(sql), args...)
}
