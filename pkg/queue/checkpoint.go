package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/db"
)

const (
	maxStageCharacters = 200
	maxCheckpointBytes = 1 << 20
)

// stages are the checkpoints that an attempt has asked for.
type stages struct {
	mu    sync.Mutex
	calls map[string]*stageCall
}

// stageCall is one run of a stage; concurrent callers share it.
type stageCall struct {
	done  chan struct{}
	value json.RawMessage
	err   error
}

// once runs f for the first caller of a stage and gives the others its result. A
// failed run is forgotten, so that the handler may try again.
func (s *stages) once(ctx context.Context, stage string, f func() (json.RawMessage, error)) (json.RawMessage, error) {
	s.mu.Lock()
	if call, ok := s.calls[stage]; ok {
		s.mu.Unlock()
		select {
		case <-call.done:
			return call.value, call.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	call := &stageCall{done: make(chan struct{}), err: errors.New("queue: the stage panicked")}
	if s.calls == nil {
		s.calls = map[string]*stageCall{}
	}
	s.calls[stage] = call
	s.mu.Unlock()
	defer func() {
		if call.err != nil {
			s.mu.Lock()
			delete(s.calls, stage)
			s.mu.Unlock()
		}
		close(call.done)
	}()
	call.value, call.err = f()
	return call.value, call.err
}

// Checkpoint returns the saved value of a stage if an earlier attempt completed
// it; otherwise it runs the function and saves what it returns. Concurrent calls
// for one stage in a handler run it once. A stage is named by 1 to 200
// characters of valid UTF-8; its value is at most 1 MiB of JSON.
//
// It is not exactly once for effects outside the database: a crash can fall
// between the effect and the save. Give the provider the job's id, or the id and
// the stage's name, as its idempotency key.
//
// Errors: the function's own; ErrLeaseLost when the job is no longer this
// attempt's; ErrInvalidRequest for a name or a value out of bounds.
func Checkpoint[T, P any](ctx context.Context, job *Job[P], stage string, run func(context.Context) (T, error)) (T, error) {
	a := job.attempt
	return stageValue[T](ctx, a, stage, func() (json.RawMessage, error) {
		q := a.w.q
		if saved, err := savedStage(ctx, q, a, stage); saved != nil || err != nil {
			return saved, err
		}
		value, err := run(ctx)
		if err != nil {
			return nil, err
		}
		text, err := stageText(value)
		if err != nil {
			return nil, err
		}
		return text, again(ctx, func() error { return saveStage(ctx, q, a, stage, text) })
	})
}

// CheckpointTx is Checkpoint with a transaction: what the function does in it and
// the saved value commit together, so the stage's effect inside this database
// happens exactly once. The function must neither commit nor roll back. The
// transaction is READ COMMITTED, whatever the role's default: a stricter one would
// not bear the heartbeats meanwhile.
func CheckpointTx[T, P any](ctx context.Context, job *Job[P], stage string, run func(context.Context, pgx.Tx) (T, error)) (T, error) {
	a := job.attempt
	return stageValue[T](ctx, a, stage, func() (text json.RawMessage, err error) {
		a.inTx.Add(1)
		defer a.inTx.Add(-1)
		err = pgx.BeginTxFunc(ctx, a.w.c.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			q := a.w.c.queries(tx)
			if text, err = savedStage(ctx, q, a, stage); text != nil || err != nil {
				return err
			}
			value, err := run(ctx, tx)
			if err != nil {
				return err
			}
			if text, err = stageText(value); err != nil {
				return err
			}
			return saveStage(ctx, q, a, stage, text)
		})
		return text, err
	})
}

// CompleteTx completes the job inside the handler's transaction: the handler's
// own writes and the job's success commit together, or not at all. It is the
// last thing to do before Commit. Once committed, the job has succeeded,
// whatever the handler returns; if the transaction is not committed, the attempt
// fails. ErrLeaseLost tells that the job is no longer this attempt's: roll back.
//
// The transaction should be READ COMMITTED. Under a stricter level a heartbeat that
// came after its snapshot, so any attempt longer than a third of a lease, makes
// this fail with ErrRetryTransaction.
func CompleteTx[P any](ctx context.Context, tx pgx.Tx, job *Job[P]) error {
	a := job.attempt
	a.completing.Store(true)
	ended, err := a.w.c.queries(tx).CompleteJobs(ctx, db.CompleteJobsParams{
		JobIds: []string{string(a.id)}, Fences: []int32{a.fence}, Frees: []bool{a.frees}, WorkerID: a.w.cfg.ID,
	})
	if retryable(err) {
		err = retryTransaction(err)
	}
	if err != nil {
		return fmt.Errorf("queue: complete job %s: %w", a.id, err)
	}
	if ended == 0 {
		return fmt.Errorf("queue: complete job %s: %w", a.id, ErrLeaseLost)
	}
	a.inTx.Add(1)
	return nil
}

func stageValue[T any](ctx context.Context, a *attempt, stage string, f func() (json.RawMessage, error)) (T, error) {
	var value T
	var wrong problems
	wrong.characters("stage", stage, maxStageCharacters)
	if err := wrong.err(); err != nil {
		return value, fmt.Errorf("queue: checkpoint: %w", err)
	}
	text, err := a.stages.once(ctx, stage, f)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err) // why the context ended, before what came of it
	}
	if err != nil {
		return value, fmt.Errorf("queue: checkpoint %q: %w", stage, err)
	}
	if err := json.Unmarshal(text, &value); err != nil {
		return value, fmt.Errorf("queue: checkpoint %q: the saved value does not fit %T: %w", stage, value, hidePayload(err))
	}
	return value, nil
}

// savedStage is the value that a stage has, nil for none.
func savedStage(ctx context.Context, q *db.Queries, a *attempt, stage string) (json.RawMessage, error) {
	text, err := q.GetCheckpoint(ctx, db.GetCheckpointParams{JobID: string(a.id), Name: stage})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return json.RawMessage(text), err
}

func stageText(value any) (json.RawMessage, error) {
	text, _, err := encodePayload(value, maxCheckpointBytes)
	if err != nil {
		return nil, fmt.Errorf("%w: value: %w", ErrInvalidRequest, err)
	}
	return json.RawMessage(text), nil
}

func saveStage(ctx context.Context, q *db.Queries, a *attempt, stage string, text json.RawMessage) error {
	_, err := q.SaveCheckpoint(ctx, db.SaveCheckpointParams{JobID: string(a.id), Fence: a.fence, WorkerID: a.w.cfg.ID, Name: stage, Value: string(text)})
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrLeaseLost
	}
	return err
}
