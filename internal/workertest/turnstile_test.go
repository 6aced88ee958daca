package workertest_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
)

// turnstile holds up the statements of a name, while it is armed, until it is
// opened: before they are sent, or, of those that bring a job, when they have been
// answered.
type turnstile struct {
	name    string
	answers bool
	armed   atomic.Bool
	came    chan struct{} // one for each
	opened  chan struct{}
}

// guarded opens another pool on pool's database, with a turnstile in it.
func guarded(t testing.TB, pool *pgxpool.Pool, s *turnstile) *pgxpool.Pool {
	t.Helper()
	s.came, s.opened = make(chan struct{}, 100), make(chan struct{})
	return pgtest.Reconnect(t, pool, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = s })
}

// open lets everything through from now on.
func (s *turnstile) open() {
	if s.armed.Swap(false) {
		close(s.opened)
	}
}

func (s *turnstile) wait() {
	if s.armed.Load() {
		s.came <- struct{}{}
		<-s.opened
	}
}

type statementKey struct{}

func (s *turnstile) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if !s.answers && strings.HasPrefix(data.SQL, "-- name: "+s.name+" ") {
		s.wait()
	}
	return context.WithValue(ctx, statementKey{}, data.SQL)
}

func (s *turnstile) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	sql, _ := ctx.Value(statementKey{}).(string)
	// The one row of a claim that got nothing tells just that.
	if s.answers && strings.HasPrefix(sql, "-- name: "+s.name+" ") && data.CommandTag.RowsAffected() > 1 {
		s.wait()
	}
}
