//go:build unix

package crashtest

import (
	"context"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
)

// sent is a statement on its way to PostgreSQL.
type sent struct {
	name string // as in queries/
	sql  string
	args []any
}

// tap sees the statements of a pool's connections, and of those that a worker
// makes like them. It can cut some off: they are recorded but do not leave.
type tap struct {
	mu   sync.Mutex
	cut  []string
	seen []sent
}

var statementName = regexp.MustCompile(`^-- name: (\w+)`)

func (p *tap) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	match := statementName.FindStringSubmatch(data.SQL)
	if match == nil {
		return ctx
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, sent{match[1], data.SQL, keep(data.Args)})
	if !slices.Contains(p.cut, match[1]) {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// keep copies arguments; the floors of a claim go on to change.
func keep(args []any) []any {
	args = slices.Clone(args)
	for i, arg := range args {
		if times, ok := arg.([]time.Time); ok {
			args[i] = slices.Clone(times)
		}
	}
	return args
}

func (p *tap) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// first is the first statement of the name that was seen, if there was one.
func (p *tap) first(name string) (sent, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.seen, func(s sent) bool { return s.name == name })
	if i < 0 {
		return sent{}, false
	}
	return p.seen[i], true
}

// await waits for a statement of the name.
func (p *tap) await(t testing.TB, name string) (s sent) {
	t.Helper()
	pgtest.Await(t, name+" to be sent", func() (ok bool) {
		s, ok = p.first(name)
		return ok
	})
	return s
}

// tapped opens another pool on pool's database, with a tap that cuts the
// statements of these names off.
func tapped(t testing.TB, pool *pgxpool.Pool, cut ...string) (*pgxpool.Pool, *tap) {
	t.Helper()
	p := &tap{cut: cut}
	cfg := pool.Config()
	cfg.ConnConfig.Tracer = p
	other, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	return other, p
}
