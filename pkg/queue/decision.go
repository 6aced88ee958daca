package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/db"
)

// decision is what a prepared request, or a batch of them, asks of PostgreSQL.
type decision interface {
	// decide asks, in as few statements as the case allows. alone tells that the
	// first of them is a transaction of its own, so that whatever it must not
	// commit it has to refuse itself, as refusedItself tells. errUnsettled says
	// that what was written so far must be rolled back before asking again.
	decide(ctx context.Context, q *db.Queries, alone bool) ([]Result, error)
	// partial tells that decide can end in errUnsettled.
	partial() bool
}

var errUnsettled = errors.New("keys changed hands while they were decided")

// maxTries bounds how often a decision is asked for anew. Every lost race means
// that somebody else's transaction ended well, so a few are enough.
const maxTries = 16

// alone decides in transactions of the client's own: one that is a single
// statement and, when that met another request's transaction, one that keeps its
// locks until it has an answer. It repeats what PostgreSQL could not fit between
// others: the statement once, since its isolation is the session's default and may
// be stricter than it need be, then the transaction, which is READ COMMITTED.
func (c *Client) alone(ctx context.Context, d decision) ([]Result, error) {
	if err := c.checkSchema(ctx, c.own); err != nil {
		return nil, err
	}
	var err error
	for try := range maxTries {
		if try > 0 {
			if err := pause(ctx, try); err != nil {
				return nil, err
			}
		}
		var results []Result
		results, err = d.decide(ctx, c.own, true)
		if refusedItself(err) || errors.Is(err, errUnsettled) || try > 0 && retryable(err) {
			results, err = c.inOwn(ctx, d)
		}
		if !errors.Is(err, errUnsettled) && !retryable(err) {
			return results, classify(err)
		}
	}
	return nil, retryTransaction(err)
}

// inOwn decides in a transaction of several statements; what does not settle is
// asked again in another, at most a few times.
func (c *Client) inOwn(ctx context.Context, d decision) (results []Result, err error) {
	for range 4 {
		if results, err = c.inOwnOnce(ctx, d); !errors.Is(err, errUnsettled) {
			break
		}
	}
	return results, err
}

func (c *Client) inOwnOnce(ctx context.Context, d decision) (results []Result, err error) {
	err = pgx.BeginTxFunc(ctx, c.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		results, err = d.decide(ctx, c.queries(tx), false)
		return err
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// inside decides in the caller's transaction. A decision that can leave
// something half done works under a savepoint; the order of locks forbids to
// keep the part that was done and to ask for the rest.
func (c *Client) inside(ctx context.Context, tx Tx, d decision) ([]Result, error) {
	q := c.queries(tx)
	if err := c.checkSchema(ctx, q); err != nil {
		return nil, err
	}
	if !d.partial() {
		results, err := d.decide(ctx, q, false)
		if errors.Is(err, errUnsettled) || retryable(err) {
			return nil, retryTransaction(err)
		}
		return results, classify(err)
	}
	if err := q.Savepoint(ctx); err != nil {
		return nil, err
	}
	for try := range maxTries {
		if try > 0 {
			if err := pause(ctx, try); err != nil {
				return nil, err
			}
		}
		results, err := d.decide(ctx, q, false)
		if err == nil {
			return results, q.ReleaseSavepoint(ctx)
		}
		if back := q.RollbackToSavepoint(ctx); back != nil {
			return nil, errors.Join(classify(err), back)
		}
		if retryable(err) {
			return nil, retryTransaction(err)
		}
		if !errors.Is(err, errUnsettled) {
			return nil, errors.Join(classify(err), q.ReleaseSavepoint(ctx))
		}
	}
	return nil, retryTransaction(errUnsettled)
}

// pause waits a moment before another try: up to 2 ms doubled at each, at most
// half a second, by chance, so that those who met once don't meet again.
func pause(ctx context.Context, try int) error {
	most := min(500*time.Millisecond, time.Millisecond<<try)
	timer := time.NewTimer(rand.N(most))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// again asks until PostgreSQL does not roll the statement back for the sake of
// others, as it may where a role's transactions are stricter than READ COMMITTED.
func again(ctx context.Context, ask func() error) error {
	for try := 1; ; try++ {
		err := ask()
		if !retryable(err) || try == maxTries {
			return err
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}

// sqlState is the code of a PostgreSQL error of any driver, or "".
func sqlState(err error) string {
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	return ""
}

// retryable tells that PostgreSQL rolled a transaction back for the sake of
// others: serialization_failure or deadlock_detected.
func retryable(err error) bool {
	state := sqlState(err)
	return state == "40001" || state == "40P01"
}

// refusedItself tells that a statement that was its own transaction ended
// itself, on purpose, by reading a text in queries/ as a number.
func refusedItself(err error) bool {
	return sqlState(err) == "22P02" && strings.Contains(err.Error(), "onceq waited for another transaction")
}

func retryTransaction(err error) error { return fmt.Errorf("%w: %w", ErrRetryTransaction, err) }

// classify adds to an error of PostgreSQL what it means here.
func classify(err error) error {
	switch sqlState(err) {
	case "42P01", "42703", "3F000": // undefined table, column, schema
		return fmt.Errorf("%w: run `onceq migrate up` or schema.Migrate: %w", ErrSchemaOutdated, err)
	}
	return err
}
