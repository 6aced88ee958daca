package racetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

const stampeders = 64

// stampede lets all callers ask for one key at once, round after round.
type stampede struct {
	pool   *pgxpool.Pool
	client *queue.Client
	level  pgx.TxIsoLevel
	name   string
	seed   uint64
	owners map[string]queue.JobID // label of a round: the job of its key, "" for none
	again  int                    // transactions that were run again
}

// answer is what one caller got in a round, and what became of it.
type answer struct {
	variant   int // which of two payloads was sent
	result    queue.Result
	conflict  *queue.EnqueueIdempotencyConflictError
	committed bool
	err       error
	tries     int
}

func TestClient_stampedeForOneKey(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		// Each level gives its connections back: other packages' tests need some, too.
		t.Run(fmt.Sprintf("at %s", level), func(t *testing.T) { stampedeAt(t, level) })
	}
}

func stampedeAt(t *testing.T, level pgx.TxIsoLevel) {
	pool := pgtest.NewWith(t, func(cfg *pgxpool.Config) {
		cfg.MaxConns = stampeders
		cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = string(level)
	})
	pgtest.Exec(t, pool, `CREATE TABLE business (label text NOT NULL, job_id uuid NOT NULL)`)
	s := stampede{pool: pool, client: newClient(t, pool, queue.Config{}), level: level, seed: newSeed(t)}

	t.Run("through the pool, one is accepted", func(t *testing.T) {
		s.run(t, "pool", s.alone)
	})
	t.Run("in callers' transactions, of which some roll back, one that commits is accepted", func(t *testing.T) {
		s.run(t, "tx", s.inside)
		if lost := pgtest.List[string](t, pool, `SELECT label FROM business AS b WHERE NOT EXISTS (SELECT FROM onceq.job AS j WHERE j.id = b.job_id)`); len(lost) > 0 {
			t.Errorf("%d committed business rows hold the id of a job that was rolled back, in %.3q", len(lost), lost)
		}
	})
}

func (s *stampede) run(t *testing.T, name string, ask func(context.Context, *rand.Rand, queue.Request, float64) answer) {
	began := time.Now()
	s.name, s.owners, s.again = name, map[string]queue.JobID{}, 0
	for n := range pgtest.Rounds(200) {
		label := fmt.Sprintf("%s-%d", name, n)
		rollbacks := 0.25
		if n%20 == 19 {
			rollbacks = 1 // nobody commits
		}
		answers := make([]answer, stampeders)
		together(stampeders, func(i int) {
			variant := 0
			if n%3 == 2 && i%3 == 0 {
				variant = 1 // a third of the callers means something else by the key
			}
			r := random(t, s.seed, uint64(n)<<16|uint64(i))
			answers[i] = ask(t.Context(), r, keyed(label, variant), rollbacks)
			answers[i].variant = variant
		})
		s.judge(t, label, answers)
		if t.Failed() {
			return
		}
	}
	s.compare(t)
	t.Logf("%d rounds of %d callers in %s, %d whole transactions run again", pgtest.Rounds(200), stampeders, time.Since(began).Round(time.Millisecond), s.again)
}

func keyed(label string, variant int) queue.Request {
	return queue.Request{
		Type: "race", Payload: map[string]int{"variant": variant}, Tags: []string{label},
		Admission: queue.Idempotency{Key: label, Scope: "stampede"},
	}
}

// alone asks through the pool, where every statement is its own transaction of
// the level that the connections default to.
func (s *stampede) alone(ctx context.Context, _ *rand.Rand, req queue.Request, _ float64) answer {
	var a answer
	a.result, a.err = s.client.EnqueueWithResult(ctx, req)
	if errors.As(a.err, &a.conflict) {
		a.err = nil
	}
	a.committed = true
	return a
}

// maxTransactions bounds how often a caller runs its transaction again.
const maxTransactions = 1000

// inside asks in a transaction that also writes a row of the caller's own, and
// rolls it back with the given probability. A transaction that PostgreSQL could
// not fit in is run again as a whole.
func (s *stampede) inside(ctx context.Context, r *rand.Rand, req queue.Request, rollbacks float64) answer {
	for try := 1; try <= maxTransactions; try++ {
		a, again := s.once(ctx, r, req, rollbacks)
		a.tries = try
		if !again {
			return a
		}
		time.Sleep(rand.N(2 * time.Millisecond))
	}
	return answer{err: fmt.Errorf("no answer in %d transactions", maxTransactions)}
}

