package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/onceq/onceq/pkg/queue"
)

// A level is a queue that is kept as full as it is: what its worker takes away is
// put back in batches.
type level struct {
	at      *place
	client  *queue.Client
	payload payload
	worked  atomic.Int64
}

func (r *runner) newLevel(ctx context.Context, waiting int) (*level, error) {
	set := setting{Conns: 8, Payload: 200, Durable: true}
	at, err := r.open(ctx, set)
	if err != nil {
		return nil, err
	}
	c, err := queue.New(at.site.pool, queue.Config{})
	if err != nil {
		return nil, err
	}
	l := &level{at: at, client: c, payload: newPayload(set.Payload)}
	if err := fillOurs(ctx, c, l.payload, waiting); err != nil {
		return nil, err
	}
	_, err = at.site.pool.Exec(ctx, `VACUUM ANALYZE`)
	return l, err
}

// run works for a while and returns the jobs per second, leaving out the start.
func (l *level) run(ctx context.Context, length time.Duration) (float64, error) {
	l.worked.Store(0)
	feeding, stopFeeding := context.WithCancel(ctx)
	fed := make(chan error, 1)
	go func() { fed <- l.feed(feeding) }()
	stop, err := startWorker(ctx, l.client, handlers, func() { l.worked.Add(1) })
	if err != nil {
		stopFeeding()
		return 0, errors.Join(err, <-fed)
	}
	pauseFor(ctx, length/8)
	from, began := l.worked.Load(), time.Now()
	pauseFor(ctx, length-length/8)
	rate := float64(l.worked.Load()-from) / time.Since(began).Seconds()
	err = stop()
	stopFeeding()
	return rate, errors.Join(err, <-fed)
}

// feed puts back what was worked, up to the end.
func (l *level) feed(ctx context.Context) error {
	var put int64
	for ctx.Err() == nil {
		if l.worked.Load()-put < batchRows/2 {
			pauseFor(ctx, time.Millisecond)
			continue
		}
		if err := fillOurs(context.WithoutCancel(ctx), l.client, l.payload, batchRows/2); err != nil {
			return err
		}
		put += batchRows / 2
	}
	return fillOurs(context.WithoutCancel(ctx), l.client, l.payload, int(max(l.worked.Load()-put, 0)))
}
