package racetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// jobRow is a job with the marks that any write or row lock would leave.
type jobRow struct{ ID, Place, Created, Locked, Content string }

const jobRows = `SELECT j.id::text AS id, j.ctid::text AS place, j.xmin::text AS created, j.xmax::text AS locked, j::text AS content
	FROM onceq.job AS j ORDER BY j.id`

func TestClient_raceForAnExpiredKey(t *testing.T) {
	t.Parallel()
	const callers = 32
	for _, level := range []struct {
		iso    pgx.TxIsoLevel
		rounds int
	}{{pgx.ReadCommitted, 200}, {pgx.RepeatableRead, 50}, {pgx.Serializable, 50}} {
		t.Run(fmt.Sprintf("at %s one takes the key over and all others replay the new job", level.iso), func(t *testing.T) {
			pool := pgtest.NewWith(t, func(cfg *pgxpool.Config) {
				cfg.MaxConns = callers
				cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = string(level.iso)
			})
			c := newClient(t, pool, queue.Config{})
			n := pgtest.Rounds(level.rounds)
			old := make([]queue.JobID, n)
			for i := range old {
				old[i] = accept(t, c, expiring(i))
			}
			before := pgtest.Records[jobRow](t, pool, jobRows)
			pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp()`)

			owners := map[string]string{}
			for i := range old {
				results, errs := make([]queue.Result, callers), make([]error, callers)
				together(callers, func(caller int) {
					results[caller], errs[caller] = single(t.Context(), c, caller%4 == 0, expiring(i))
				})
				owner := judgeTakeover(t, old[i], results, errs)
				if t.Failed() {
					t.Fatalf("in round %d", i)
				}
				owners[expiringKey(i)] = string(owner)
			}

			after := pgtest.Records[jobRow](t, pool, jobRows)
			var untouched []jobRow
			was := map[string]bool{}
			for _, row := range before {
				was[row.ID] = true
			}
			for _, row := range after {
				if was[row.ID] {
					untouched = append(untouched, row)
				}
			}
			if diff := cmp.Diff(before, untouched); diff != "" {
				t.Errorf("a takeover does not touch the old job (-before +after):\n%s", diff)
			}
			if len(after) != 2*n {
				t.Errorf("a takeover makes one new job: there are %d jobs for %d keys used twice", len(after), n)
			}
			type row struct{ Label, JobID string }
			bound := map[string]string{}
			for _, r := range pgtest.Records[row](t, pool, `SELECT j.tags[1] AS label, b.job_id::text AS job_id FROM onceq.binding AS b JOIN onceq.job AS j ON j.id = b.job_id`) {
				bound[r.Label] = r.JobID
			}
			if diff := cmp.Diff(owners, bound); diff != "" {
				t.Errorf("each key is bound to the job that took it over (-told +stored):\n%s", diff)
			}
			wantWhole(t, pool)
		})
	}
}

func expiringKey(i int) string { return fmt.Sprintf("expiring-%d", i) }

func expiring(i int) queue.Request {
	key := expiringKey(i)
	return queue.Request{Type: "race", Tags: []string{key}, Admission: queue.Idempotency{Key: key}}
}

// single sends one request, alone or as a batch of one.
func single(ctx context.Context, c *queue.Client, batch bool, req queue.Request) (queue.Result, error) {
	if !batch {
		return c.EnqueueWithResult(ctx, req)
	}
	results, err := c.EnqueueMany(ctx, []queue.Request{req})
	if err != nil {
		return queue.Result{}, err
	}
	return results[0], nil
}

// judgeTakeover wants one acceptance of a new job, replayed to all others.
func judgeTakeover(t *testing.T, old queue.JobID, results []queue.Result, errs []error) queue.JobID {
	t.Helper()
	var owner queue.JobID
	for i, res := range results {
		if errs[i] != nil {
			t.Errorf("a race for an expired key is no error: caller %d got %v", i, errs[i])
		}
		if res.Outcome != queue.OutcomeAccepted {
			continue
		}
		if owner != "" {
			t.Errorf("an expired key is taken over once: jobs %s and %s both were accepted", owner, res.JobID)
		}
		owner = res.JobID
	}
	if owner == "" || owner == old {
		t.Errorf("an expired key is taken over by a new job: got %q, the old one was %s", owner, old)
	}
	for i, res := range results {
		if want := (queue.Result{JobID: owner, Outcome: queue.OutcomeReplayed}); errs[i] == nil && res != want && res.Outcome != queue.OutcomeAccepted {
			t.Errorf("whoever lost the race replays the new job %s: caller %d got %+v (the old job was %s)", owner, i, res, old)
		}
	}
	return owner
}