func (s *stampede) once(ctx context.Context, r *rand.Rand, req queue.Request, rollbacks float64) (a answer, again bool) {
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: s.level})
	if err != nil {
		return answer{err: err}, false
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if r.IntN(4) == 0 { // some callers look at something first, which takes their snapshot
		if _, err := tx.Exec(ctx, "SELECT 1"); err != nil {
			return answer{err: err}, false
		}
	}
	a.result, err = s.client.EnqueueTx(ctx, tx, req)
	if errors.Is(err, queue.ErrRetryTransaction) && s.level != pgx.ReadCommitted {
		return a, true
	}
	id := a.result.JobID
	if errors.As(err, &a.conflict) {
		id, err = a.conflict.JobID, nil
	}
	if err != nil {
		a.err = err
		return a, false
	}
	// The transaction goes on, also after a conflict.
	if _, err := tx.Exec(ctx, "INSERT INTO business VALUES ($1, $2)", req.Tags[0], string(id)); err != nil {
		if sqlState(err) == "40001" {
			return a, true
		}
		a.err = fmt.Errorf("the caller's transaction is not usable after its answer: %w", err)
		return a, false
	}
	if r.Float64() < rollbacks {
		a.err = tx.Rollback(ctx)
		return a, false
	}
	if err := tx.Commit(ctx); err != nil {
		if sqlState(err) == "40001" {
			return a, true
		}
		a.err = err
		return a, false
	}
	a.committed = true
	return a, false
}

// judge holds the answers of one round against the promise.
func (s *stampede) judge(t *testing.T, label string, answers []answer) {
	t.Helper()
	var winner *answer
	committed := 0
	for i := range answers {
		a := &answers[i]
		s.again += max(a.tries-1, 0)
		switch {
		case a.err != nil:
			t.Errorf("%s: equal requests at once are no errors: caller %d got %v", label, i, a.err)
		case a.conflict == nil && a.result.JobID == "":
			t.Errorf("%s: nobody gets an empty answer: caller %d got %+v", label, i, a.result)
		case a.committed:
			committed++
			if a.result.Outcome == queue.OutcomeAccepted {
				if winner != nil {
					t.Errorf("%s: one request is accepted: jobs %s and %s both were", label, winner.result.JobID, a.result.JobID)
				}
				winner = a
			}
		}
	}
	if winner == nil {
		if committed > 0 {
			t.Errorf("%s: of those who committed one was accepted: none of %d was", label, committed)
		}
		s.owners[label] = ""
		return
	}
	owner := winner.result.JobID
	s.owners[label] = owner
	for i, a := range answers {
		switch {
		case a.err != nil || a.result.Outcome == queue.OutcomeAccepted && !a.committed || a.result.JobID == owner && &answers[i] == winner:
		case a.variant != winner.variant:
			if a.conflict == nil {
				t.Errorf("%s: a different request is refused with the winner's id: caller %d was %s", label, i, a.result.Outcome)
			} else if a.conflict.JobID != owner || len(a.conflict.Fields) != 1 || a.conflict.Fields[0] != queue.FieldPayload {
				t.Errorf("%s: a conflict names the job %s and the payload: caller %d was told %s and %v", label, owner, i, a.conflict.JobID, a.conflict.Fields)
			}
		case a.conflict != nil:
			t.Errorf("%s: an equal request is no conflict: caller %d got %v", label, i, a.conflict)
		case a.result != queue.Result{JobID: owner, Outcome: queue.OutcomeReplayed}:
			t.Errorf("%s: an equal request is replayed with the id %s: caller %d got %+v", label, owner, i, a.result)
		}
	}
}

// compare holds the tables against what the callers were told.
func (s *stampede) compare(t *testing.T) {
	t.Helper()
	type row struct{ Label, JobID string }
	jobs := pgtest.Records[row](t, s.pool, `SELECT tags[1] AS label, id::text AS job_id FROM onceq.job WHERE tags[1] LIKE $1`, s.name+"-%")
	bindings := pgtest.Records[row](t, s.pool, `SELECT coalesce(j.tags[1], '') AS label, b.job_id::text AS job_id FROM onceq.binding AS b
		LEFT JOIN onceq.job AS j ON j.id = b.job_id WHERE j.id IS NULL OR j.tags[1] LIKE $1`, s.name+"-%")
	want := map[string]string{}
	for label, id := range s.owners {
		if id != "" {
			want[label] = string(id)
		}
	}
	for what, rows := range map[string][]row{"job": jobs, "binding": bindings} {
		if len(rows) != len(want) {
			t.Errorf("a key that somebody committed has one %s, another none: there are %d for %d keys", what, len(rows), len(want))
		}
		for _, r := range rows {
			if want[r.Label] != r.JobID {
				t.Errorf("%s: the %s is %s, the callers were told %q", r.Label, what, r.JobID, want[r.Label])
			}
		}
	}
	wantWhole(t, s.pool)
}
