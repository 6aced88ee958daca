package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/devpg"
)

// Server is a PostgreSQL on which tests get their databases.
type Server struct {
	// AdminURL connects as a superuser to the database postgres.
	AdminURL string

	dev      *devpg.Server
	admin    *pgxpool.Pool // makes and drops databases
	mine     *mark         // says which databases are in use
	count    atomic.Int64  // numbers the databases
	template func() (string, error)
}

// stepLimit bounds each step that a test waits for: a copy, a drop.
const stepLimit = 2 * time.Minute

func open(ctx context.Context, opts ...devpg.Option) (*Server, error) {
	dev, err := devpg.Start(ctx, opts...)
	if err != nil {
		return nil, err
	}
	s := &Server{AdminURL: dev.URL, dev: dev}
	if err := s.connect(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("pgtest: %w", err), s.close())
	}
	s.template = sync.OnceValues(func() (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
		defer cancel()
		return s.findTemplate(ctx)
	})
	return s, nil
}

func (s *Server) connect(ctx context.Context) error {
	cfg, err := pgxpool.ParseConfig(s.AdminURL)
	if err != nil {
		return err
	}
	cfg.MaxConns = 4
	if s.admin, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	s.mine, err = newMark(ctx, s.AdminURL)
	return err
}

// close stops the server, or leaves one that goes on without us as it was
// found.
func (s *Server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
	defer cancel()
	var errs []error
	if s.mine != nil {
		errs = append(errs, s.mine.release(ctx))
	}
	if s.admin != nil {
		if s.dev.Rung == devpg.URL {
			errs = append(errs, sweep(ctx, s.admin))
		}
		s.admin.Close()
	}
	return errors.Join(append(errs, s.dev.Stop(ctx))...)
}

// New is the function New, on this server.
func (s *Server) New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return s.NewWith(t, nil)
}

// NewWith is the function NewWith, on this server.
func (s *Server) NewWith(t testing.TB, configure func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return openPool(t, s.URL(t), configure)
}

// NewEmpty is the function NewEmpty, on this server.
func (s *Server) NewEmpty(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return openPool(t, s.EmptyURL(t), nil)
}

// URL is the function URL, on this server.
func (s *Server) URL(t testing.TB) string {
	t.Helper()
	template, err := s.template()
	if err != nil {
		t.Fatal(err)
	}
	return s.database(t, template)
}

// EmptyURL is the function EmptyURL, on this server.
func (s *Server) EmptyURL(t testing.TB) string {
	t.Helper()
	return s.database(t, emptyTemplate)
}

// Log returns what the server has logged so far. A server that others may use
// too has no log to show: ask Quiet for one.
func (s *Server) Log(t testing.TB) []byte {
	t.Helper()
	said, err := s.dev.Log(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return said
}

// emptyTemplate is PostgreSQL's own, to which nobody can be connected.
const emptyTemplate = "template0"

// database copies a template for the test and drops the copy after it.
func (s *Server) database(t testing.TB, template string) string {
	t.Helper()
	name := fmt.Sprintf("%s_%d", s.mine.prefix(keep()), s.count.Add(1))
	ctx, cancel := context.WithTimeout(t.Context(), stepLimit)
	defer cancel()
	if err := s.copyDatabase(ctx, name, template); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	at := withDatabase(s.AdminURL, name)
	t.Cleanup(func() {
		if keep() && t.Failed() {
			t.Logf("pgtest: kept the database of this test: psql '%s'", at)
			if s.dev.Rung != devpg.URL {
				t.Logf("pgtest: but its server ends with this test binary; use `make test`, or set %s", devpg.EnvTestURL)
			}
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
		defer cancel()
		if err := dropDatabase(ctx, s.admin, name); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return at
}

func (s *Server) copyDatabase(ctx context.Context, name, template string) error {
	_, err := s.admin.Exec(ctx, "CREATE DATABASE "+quote(name)+" TEMPLATE "+quote(template))
	if err != nil {
		return fmt.Errorf("copy database %s to %s: %w", template, name, err)
	}
	return nil
}

// dropDatabase ends whatever a test left connected.
func dropDatabase(ctx context.Context, admin *pgxpool.Pool, name string) error {
	_, err := admin.Exec(ctx, "DROP DATABASE IF EXISTS "+quote(name)+" WITH (FORCE)")
	if err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	return nil
}

// keep says whether a failing test keeps its database.
func keep() bool { return os.Getenv("ONCEQ_TEST_KEEP") == "1" }

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// withDatabase is the connection string, of either of libpq's two forms, with
// another database in it.
func withDatabase(connection, name string) string {
	u, err := url.Parse(connection)
	if err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		return connection + " dbname=" + name
	}
	u.Path = "/" + name
	return u.String()
}
