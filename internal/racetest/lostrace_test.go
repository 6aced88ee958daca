package racetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// lostRaces lets a second caller wait for a first one that commits.
type lostRaces struct {
	server  *pgxpool.Pool
	o       *observer
	inspect bool
	first   *queue.Client
}

func newLostRaces(t *testing.T) lostRaces {
	t.Helper()
	server := quiet(t)
	r := lostRaces{server: server, o: observe(t, server), inspect: extension(t, server, "pg_walinspect")}
	r.first = newClient(t, server, queue.Config{PollOnly: true})
	accept(t, r.first, order(0))
	return r
}

// at is a pool whose statements are transactions of the level.
func (r lostRaces) at(t *testing.T, level pgx.TxIsoLevel) *pgxpool.Pool {
	t.Helper()
	return pgtest.Reconnect(t, r.server, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = string(level)
	})
}

// lose runs one race and wants that all that is written, and every transaction
// id that is used, from the winner's commit on is the winner's.
func (r lostRaces) lose(t *testing.T, ask func(context.Context, queue.Request) error) {
	t.Helper()
	if err := ask(t.Context(), order(0)); err != nil { // statements prepared, catalogues read
		t.Fatal(err)
	}
	req := order(0)
	req.Admission = queue.Idempotency{Key: "lost race " + t.Name()}
	tx, err := r.server.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	won, err := r.first.EnqueueTx(t.Context(), tx, req)
	if err != nil {
		t.Fatal(err)
	}
	winner := pgtest.Scan[int64](t, tx, `SELECT pg_current_xact_id()::text::bigint`)
	// Under a savepoint the winner has used a second one.
	last := pgtest.Scan[int64](t, tx, `SELECT greatest($2, max(xmin::text::bigint)) FROM onceq.binding WHERE job_id = $1`, string(won.JobID), winner)

	answer := make(chan error, 1)
	go func() { answer <- ask(t.Context(), req) }()
	pgtest.AwaitBlocked(t, r.server, 1)
	before := walPosition(t, r.server)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; err != nil {
		t.Fatalf("whoever lost the race replays: %v", err)
	}

	if next := nextXID(t, r.server); next != fmt.Sprint(last+1) {
		t.Errorf("a lost race uses no transaction id: after the winner's, %d, the next is %s", last, next)
	}
	if locked := pgtest.Scan[string](t, r.server, `SELECT max(xmax::text) FROM onceq.binding WHERE job_id = $1`, string(won.JobID)); locked != "0" {
		t.Errorf("a lost race locks no row: the winner's binding has xmax %s", locked)
	}
	if heard := r.o.listen(t); len(heard) > 0 {
		t.Errorf("a lost race wakes nobody: heard %q", heard)
	}
	if r.inspect {
		if wal := walSince(t, r.server, before); len(wal) != 1 || wal[0].XID != fmt.Sprint(winner) || wal[0].Type != "COMMIT" {
			t.Errorf("a lost race writes no WAL: besides the commit of %d there is %+v", winner, wal)
		}
	}
}

// A caller that lost a race waited for the winner, then asked once more. It has
// no more part in the WAL than any replay.
func TestClient_lostRaceLeavesNoTrace(t *testing.T) {
	t.Parallel()
	r := newLostRaces(t)
	for _, level := range levels {
		pool := r.at(t, level)
		c := newClient(t, pool, queue.Config{})
		t.Run(fmt.Sprintf("at %s, alone", level), func(t *testing.T) {
			r.lose(t, func(ctx context.Context, req queue.Request) error {
				return want(queue.OutcomeReplayed)(c.EnqueueWithResult(ctx, req))
			})
		})
		t.Run(fmt.Sprintf("at %s, in a caller's transaction", level), func(t *testing.T) {
			r.lose(t, func(ctx context.Context, req queue.Request) error {
				err := inTx(pool, level, func(ctx context.Context, tx pgx.Tx) error {
					return want(queue.OutcomeReplayed)(c.EnqueueTx(ctx, tx, req))
				})(ctx)
				if errors.Is(err, queue.ErrRetryTransaction) && level != pgx.ReadCommitted {
					return nil // PostgreSQL could not fit it in; that, too, writes nothing
				}
				return err
			})
		})
	}
}

// The same for requests that queries/enqueue_many.sql decides.
func TestClient_lostRaceOfABatchLeavesNoTrace(t *testing.T) {
	t.Parallel()
	r := newLostRaces(t)
	c := newClient(t, r.server, queue.Config{})
	t.Run("a batch of one", func(t *testing.T) {
		r.lose(t, func(ctx context.Context, req queue.Request) error {
			return wantAll(c.EnqueueMany(ctx, []queue.Request{req}))
		})
	})
	t.Run("a single request while a secret is rotated", func(t *testing.T) {
		rotated := newClient(t, r.server, queue.Config{KeySecret: []byte("sixteen bytes or more"), PreviousKeySecrets: [][]byte{nil}})
		// The winner rotates, too. One that knows the old secret alone leaves the
		// loser a key to bind, of which a rollback is all that is left.
		r.first = newClient(t, r.server, queue.Config{KeySecret: []byte("sixteen bytes or more"), PreviousKeySecrets: [][]byte{nil}, PollOnly: true})
		r.lose(t, func(ctx context.Context, req queue.Request) error {
			return want(queue.OutcomeReplayed)(rotated.EnqueueWithResult(ctx, req))
		})
	})
}
