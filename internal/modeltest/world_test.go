package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/db"
	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// world is a database that one history at a time is played on.
type world struct {
	ctx    context.Context
	pool   *pgxpool.Pool
	client *queue.Client
	// work are a worker's own statements; early claims with a clock that is ahead.
	work, early *db.Queries
	began       time.Time // the history
	now         tick      // of the history
}

func newWorld(t testing.TB) *world {
	t.Helper()
	pool := pgtest.New(t)
	kept := retention.duration()
	client, err := queue.New(pool, queue.Config{Retention: queue.Retention{Succeeded: kept, Dead: kept, Cancelled: kept, Events: kept}})
	if err != nil {
		t.Fatal(err)
	}
	return &world{ctx: context.Background(), pool: pool, client: client, work: db.New(pool), early: db.New(aheadOf{pool})}
}

// aheadOf is a database whose clock is ahead.
type aheadOf struct{ db.DBTX }

func (a aheadOf) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	const clock = "clock_timestamp()"
	if !strings.Contains(sql, clock) {
		return nil, errors.New("the statement does not read the clock")
	}
	return a.DBTX.Query(ctx, strings.ReplaceAll(sql, clock, fmt.Sprintf("(%s + interval '%d seconds')", clock, int(ahead.duration().Seconds()))), args...)
}

// begin forgets the last history.
func (w *world) begin() error {
	w.began, w.now = time.Now(), 0
	return w.all(
		"DELETE FROM onceq.binding", "DELETE FROM onceq.job", "DELETE FROM onceq.pending", "DELETE FROM onceq.running",
		"DELETE FROM onceq.finished", "DELETE FROM onceq.event")
}

// all runs statements in one transaction and one round trip.
func (w *world) all(statements ...string) error {
	var batch pgx.Batch
	for _, sql := range statements {
		batch.Queue(sql)
	}
	return w.pool.SendBatch(w.ctx, &batch).Close()
}

// pass moves everything that the database knows about time into the past, which
// is the same to it as if that time had passed.
func (w *world) pass(by tick) error {
	w.now += by
	back := fmt.Sprintf(" - interval '%d seconds'", int(by.duration().Seconds()))
	var statements []string
	for _, table := range []struct {
		name    string
		columns []string
	}{
		{"binding", []string{"accepted_at", "expires_at"}},
		{"job", []string{"accepted_at", "run_at", "deadline"}},
		{"pending", []string{"ready_at", "deadline"}},
		{"running", []string{"claimed_at", "lease_until", "deadline", "cancel_requested_at"}},
		{"finished", []string{"finished_at", "claimed_at"}},
		{"event", []string{"at"}},
	} {
		set := make([]string, len(table.columns))
		for i, column := range table.columns {
			set[i] = column + " = " + column + back
		}
		statements = append(statements, "UPDATE onceq."+table.name+" SET "+strings.Join(set, ", "))
	}
	return w.all(statements...)
}

// tickOf is an instant by the model's clock. What a history really takes is lost
// in the rounding.
func (w *world) tickOf(at time.Time) tick {
	return w.now + tick(math.Round(float64(at.Sub(w.began))/float64(tickLength)))
}

// do plays one operation.
func (w *world) do(op operation) answer {
	switch op.action {
	case enqueue, enqueueMany:
		return w.enqueue(op)
	case pass:
		return answer{err: w.pass(op.by)}
	case claim:
		return w.claim(op)
	case succeed, fail, handBack:
		return w.end(op)
	case cancel:
		status, err := w.client.Cancel(w.ctx, op.jobs[0], "a whim")
		return answer{told: string(status), err: err}
	case purge:
		filter := queue.PurgeFilter{JobIDs: op.jobs, All: true}
		if op.byQueue {
			filter.Queue = queues[op.only.queue][1]
		}
		if op.byType {
			filter.Type = kinds[op.only.kind]
		}
		n, err := w.client.Purge(w.ctx, filter)
		return answer{counts: []int64{n}, err: err}
	case maintain:
		return w.maintain()
	case look:
		held, err := w.holding()
		return answer{told: held, err: err}
	}
	return answer{}
}

func (w *world) enqueue(op operation) answer {
	reqs := make([]queue.Request, len(op.requests))
	for i, r := range op.requests {
		reqs[i] = r.real(w.began)
	}
	var results []queue.Result
	var err error
	if op.way == byClient {
		results, err = w.hand(op, reqs)
	} else {
		tx, beginErr := w.pool.Begin(w.ctx)
		if beginErr != nil {
			return answer{err: beginErr}
		}
		defer tx.Rollback(w.ctx)
		if op.action == enqueue {
			var res queue.Result
			res, err = w.client.EnqueueTx(w.ctx, tx, reqs[0])
			results = []queue.Result{res}
		} else {
			results, err = w.client.EnqueueManyTx(w.ctx, tx, reqs)
		}
		// A conflict leaves the transaction usable.
		if op.way == committed {
			if commitErr := tx.Commit(w.ctx); commitErr != nil {
				return answer{err: errors.Join(err, commitErr)}
			}
		}
	}
	if err != nil {
		return w.refusal(op, err)
	}
	return answer{results: results}
}

