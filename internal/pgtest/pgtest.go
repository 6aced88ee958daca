// Package pgtest gives each test a PostgreSQL database of its own, in about
// 20 ms: a copy of a template that holds the migrated, empty schema. Tests run
// in parallel and leave nothing behind.
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		t.Parallel()
//		pool := pgtest.New(t)
//		...
//	}
//
// Exec, Scan, List and Records ask it. Await waits for what must come, for as long
// as it takes: no test has a clock to beat, since the machine, the server or its
// disk may stand still for seconds at any step.
//
// The test binary starts one server, through devpg, when its first test asks
// for a database. `make test` names one to all binaries instead.
//
// With ONCEQ_TEST_KEEP=1 a test that fails keeps its database and logs how to
// look into it.
package pgtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/devpg"
)

// New returns a pool of at most 8 connections to a migrated, empty database of
// the test's own.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return Shared(t).New(t)
}

// NewWith is New with a pool that configure has changed.
func NewWith(t testing.TB, configure func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return Shared(t).NewWith(t, configure)
}

// NewEmpty is New without the schema.
func NewEmpty(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return Shared(t).NewEmpty(t)
}

// URL returns a superuser's connection URL of a migrated, empty database of
// the test's own, for commands.
func URL(t testing.TB) string {
	t.Helper()
	return Shared(t).URL(t)
}

// EmptyURL is URL without the schema.
func EmptyURL(t testing.TB) string {
	t.Helper()
	return Shared(t).EmptyURL(t)
}

// Quiet starts a server of the test's own that does nothing by itself, with
// further settings, for tests that read its WAL, its statistics or its log, or
// that must be alone. It takes about a second.
func Quiet(t testing.TB, opts ...devpg.Option) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	s, err := open(ctx, append([]devpg.Option{devpg.Quiet()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Errorf("pgtest: stop the server: %v", err)
		}
	})
	return s
}

// startLimit bounds the way down devpg's ladder, downloads included.
const startLimit = 10 * time.Minute

// shared is the server of this test binary.
var shared struct {
	sync.Mutex
	started bool
	server  *Server
	err     error
}

// Shared returns the server that all tests of this binary, and perhaps those
// of others, use at once. A test may do nothing there that another could
// notice.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.started {
		// Not the test's context: the server outlives the test.
		ctx, cancel := context.WithTimeout(context.Background(), startLimit)
		defer cancel()
		shared.started = true
		shared.server, shared.err = open(ctx)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// closeShared ends the use of the shared server, if there was any.
func closeShared() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		return nil
	}
	s := shared.server
	shared.server = nil
	return s.close()
}
