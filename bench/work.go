package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/onceq/onceq/pkg/queue"
)

// A house works jobs that do nothing: filled first, then worked to the end.
type house struct {
	name string
	fill func(ctx context.Context, pool *pgxpool.Pool, p payload, n int) error
	work func(ctx context.Context, pool *pgxpool.Pool, n int) error
}

// How many jobs a worker may run at once: where it is to be as fast as it can,
// like the peer, and where it works beside something else that is measured.
const (
	atBest   = 2000
	handlers = 500
)

var ourHouse = house{"no-op jobs",
	func(ctx context.Context, pool *pgxpool.Pool, p payload, n int) error {
		c, err := queue.New(pool, queue.Config{})
		if err != nil {
			return err
		}
		return fillOurs(ctx, c, p, n)
	},
	func(ctx context.Context, pool *pgxpool.Pool, n int) error {
		c, err := queue.New(pool, queue.Config{})
		if err != nil {
			return err
		}
		var done atomic.Int64
		stop, err := startWorker(ctx, c, atBest, func() { done.Add(1) })
		if err != nil {
			return err
		}
		err = untilTrue(ctx, func() (bool, error) {
			if done.Load() < int64(n) {
				return false, nil
			}
			var ended bool
			err := pool.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM onceq.running) AND NOT EXISTS (SELECT FROM onceq.pending)`).Scan(&ended)
			return ended, err
		})
		return errors.Join(err, stop())
	},
}

// fillOurs enqueues n jobs in batches.
func fillOurs(ctx context.Context, c *queue.Client, p payload, n int) error {
	for from := 0; from < n; from += batchRows {
		size := min(batchRows, n-from)
		_, err := c.EnqueueMany(ctx, requests(int64(from), size, func(i int64) queue.Request {
			return queue.Request{Type: "bench", Payload: p.with(i)}
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

// startWorker runs a worker whose handlers call did, so many at once; stop ends it
// and waits.
func startWorker(ctx context.Context, c *queue.Client, most int, did func()) (stop func() error, err error) {
	w, err := queue.NewWorker(c, queue.WorkerConfig{Queues: map[string]int{"default": most}})
	if err != nil {
		return nil, err
	}
	queue.Handle(w, "bench", func(context.Context, *queue.Job[payload]) error {
		did()
		return nil
	})
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(running) }()
	return func() error {
		cancel()
		return <-ended
	}, nil
}

// peerWorker does nothing.
type peerWorker struct {
	river.WorkerDefaults[peerJob]
	did func()
}

func (w *peerWorker) Work(context.Context, *river.Job[peerJob]) error {
	w.did()
	return nil
}

// peerHouse is River at the settings that were best of those tried: many
// workers, and hardly a pause between fetches.
var peerHouse = house{"River, no-op jobs",
	func(ctx context.Context, pool *pgxpool.Pool, p payload, n int) error {
		c, err := newPeer(pool)
		if err != nil {
			return err
		}
		for from := 0; from < n; from += batchRows {
			if _, err := c.InsertManyFast(ctx, peerJobs(p, "", min(batchRows, n-from), nil)); err != nil {
				return err
			}
		}
		return nil
	},
	func(ctx context.Context, pool *pgxpool.Pool, n int) error {
		var done atomic.Int64
		c, err := startPeer(ctx, pool, func() { done.Add(1) })
		if err != nil {
			return err
		}
		err = untilTrue(ctx, func() (bool, error) {
			if done.Load() < int64(n) {
				return false, nil
			}
			var ended bool
			err := pool.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM river_job WHERE state IN ('available', 'running'))`).Scan(&ended)
			return ended, err
		})
		return errors.Join(err, c.Stop(ctx))
	},
}

func startPeer(ctx context.Context, pool *pgxpool.Pool, did func()) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &peerWorker{did: did})
	c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: atBest}},
		FetchCooldown: 10 * time.Millisecond, FetchPollInterval: 100 * time.Millisecond,
		Workers: workers,
	})
	if err != nil {
		return nil, err
	}
	return c, c.Start(ctx)
}

