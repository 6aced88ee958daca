package queuetest_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
)

// rows is all that a schema's tables hold, with the marks that any write or
// row lock would leave: place, creating and locking transaction.
type rows struct {
	schema string
	tables map[string][]string
}

func allRows(t testing.TB, pool *pgxpool.Pool, schema string) rows {
	t.Helper()
	all := rows{schema, map[string][]string{}}
	for _, table := range tablesOf(t, pool, schema) {
		name := pgx.Identifier{schema, table}.Sanitize()
		all.tables[table] = pgtest.List[string](t, pool, fmt.Sprintf(`SELECT format('%%s %%s %%s %%s', r.ctid, r.xmin, r.xmax, r::text) FROM %s r ORDER BY r.ctid`, name))
	}
	all.tables["(sequences)"] = pgtest.List[string](t, pool, `SELECT format('%s %s', sequencename, last_value) FROM pg_sequences
		WHERE schemaname = $1 ORDER BY sequencename`, schema)
	return all
}

// wantSameRows fails the test unless no row was written or locked since before.
func wantSameRows(t testing.TB, pool *pgxpool.Pool, before rows) {
	t.Helper()
	if diff := cmp.Diff(before.tables, allRows(t, pool, before.schema).tables); diff != "" {
		t.Errorf("nothing may be written or locked, but rows changed (-before +after):\n%s", diff)
	}
}

func tablesOf(t testing.TB, pool *pgxpool.Pool, schema string) []string {
	t.Helper()
	return pgtest.List[string](t, pool, `SELECT relname::text FROM pg_class
		WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND relkind IN ('r', 'p', 'm')
		ORDER BY relname`, schema)
}