func (w *world) hand(op operation, reqs []queue.Request) ([]queue.Result, error) {
	if op.action == enqueueMany {
		return w.client.EnqueueMany(w.ctx, reqs)
	}
	res, err := w.client.EnqueueWithResult(w.ctx, reqs[0])
	return []queue.Result{res}, err
}

// refusal reads conflicts and invalid requests out of an error.
func (w *world) refusal(op operation, err error) answer {
	var a answer
	var read func(error)
	read = func(err error) {
		switch e := err.(type) {
		case *queue.EnqueueIdempotencyConflictError:
			c := conflict{index: e.Index, job: e.JobID, fields: e.Fields, key: e.Key.Scope, expires: w.tickOf(e.ExpiresAt)}
			if e.ExpiresAt.IsZero() {
				c.job, c.expires = "", 0
			}
			a.conflicts = append(a.conflicts, c)
		case *queue.RequestError:
			if errors.Is(e, queue.ErrInvalidRequest) {
				a.invalid = append(a.invalid, e.Index)
			} else {
				a.err = e
			}
		case interface{ Unwrap() []error }:
			for _, part := range e.Unwrap() {
				read(part)
			}
		case interface{ Unwrap() error }:
			read(e.Unwrap())
		default:
			a.err = err
		}
	}
	read(err)
	if a.conflicts == nil && a.invalid == nil && a.err == nil {
		a.err = err
	}
	return a
}

const workerID = "model"

func (w *world) claim(op operation) answer {
	statements := w.work
	if op.early {
		statements = w.early
	}
	var rows []db.ClaimJobsRow
	var err error
	if op.everyday {
		var plain []db.ClaimPlainRow
		plain, err = statements.ClaimPlain(w.ctx, db.ClaimPlainParams{
			Queue: queues[op.queue][1], Most: int64(op.most), Floors: make([]time.Time, 101), Types: kinds[:],
			LeaseUs: lease.duration().Microseconds(), WorkerID: workerID,
		})
		for _, row := range plain {
			rows = append(rows, db.ClaimJobsRow(row))
		}
	} else {
		rows, err = statements.ClaimJobs(w.ctx, db.ClaimJobsParams{
			Queue: queues[op.queue][1], Most: int64(op.most), Floors: make([]time.Time, 101), Types: kinds[:], FreedKeys: []string{},
			LeaseUs: lease.duration().Microseconds(), WorkerID: workerID,
		})
	}
	a := answer{err: err}
	for _, row := range rows {
		if row.JobID == "" {
			continue // says why there are no more
		}
		tags := []string{}
		if row.Tags != "" {
			if err := json.Unmarshal([]byte(row.Tags), &tags); err != nil {
				return answer{err: err}
			}
		}
		a.claimed = append(a.claimed, claimed{
			attempt: attempt{job: queue.JobID(row.JobID), fence: row.Fence, frees: queue.Release(row.KeyRelease) == queue.ReleaseFinished},
			number:  int(row.Attempt),
			def:     describe(queues[op.queue][1], row.Type, row.Payload, int(row.Priority), tags, int(row.MaxAttempts), row.Deadline != ""),
		})
	}
	return a
}

// end ends an attempt as its worker would.
func (w *world) end(op operation) answer {
	ids, fences := []string{string(op.attempt.job)}, []int32{op.attempt.fence}
	var ended int64
	var err error
	switch op.action {
	case succeed:
		if op.everyday && !op.attempt.frees {
			ended, err = w.work.CompletePlain(w.ctx, db.CompletePlainParams{JobIds: ids, Fences: fences, WorkerID: workerID})
			break
		}
		ended, err = w.work.CompleteJobs(w.ctx, db.CompleteJobsParams{JobIds: ids, Fences: fences, Frees: []bool{op.attempt.frees}, WorkerID: workerID})
	case handBack:
		var back []string
		back, err = w.work.ReleaseJobs(w.ctx, db.ReleaseJobsParams{JobIds: ids, Fences: fences, WorkerID: workerID})
		ended = int64(len(back))
	case fail:
		params := db.FailJobParams{JobID: ids[0], Fence: fences[0], WorkerID: workerID, Error: "no luck"}
		if op.again {
			params.DelayUs = new(retryIn.duration().Microseconds())
		}
		told, err := w.work.FailJob(w.ctx, params)
		if errors.Is(err, pgx.ErrNoRows) {
			return answer{told: "lost"}
		}
		return answer{told: told, err: err}
	}
	if err == nil && ended == 0 {
		return answer{told: "lost"}
	}
	return answer{told: "ended", err: err}
}

func (w *world) maintain() answer {
	report, err := w.client.Maintain(w.ctx)
	if err != nil {
		return answer{err: err}
	}
	counts := make([]int64, 4)
	for _, task := range report.Tasks {
		if i := slices.Index([]string{"expired_leases", "deadlines", "expired_bindings", "finished_jobs"}, task.Name); i >= 0 {
			counts[i] = task.Rows
		}
		err = errors.Join(err, task.Err)
	}
	return answer{counts: counts, err: err}
}
