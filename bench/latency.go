package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/onceq/onceq/pkg/queue"
)

// latency measures from before an enqueue to the start of its handler, on a
// worker that has nothing to do.
func (r *runner) latency(ctx context.Context) error {
	set := setting{Conns: 4, Payload: 200, Durable: true}
	at, err := r.open(ctx, set)
	if err != nil {
		return err
	}
	defer at.close(ctx)
	started := make(chan time.Time, 1)
	did := func() { started <- time.Now() }

	c, err := queue.New(at.site.pool, queue.Config{})
	if err != nil {
		return err
	}
	stop, err := startWorker(ctx, c, handlers, did)
	if err != nil {
		return err
	}
	defer stop()
	peer, err := startPeer(ctx, at.site.pool, did)
	if err != nil {
		return err
	}
	defer peer.Stop(context.WithoutCancel(ctx))

	p := newPayload(set.Payload)
	bare, err := startBare(ctx, at.site.pool, did)
	if err != nil {
		return err
	}
	ways := []struct {
		name    string
		enqueue func(i int64) error
	}{
		{ownStart, func(i int64) error {
			_, err := c.Enqueue(ctx, queue.Request{Type: "bench", Payload: p.with(i)})
			return err
		}},
		{"River, insert to worker", func(i int64) error {
			_, err := peer.Insert(ctx, peerJob{payload: p.with(i)}, &river.InsertOpts{})
			return err
		}},
		{bareStart, func(i int64) error { return bare(ctx, p.with(i)) }},
	}
	const warm = 5
	p50, p99 := map[string][]float64{}, map[string][]float64{}
	for range r.plan.latencyRounds {
		for _, way := range ways {
			var took []float64
			for i := range int64(r.plan.latencyJobs + warm) {
				pauseFor(ctx, 15*time.Millisecond+rand.N(20*time.Millisecond))
				began := time.Now()
				if err := way.enqueue(i); err != nil {
					return err
				}
				select {
				case at := <-started:
					if i >= warm {
						took = append(took, at.Sub(began).Seconds()*1000)
					}
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			slices.Sort(took)
			p50[way.name] = append(p50[way.name], quantile(took, 0.5))
			p99[way.name] = append(p99[way.name], quantile(took, 0.99))
		}
	}
	r.versus("start", set, measureP50, p50, ways[0].name, ways[1].name, ways[2].name)
	r.versus("start", set, measureP99, p99, ways[0].name, ways[1].name, ways[2].name)
	return nil
}

// startBare listens until ctx ends and claims a row for each notification. What it
// returns inserts a row and notifies, in one statement.
func startBare(ctx context.Context, pool *pgxpool.Pool, did func()) (enqueue func(context.Context, payload) error, err error) {
	listener, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	conn := listener.Hijack()
	if _, err := conn.Exec(ctx, `LISTEN bare`); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	go func() {
		defer conn.Close(context.WithoutCancel(ctx))
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return
			}
			row := pool.QueryRow(ctx, `UPDATE floor.queue SET state = 1 WHERE id = ANY (ARRAY (
					SELECT id FROM floor.queue WHERE state = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED))
				RETURNING payload`)
			var p payload
			if err := row.Scan(&p); err == nil {
				did()
			}
		}
	}()
	id := 0
	return func(ctx context.Context, p payload) error {
		text, err := json.Marshal(p)
		if err != nil {
			return err
		}
		id++
		_, err = pool.Exec(ctx, `WITH made AS (INSERT INTO floor.queue (id, payload) VALUES ($1, $2::jsonb)) SELECT pg_notify('bare', '')`, id, string(text))
		return err
	}, nil
}

func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
