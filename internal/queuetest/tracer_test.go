package queuetest_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// statements records every statement that pgx sends, BEGIN and COMMIT
// included; preparing one is not counted.
type statements struct {
	mu   sync.Mutex
	sent []string
}

func (s *statements) add(sql string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, sql)
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.add(data.SQL)
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (s *statements) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	s.add(data.SQL)
}

func (s *statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (s *statements) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceCopyFromStartData) context.Context {
	s.add("COPY " + data.TableName.Sanitize())
	return ctx
}

func (s *statements) TraceCopyFromEnd(context.Context, *pgx.Conn, pgx.TraceCopyFromEndData) {}

// during returns what was sent while f ran.
func (s *statements) during(f func()) []string {
	s.mu.Lock()
	before := len(s.sent)
	s.mu.Unlock()
	f()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent[before:])
}

// wire counts what goes out to the server: with a warm client one write is one
// round trip.
type wire struct {
	net.Conn
	writes *atomic.Int64
}

func (w wire) Write(b []byte) (int, error) {
	w.writes.Add(1)
	return w.Conn.Write(b)
}

// never keeps a pool from asking whether a connection lives that lay idle for a
// second, as it may on a slow machine: that is a round trip, too.
func never(context.Context, pgxpool.ShouldPingParams) bool { return false }

// observed opens a pool of one connection on pool's database whose statements
// and writes are counted.
func observed(t testing.TB, pool *pgxpool.Pool) (*pgxpool.Pool, *statements, *atomic.Int64) {
	t.Helper()
	sent, writes := &statements{}, &atomic.Int64{}
	other := reconnect(t, pool, func(cfg *pgxpool.Config) {
		cfg.MaxConns = 1
		cfg.ShouldPing = never
		cfg.ConnConfig.Tracer = sent
		dial := cfg.ConnConfig.DialFunc
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return wire{conn, writes}, nil
		}
	})
	return other, sent, writes
}
