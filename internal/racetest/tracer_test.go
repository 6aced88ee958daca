package racetest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// tracer records what a pool sends to PostgreSQL, BEGIN and COMMIT included, and
// the codes of the errors that come back. Preparing a statement is not counted.
type tracer struct {
	mu    sync.Mutex
	sent  []string
	codes map[string]int
}

func newTracer() *tracer { return &tracer{codes: map[string]int{}} }

func (t *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent = append(t.sent, label(data.SQL))
	return ctx
}

func (t *tracer) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	code := sqlState(data.Err)
	if code == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.codes[code]++
}

// label is what a statement is called in queries/, or its first word.
func label(sql string) string {
	if rest, ok := strings.CutPrefix(sql, "-- name: "); ok {
		name, _, _ := strings.Cut(rest, " ")
		return name
	}
	word, _, _ := strings.Cut(strings.TrimSpace(sql), " ")
	return word
}

// during returns what was sent while f ran.
func (t *tracer) during(f func()) []string {
	t.mu.Lock()
	before := len(t.sent)
	t.mu.Unlock()
	f()
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.sent[before:])
}

// errorCodes are the SQLSTATEs seen so far, and how often.
func (t *tracer) errorCodes() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.codes)
}