// floorHouse is the least a queue can do: claim a hundred with SKIP LOCKED,
// delete them, two at a time.
var floorHouse = house{"claim and delete loop",
	func(ctx context.Context, pool *pgxpool.Pool, p payload, n int) error {
		text, err := json.Marshal(p)
		if err != nil {
			return err
		}
		_, err = pool.Exec(ctx, `INSERT INTO floor.queue (id, payload) SELECT i, $1::jsonb FROM generate_series(1, $2::bigint) AS i`, string(text), n)
		return err
	},
	func(ctx context.Context, pool *pgxpool.Pool, n int) error {
		var all sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			all.Go(func() {
				for {
					got, err := claimAndDelete(ctx, pool)
					if got == 0 || err != nil {
						errs[i] = err
						return
					}
				}
			})
		}
		all.Wait()
		return errors.Join(errs...)
	},
}

func claimAndDelete(ctx context.Context, pool *pgxpool.Pool) (int, error) {
	rows, _ := pool.Query(ctx, `UPDATE floor.queue SET state = 1 WHERE id = ANY (ARRAY (
			SELECT id FROM floor.queue WHERE state = 0 ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED))
		RETURNING id, payload`)
	ids := make([]int64, 0, 100)
	_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (payload, error) {
		var id int64
		var p payload
		err := row.Scan(&id, &p)
		ids = append(ids, id)
		return p, err
	})
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	_, err = pool.Exec(ctx, `DELETE FROM floor.queue WHERE id = ANY ($1)`, ids)
	return len(ids), err
}

// untilTrue asks until there is a yes.
func untilTrue(ctx context.Context, ask func() (bool, error)) error {
	for {
		if yes, err := ask(); yes || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

// work measures jobs from the worker's start to the last recorded end.
func (r *runner) work(ctx context.Context) error {
	set := setting{Conns: 8, Payload: 200, Durable: true}
	at, err := r.open(ctx, set)
	if err != nil {
		return err
	}
	defer at.close(ctx)
	houses := []house{floorHouse, ourHouse, peerHouse}
	rates := map[string][]float64{}
	wal := map[string][]float64{}
	for range r.plan.workRounds {
		for _, h := range houses {
			if err := at.empty(ctx); err != nil {
				return err
			}
			if err := h.fill(ctx, at.site.pool, newPayload(set.Payload), r.plan.workJobs); err != nil {
				return fmt.Errorf("%s: %w", h.name, err)
			}
			before, err := walBytes(ctx, r.server.admin)
			if err != nil {
				return err
			}
			began := time.Now()
			if err := h.work(ctx, at.site.pool, r.plan.workJobs); err != nil {
				return fmt.Errorf("%s: %w", h.name, err)
			}
			n := float64(r.plan.workJobs)
			rates[h.name] = append(rates[h.name], n/time.Since(began).Seconds())
			after, err := walBytes(ctx, r.server.admin)
			if err != nil {
				return err
			}
			wal[h.name] = append(wal[h.name], float64(after-before)/n)
		}
	}
	r.versus("work", set, measureRate, rates, ourHouse.name, floorHouse.name, peerHouse.name)
	r.versus("work", set, measureRate, rates, peerHouse.name, floorHouse.name)
	r.versus("work", set, measureWAL, wal, ourHouse.name, floorHouse.name, peerHouse.name)
	return nil
}

// versus reports one series of rounds beside others.
func (r *runner) versus(group string, set setting, measure string, rounds map[string][]float64, name string, others ...string) {
	for _, other := range others {
		var ratio []float64
		for n, v := range rounds[name] {
			ratio = append(ratio, v/rounds[other][n])
		}
		r.report.add(Figure{Group: group, Name: name, Floor: other, Measure: measure, Setting: set,
			Value: spreadOf(rounds[name]), Base: spreadOf(rounds[other]), Ratio: spreadOf(ratio)})
	}
}
