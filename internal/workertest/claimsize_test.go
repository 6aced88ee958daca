package workertest_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// narrow cuts off claims that ask for more than so many jobs, as if these were too
// large to arrive in time.
type narrow int64

func (n narrow) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if !strings.HasPrefix(data.SQL, "-- name: Claim") || !slices.ContainsFunc(data.Args, func(arg any) bool {
		most, ok := arg.(int64)
		return ok && most > int64(n) && most <= 500 // the other number is the lease
	}) {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

func (narrow) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A claim that fails for its size is not repeated as it is for ever.
func TestClaim_tooLargeForItsTime(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	acceptMany(t, c, many(200, queue.Request{}))
	slow := pgtest.Reconnect(t, pool, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = narrow(60) })
	w := newWorker(t, newClient(t, slow, queue.Config{}), queue.WorkerConfig{Queues: map[string]int{"default": 500}})
	work := handle(t, workType, w)
	start(t, w)
	for range 200 {
		work.next(t).end(nil)
	}
}
