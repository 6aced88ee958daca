//go:build unix

package crashtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// The types of the jobs that a worker process handles.
const (
	flowType  = "flow"
	staleType = "stale"
)

// makeTables makes what the handlers of worker processes write, for a test to
// read. They have no constraints: what must not happen must show.
func makeTables(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	pgtest.Exec(t, pool, `CREATE TABLE started (job_id uuid NOT NULL, attempt integer NOT NULL, worker text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())`)
	pgtest.Exec(t, pool, `CREATE TABLE effect (job_id uuid NOT NULL, attempt integer NOT NULL, how text NOT NULL)`)
	pgtest.Exec(t, pool, `CREATE TABLE report (job_id uuid NOT NULL, attempt integer NOT NULL, said text NOT NULL)`)
	pgtest.Exec(t, pool, `CREATE TABLE permit (job_id uuid NOT NULL, attempt integer NOT NULL)`)
}

// runWorker is the whole of a worker process. It ends when the worker has
// drained after SIGTERM, or at once when the parent has gone.
func runWorker(text string) (code int) {
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := work(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func work(ctx context.Context, s spec) error {
	cfg, err := pgxpool.ParseConfig(s.URL)
	if err != nil {
		return err
	}
	cfg.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	c, err := queue.New(pool, queue.Config{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	w, err := queue.NewWorker(c, queue.WorkerConfig{ID: s.ID, Lease: s.Lease, Queues: map[string]int{"default": s.Handlers}})
	if err != nil {
		return err
	}
	h := handlers{pool: pool, worker: s.ID}
	queue.Handle(w, flowType, h.flow)
	queue.Handle(w, staleType, h.stale)
	return w.Run(ctx)
}

// handlers are those of a worker process.
type handlers struct {
	pool   *pgxpool.Pool
	worker string
}

// started notes that an attempt's handler began.
func (h handlers) started(ctx context.Context, id queue.JobID, attempt int) error {
	_, err := h.pool.Exec(ctx, `INSERT INTO started (job_id, attempt, worker) VALUES ($1, $2, $3)`, string(id), attempt, h.worker)
	return err
}

// effect is the work of a handler.
func effect(ctx context.Context, q pgtest.Querier, id queue.JobID, attempt int, how string) error {
	rows, err := q.Query(ctx, `INSERT INTO effect (job_id, attempt, how) VALUES ($1, $2, $3)`, string(id), attempt, how)
	if err != nil {
		return err
	}
	rows.Close()
	return rows.Err()
}

// How the jobs of the flow do their work.
const (
	inNoTransaction = "in no transaction" // at least once
	withCompletion  = "with completion"   // exactly once
	withCheckpoint  = "with checkpoint"   // exactly once
)

// flowWork is what a job of the flow is to do.
type flowWork struct {
	How      string
	Takes    time.Duration // at most
	Stumbles bool          // the first attempt fails
}

func (h handlers) flow(ctx context.Context, job *queue.Job[flowWork]) error {
	if err := h.started(ctx, job.ID, job.Attempt); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(rand.N(job.Payload.Takes + 1)):
	}
	if job.Payload.Stumbles && job.Attempt == 1 {
		return queue.RetryAfter(errors.New("the first attempt fails"), rand.N(50*time.Millisecond))
	}
	switch job.Payload.How {
	case withCompletion:
		return pgx.BeginFunc(ctx, h.pool, func(tx pgx.Tx) error {
			if err := effect(ctx, tx, job.ID, job.Attempt, withCompletion); err != nil {
				return err
			}
			return queue.CompleteTx(ctx, tx, job)
		})
	case withCheckpoint:
		_, err := queue.CheckpointTx(ctx, job, "effect", func(ctx context.Context, tx pgx.Tx) (int, error) {
			return job.Attempt, effect(ctx, tx, job.ID, job.Attempt, withCheckpoint)
		})
		return err
	default:
		return effect(ctx, h.pool, job.ID, job.Attempt, inNoTransaction)
	}
}

// staleWork is what the first attempt of a job does once it is permitted to,
// whatever its context says. Later attempts of act checkpoint save one too, and
// succeed.
type staleWork struct{ Act act }

type act string

const (
	complete     act = "complete"
	fail         act = "fail"
	checkpoint   act = "checkpoint"
	checkpointTx act = "checkpointTx"
	completeTx   act = "completeTx"
	wait         act = "wait" // for the end of the context
)

func (h handlers) stale(ctx context.Context, job *queue.Job[staleWork]) error {
	lasting := context.WithoutCancel(ctx)
	if err := h.started(lasting, job.ID, job.Attempt); err != nil {
		return err
	}
	if job.Payload.Act == wait {
		<-ctx.Done()
		return h.report(lasting, job, context.Cause(ctx))
	}
	if err := h.permitted(lasting, job.ID, job.Attempt); err != nil {
		return err
	}
	err := h.perform(lasting, job)
	if reported := h.report(lasting, job, err); reported != nil {
		return reported
	}
	if job.Attempt == 1 && job.Payload.Act == fail {
		return queue.Permanent(errors.New("a stale failure"))
	}
	return nil
}

// perform does what can be refused to the handler itself.
func (h handlers) perform(ctx context.Context, job *queue.Job[staleWork]) error {
	switch job.Payload.Act {
	case checkpoint:
		_, err := queue.Checkpoint(ctx, job, "stage", func(context.Context) (int, error) { return job.Attempt, nil })
		return err
	case checkpointTx:
		_, err := queue.CheckpointTx(ctx, job, "stage", func(ctx context.Context, tx pgx.Tx) (int, error) {
			return job.Attempt, effect(ctx, tx, job.ID, job.Attempt, withCheckpoint)
		})
		return err
	case completeTx:
		return pgx.BeginFunc(ctx, h.pool, func(tx pgx.Tx) error {
			if err := effect(ctx, tx, job.ID, job.Attempt, withCompletion); err != nil {
				return err
			}
			return queue.CompleteTx(ctx, tx, job)
		})
	}
	return nil
}

// permitted waits until the test lets an attempt go on.
func (h handlers) permitted(ctx context.Context, id queue.JobID, attempt int) error {
	for {
		var may bool
		err := h.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM permit WHERE job_id = $1 AND attempt = $2)`, string(id), attempt).Scan(&may)
		if may || err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// report tells the test how an attempt's own calls ended.
func (h handlers) report(ctx context.Context, job *queue.Job[staleWork], err error) error {
	said := "ok"
	if errors.Is(err, queue.ErrLeaseLost) {
		said = "lease lost"
	} else if err != nil {
		said = err.Error()
	}
	_, err = h.pool.Exec(ctx, `INSERT INTO report (job_id, attempt, said) VALUES ($1, $2, $3)`, string(job.ID), job.Attempt, said)
	return err
}
