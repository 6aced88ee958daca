package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/pkg/queue"
)

const batchRows = 1000

const day = 24 * time.Hour

// accept is an enqueue under a key of its own.
var accept = enqueues("accepted", queue.OutcomeAccepted, queue.Config{}, func(s *site, i int64) queue.Request {
	return s.keyed(fmt.Sprint("fresh ", i), i)
})

// acceptPolling is the same by a client that wakes nobody.
var acceptPolling = enqueues("accepted, PollOnly", queue.OutcomeAccepted, queue.Config{PollOnly: true}, func(s *site, i int64) queue.Request {
	return s.keyed(fmt.Sprint("polled ", i), i)
})

// acceptPlain is an enqueue without a key.
var acceptPlain = enqueues("accepted without a key", queue.OutcomeAccepted, queue.Config{}, func(s *site, i int64) queue.Request {
	return queue.Request{Type: "bench", Payload: s.payload.with(i)}
})

// replay repeats requests that were accepted before.
var replay = repeats("replay", queue.OutcomeReplayed, func(s *site, n int64) queue.Request {
	return s.keyed(fmt.Sprint("kept ", n), n)
})

// coalesce repeats throttled requests within their window.
var coalesce = repeats("coalesced", queue.OutcomeCoalesced, func(s *site, n int64) queue.Request {
	return queue.Request{Type: "bench", Payload: s.payload.with(n), Admission: queue.Throttle{Key: fmt.Sprint("throttled ", n), Scope: "throttle", Window: day}}
})

// conflict asks for kept keys with another payload.
var conflict = contender{name: "conflict", open: func(ctx context.Context, s *site) (call, error) {
	c, err := queue.New(s.pool, queue.Config{})
	if err != nil {
		return nil, err
	}
	request := func(n, order int64) queue.Request {
		r := s.keyed(fmt.Sprint("disputed ", n), order)
		r.Admission = queue.Idempotency{Key: fmt.Sprint("disputed ", n), Scope: "dispute", TTL: day}
		return r
	}
	if err := enqueueKept(ctx, c, func(n int64) queue.Request { return request(n, n) }); err != nil {
		return nil, err
	}
	return func(ctx context.Context, i int64) error {
		_, err := c.Enqueue(ctx, request(i%kept, -1))
		if _, ok := errors.AsType[*queue.EnqueueIdempotencyConflictError](err); ok {
			return nil
		}
		return fmt.Errorf("want a conflict, got %w", err)
	}, nil
}}

// replace gives waiting debounced jobs another definition.
var replace = repeats("replaced", queue.OutcomeReplaced, func(s *site, n int64) queue.Request {
	return queue.Request{Type: "bench", Payload: s.payload.with(n), Admission: queue.Debounce{Key: fmt.Sprint("debounced ", n), Scope: "debounce", Window: day}}
})

func (s *site) keyed(key string, i int64) queue.Request {
	return queue.Request{Type: "bench", Payload: s.payload.with(i), Admission: queue.Idempotency{Key: key, TTL: day}}
}

// enqueues is a contender that enqueues one request at a call.
func enqueues(name string, want queue.Outcome, cfg queue.Config, request func(*site, int64) queue.Request) contender {
	return contender{name: name, open: func(_ context.Context, s *site) (call, error) {
		c, err := queue.New(s.pool, cfg)
		if err != nil {
			return nil, err
		}
		return asks(c, want, func(i int64) queue.Request { return request(s, i) }), nil
	}}
}

// repeats is a contender whose requests go round in those that were accepted
// before it began.
func repeats(name string, want queue.Outcome, request func(*site, int64) queue.Request) contender {
	return contender{name: name, open: func(ctx context.Context, s *site) (call, error) {
		c, err := queue.New(s.pool, queue.Config{})
		if err != nil {
			return nil, err
		}
		if err := enqueueKept(ctx, c, func(n int64) queue.Request { return request(s, n) }); err != nil {
			return nil, err
		}
		return asks(c, want, func(i int64) queue.Request { return request(s, i%kept) }), nil
	}}
}

func asks(c *queue.Client, want queue.Outcome, request func(int64) queue.Request) call {
	return func(ctx context.Context, i int64) error {
		res, err := c.EnqueueWithResult(ctx, request(i))
		if err == nil && res.Outcome != want {
			err = fmt.Errorf("want %s, got %s", want, res.Outcome)
		}
		return err
	}
}

func enqueueKept(ctx context.Context, c *queue.Client, request func(int64) queue.Request) error {
	for n := int64(0); n < kept; n += batchRows {
		if _, err := c.EnqueueMany(ctx, requests(n, batchRows, request)); err != nil {
			return err
		}
	}
	return nil
}

func requests(from int64, n int, request func(int64) queue.Request) []queue.Request {
	all := make([]queue.Request, n)
	for i := range all {
		all[i] = request(from + int64(i))
	}
	return all
}

// batchOf is a contender that enqueues a thousand requests at a call, of which
// some repeat those accepted before.
func batchOf(name string, repeated func(n int64) bool) contender {
	return contender{name: name, rows: batchRows, open: func(ctx context.Context, s *site) (call, error) {
		c, err := queue.New(s.pool, queue.Config{})
		if err != nil {
			return nil, err
		}
		same := func(n int64) queue.Request { return s.keyed(fmt.Sprint(name, " kept ", n), n) }
		if _, err := c.EnqueueMany(ctx, requests(0, batchRows, same)); err != nil {
			return nil, err
		}
		return func(ctx context.Context, i int64) error {
			_, err := c.EnqueueMany(ctx, requests(0, batchRows, func(n int64) queue.Request {
				if repeated(n) {
					return same(n)
				}
				return s.keyed(fmt.Sprint(name, " ", i, " ", n), n)
			}))
			return err
		}, nil
	}}
}

var (
	batchFresh   = batchOf("batch, fresh", func(int64) bool { return false })
	batchReplays = batchOf("batch, replays", func(int64) bool { return true })
	batchHalf    = batchOf("batch, half and half", func(n int64) bool { return n%2 == 0 })
)
