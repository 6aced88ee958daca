package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/db"
	"github.com/onceq/onceq/internal/schemaname"
)

// Client enqueues requests and reads what became of them. It is safe for
// concurrent use, holds no connection and needs no closing.
type Client struct {
	pool       *pgxpool.Pool
	own        *db.Queries       // on the pool
	fresh      *db.Queries       // the same, each statement planned anew
	planning   pgx.QueryExecMode // of fresh; 0: as the pool's
	schema     string
	log        *slog.Logger
	hashers    []keyHasher // of keys, the newest secret's first
	orders     []keyHasher // of redrive request ids, likewise
	maxPayload int
	waker      *waker
	retention  Retention
	repeats    repeats
	current    atomic.Bool // the schema was seen to be new enough
}

// pollOnly tells that nobody notifies and nobody listens.
func (c *Client) pollOnly() bool { return c.waker == nil }

// New returns a client on pool. It dials nothing; it refuses a Config with a
// value out of bounds, naming every one.
func New(pool *pgxpool.Pool, cfg Config) (*Client, error) {
	if pool == nil {
		return nil, errors.New("queue: new client: the pool is nil")
	}
	if cfg.Schema == "" {
		cfg.Schema = schemaname.Default
	}
	if cfg.MaxPayloadBytes == 0 {
		cfg.MaxPayloadBytes = defaultPayloadBytes
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Retention = cfg.Retention.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("queue: new client: %w", err)
	}
	c := &Client{pool: pool, schema: cfg.Schema, log: cfg.Logger, maxPayload: cfg.MaxPayloadBytes, retention: cfg.Retention}
	c.planning = planningMode(pool.Config().ConnConfig)
	c.own, c.fresh = c.queries(pool), c.planned(pool)
	for _, secret := range append([][]byte{cfg.KeySecret}, cfg.PreviousKeySecrets...) {
		c.hashers = append(c.hashers, newKeyHasher(secret))
		c.orders = append(c.orders, newHasher(redriveDomain, secret))
	}
	if !cfg.PollOnly {
		c.waker = newWaker(c)
	}
	return c, nil
}

// Enqueue is EnqueueWithResult for callers that need the job's id alone: a
// repeat of an accepted request returns the first job's id.
func (c *Client) Enqueue(ctx context.Context, req Request) (JobID, error) {
	res, err := c.EnqueueWithResult(ctx, req)
	return res.JobID, err
}

// EnqueueWithResult hands over a request and says what was decided. An accepted
// request is one statement and one round trip, and so is a replay, which writes
// and locks nothing. A lost race, an expired key, and a new key after a row of
// repeats take a second one.
//
// Errors: ErrInvalidRequest before anything is sent; an
// [EnqueueIdempotencyConflictError] when the key is owned by a different
// request; ErrSchemaOutdated; otherwise the driver's. After an error of the
// connection or the context the request was either accepted as a whole or not
// at all, and with a key it is always safe to repeat it.
//
// The decision is made in queries/enqueue.sql.
func (c *Client) EnqueueWithResult(ctx context.Context, req Request) (Result, error) {
	d, err := c.decisionFor(req)
	if err != nil {
		return Result{}, fmt.Errorf("queue: enqueue: %w", err)
	}
	results, err := c.alone(ctx, d)
	if err != nil {
		return Result{}, fmt.Errorf("queue: enqueue: %w", err)
	}
	return results[0], nil
}

// EnqueueTx is EnqueueWithResult inside the caller's transaction: the job and
// the caller's own rows commit together or not at all. Another request with the
// same key waits for this transaction to end. ErrRetryTransaction tells that
// the whole transaction must be run again; a conflict leaves it usable.
func (c *Client) EnqueueTx(ctx context.Context, tx Tx, req Request) (Result, error) {
	d, err := c.decisionFor(req)
	if err != nil {
		return Result{}, fmt.Errorf("queue: enqueue: %w", err)
	}
	results, err := c.inside(ctx, tx, d)
	if err != nil {
		return Result{}, fmt.Errorf("queue: enqueue: %w", err)
	}
	return results[0], nil
}

// EnqueueMany hands over up to 1,000 requests at once, with payloads of at most
// 256 MiB together, all or nothing; result i is for request i. Requests of one
// batch with one key are decided as if sent one after the other; under two
// admissions they are invalid. Invalid requests are all reported, each as a
// [RequestError]; so are conflicts, up to 20 of them. An empty batch makes no
// query.
func (c *Client) EnqueueMany(ctx context.Context, reqs []Request) ([]Result, error) {
	if len(reqs) == 0 {
		return []Result{}, nil
	}
	b, err := c.newBatch(reqs)
	if err != nil {
		return nil, fmt.Errorf("queue: enqueue many: %w", err)
	}
	results, err := c.alone(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("queue: enqueue many: %w", err)
	}
	return results, nil
}

// EnqueueManyTx is EnqueueMany inside the caller's transaction. It works under
// a savepoint, so that a refused batch leaves nothing behind and the
// transaction usable.
func (c *Client) EnqueueManyTx(ctx context.Context, tx Tx, reqs []Request) ([]Result, error) {
	if len(reqs) == 0 {
		return []Result{}, nil
	}
	b, err := c.newBatch(reqs)
	if err != nil {
		return nil, fmt.Errorf("queue: enqueue many: %w", err)
	}
	results, err := c.inside(ctx, tx, b)
	if err != nil {
		return nil, fmt.Errorf("queue: enqueue many: %w", err)
	}
	return results, nil
}
