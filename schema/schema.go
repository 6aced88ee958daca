// Package schema holds the queue's goose migrations and applies them. It is a
// package of its own so that a program which only enqueues never links goose.
package schema

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"fmt"
	"hash/crc64"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/onceq/onceq/internal/schemaname"
)

//go:embed *.sql
var migrations embed.FS

// Option adjusts Migrate, Statuses and Print.
type Option func(*options)

type options struct{ schema string }

// Named puts the tables into another schema than "onceq": a lower-case
// identifier of at most 63 bytes that doesn't begin with pg_.
func Named(schema string) Option { return func(o *options) { o.schema = schema } }

func resolve(opts []Option) (options, error) {
	o := options{schema: schemaname.Default}
	for _, opt := range opts {
		opt(&o)
	}
	if err := schemaname.Check(o.schema); err != nil {
		return o, fmt.Errorf("schema: %w", err)
	}
	return o, nil
}

// Migrate makes the schema if it is missing and applies the migrations that it
// lacks. Many processes may call it at once: one works, the others wait for a
// session lock of this schema's own, for up to five minutes. The lock needs a
// direct connection or a pooler in session mode. Versions are kept in the table
// goose_version of the schema, apart from any other goose in the database.
func Migrate(ctx context.Context, pool *pgxpool.Pool, opts ...Option) error {
	o, err := resolve(opts)
	if err != nil {
		return err
	}
	return o.withProvider(pool, func(p *goose.Provider) error {
		_, err := p.Up(ctx)
		return err
	})
}

// Status is one migration and whether it was applied.
type Status struct {
	Version int64
	Name    string
	Applied bool
}

// Statuses lists every migration in order. It changes nothing.
func Statuses(ctx context.Context, pool *pgxpool.Pool, opts ...Option) ([]Status, error) {
	o, err := resolve(opts)
	if err != nil {
		return nil, err
	}
	applied := map[int64]bool{}
	var present bool
	if err := pool.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", o.versionTable()).Scan(&present); err != nil {
		return nil, fmt.Errorf("schema: read the version table: %w", err)
	}
	if present {
		rows, err := pool.Query(ctx, "SELECT version_id FROM "+o.versionTable()+" WHERE is_applied")
		if err != nil {
			return nil, fmt.Errorf("schema: read the version table: %w", err)
		}
		versions, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return nil, fmt.Errorf("schema: read the version table: %w", err)
		}
		for _, v := range versions {
			applied[v] = true
		}
	}
	names, err := fs.Glob(migrations, "*.sql")
	if err != nil {
		return nil, err
	}
	statuses := make([]Status, len(names))
	for i, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, fmt.Errorf("schema: %w", err)
		}
		statuses[i] = Status{Version: version, Name: name, Applied: applied[version]}
	}
	return statuses, nil
}

// Print returns the SQL of every migration, for those who apply it by other
// means: each file whole, with its goose marks.
func Print(opts ...Option) (string, error) {
	o, err := resolve(opts)
	if err != nil {
		return "", err
	}
	names, err := fs.Glob(migrations, "*.sql")
	if err != nil {
		return "", err
	}
	var out strings.Builder
	fmt.Fprintf(&out, "CREATE SCHEMA IF NOT EXISTS %s;\n", pgx.Identifier{o.schema}.Sanitize())
	for _, name := range names {
		text, err := fs.ReadFile(o.files(), name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "\n-- %s\n%s", name, text)
	}
	return out.String(), nil
}

// Hash tells one set of migrations from another, for whoever keeps a migrated
// database to copy.
func Hash() string {
	sum := sha256.New()
	text, err := Print()
	if err != nil {
		panic("schema: the embedded migrations can't be read: " + err.Error())
	}
	sum.Write([]byte(text))
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

func (o options) versionTable() string {
	return pgx.Identifier{o.schema, "goose_version"}.Sanitize()
}

func (o options) files() fs.FS { return inSchema{migrations, o.schema} }

// withProvider runs f with a goose provider on the pool's connections.
func (o options) withProvider(pool *pgxpool.Pool, f func(*goose.Provider) error) error {
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	// The lock's number is this product's and this schema's own, so that it never
	// meets that of another goose.
	locker, err := lock.NewPostgresSessionLocker(
		lock.WithLockID(int64(crc64.Checksum([]byte("onceq.migrate."+o.schema), crc64.MakeTable(crc64.ISO)))),
		lock.WithLockTimeout(1, 300), lock.WithUnlockTimeout(1, 30))
	if err != nil {
		return fmt.Errorf("schema: %w", err)
	}
	inner, err := database.NewStore(database.DialectPostgres, o.versionTable())
	if err != nil {
		return fmt.Errorf("schema: %w", err)
	}
	provider, err := goose.NewProvider("", db, o.files(), goose.WithStore(&store{Store: inner, schema: o.schema}),
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("schema: %w", err)
	}
	if err := f(provider); err != nil {
		return fmt.Errorf("schema: migrate %q: %w", o.schema, err)
	}
	return nil
}

// store is goose's own, but it looks its table up by quoted name and makes the
// schema for it first, under goose's lock.
type store struct {
	database.Store
	schema string
}

// TableExists replaces goose's look-up, which knows no quoted names.
func (s *store) TableExists(ctx context.Context, db database.DBTxConn) (bool, error) {
	var exists bool
	err := db.QueryRowContext(ctx, "SELECT to_regclass($1) IS NOT NULL", s.Tablename()).Scan(&exists)
	return exists, err
}

// CreateVersionTable makes the schema too, unless it is there: a role may be
// allowed to fill a schema without being allowed to make one.
func (s *store) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	var exists bool
	if err := db.QueryRowContext(ctx, "SELECT to_regnamespace(quote_ident($1)) IS NOT NULL", s.schema).Scan(&exists); err != nil {
		return err
	}
	if !exists {
		if _, err := db.ExecContext(ctx, "CREATE SCHEMA "+pgx.Identifier{s.schema}.Sanitize()); err != nil {
			return err
		}
	}
	return s.Store.CreateVersionTable(ctx, db)
}

var _ interface {
	TableExists(context.Context, database.DBTxConn) (bool, error)
} = (*store)(nil)

var _ database.DBTxConn = (*sql.Conn)(nil)
