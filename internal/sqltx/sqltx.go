// Package sqltx shows a database/sql transaction as one of pgx, as far as the
// product's statements need it: parameters that every PostgreSQL driver knows,
// results that are scalars. It knows nothing of queues.
package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// Tx is a *sql.Tx with pgx's methods.
type Tx struct{ tx *sql.Tx }

// New wraps tx.
func New(tx *sql.Tx) *Tx { return &Tx{tx: tx} }

// Exec runs a statement. The command tag it returns is empty: database/sql
// doesn't pass it on.
func (t *Tx) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	args, err := portable(args)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	_, err = t.tx.ExecContext(ctx, query, args...)
	return pgconn.CommandTag{}, err
}

// Query runs a statement that returns rows.
func (t *Tx) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	args, err := portable(args)
	if err != nil {
		return nil, err
	}
	r, err := t.tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return &rows{rows: r}, nil
}

// QueryRow runs a statement that returns at most one row; Scan returns
// pgx.ErrNoRows when there was none.
func (t *Tx) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	args, err := portable(args)
	if err != nil {
		return row{err: err}
	}
	return row{row: t.tx.QueryRowContext(ctx, query, args...)}
}

// Commit commits; database/sql has no context here.
func (t *Tx) Commit(context.Context) error { return t.tx.Commit() }

// Rollback rolls back; database/sql has no context here.
func (t *Tx) Rollback(context.Context) error { return t.tx.Rollback() }

type row struct {
	row *sql.Row
	err error
}

func (r row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	err := r.row.Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return pgx.ErrNoRows
	}
	return err
}

// rows is pgx.Rows over *sql.Rows. The embedded nil interface stands for the
// methods that the generated code never calls, present and future.
type rows struct {
	pgx.Rows
	rows *sql.Rows
}

func (r *rows) Next() bool             { return r.rows.Next() }
func (r *rows) Scan(dest ...any) error { return r.rows.Scan(dest...) }
func (r *rows) Err() error             { return r.rows.Err() }

// Close ends the reading; what it may report, Err reports too.
func (r *rows) Close() { _ = r.rows.Close() }

// portable replaces what only pgx can send: slices become the text of an array
// (each is cast to its type in the statement), small integers become int64.
func portable(args []any) ([]any, error) {
	out := make([]any, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case nil, string, []byte, int64, float64, bool:
			out[i] = v
		case int16:
			out[i] = int64(v)
		case int32:
			out[i] = int64(v)
		default:
			var err error
			if out[i], err = other(arg); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func other(arg any) (any, error) {
	v := reflect.ValueOf(arg)
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil, nil
		}
		one, err := portable([]any{v.Elem().Interface()})
		if err != nil {
			return nil, err
		}
		return one[0], nil
	case reflect.Slice:
		return arrayText(arg)
	}
	return arg, nil
}

func arrayText(slice any) (any, error) {
	// A map of the call's own: pgtype.Map is not safe for concurrent use.
	m := pgtype.NewMap()
	t, ok := m.TypeForValue(slice)
	if !ok {
		return nil, errors.New("sqltx: no PostgreSQL array type for a slice parameter")
	}
	text, err := m.Encode(t.OID, pgtype.TextFormatCode, slice, nil)
	if err != nil || text == nil {
		return nil, err
	}
	return string(text), nil
}
