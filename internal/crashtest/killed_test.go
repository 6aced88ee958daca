//go:build unix

package crashtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

const (
	fleetSize  = 4
	fleetLease = 2 * time.Second
	// takenBack is how long after its lease a job may still be held: a turn of
	// maintenance comes every second, and its worker may die in it, too.
	takenBack = 10 * time.Second
)

// Workers die at random moments of everything they do, while jobs flow. Every
// job ends exactly once, as succeeded, with all of its effects.
func TestWorker_killed(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	makeTables(t, pool)
	c := newClient(t, pool)

	var keys int
	var flow sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), flowTime)
	defer cancel()
	flow.Go(func() { keys = enqueueFlow(ctx, t, c) })
	overdue := &overdue{}
	flow.Go(func() { overdue.watch(ctx, t, pool) })
	fleet := newFleet(t, pool)
	kills := fleet.decimate(ctx, t)
	flow.Wait()

	awaitIdle(t, pool)
	overdue.look(t, pool)
	if overdue.most > takenBack {
		t.Errorf("a job was still held %v after its lease had run out", overdue.most)
	}
	wantFlowDone(t, pool, keys)
	wantTimelines(t, pool, c)
	expired := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.event WHERE kind = 'lease_expired'`)
	t.Logf("%d jobs, %d workers killed, %d attempts cut short by it, the longest held %v past its lease", keys, kills, expired, overdue.most)
	if expired < kills/5 {
		t.Errorf("the test is weak: %d deaths ended %d attempts", kills, expired)
	}
}

// enqueueFlow enqueues until ctx ends and returns how many keys it used. Some
// requests are repeated.
func enqueueFlow(ctx context.Context, t *testing.T, c *queue.Client) (keys int) {
	const batch = 10
	for ctx.Err() == nil {
		reqs := make([]queue.Request, batch)
		for i := range reqs {
			reqs[i] = flowRequest(keys + i)
		}
		results, err := c.EnqueueMany(t.Context(), reqs)
		if err != nil {
			t.Errorf("EnqueueMany: %v", err)
			return keys
		}
		keys += batch
		if again := enqueue(t, c, reqs[0]); again != results[0].JobID {
			t.Errorf("the repeat of the request for job %s got job %s", results[0].JobID, again)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return keys
}

// flowRequest is the request of a key: the ways to do the work, failures,
// priorities, concurrency keys and both rules of release take turns. The keys of
// full tens are kept, so their requests can be repeated.
func flowRequest(key int) queue.Request {
	req := queue.Request{
		Type: flowType, MaxAttempts: 100, Priority: key % 4,
		Payload: flowWork{
			How:   []string{inNoTransaction, withCompletion, withCheckpoint}[key%3],
			Takes: 100 * time.Millisecond, Stumbles: key%7 == 0,
		},
		Admission: queue.Idempotency{Key: fmt.Sprint("flow-", key), Release: []queue.Release{queue.ReleaseExpiry, queue.ReleaseFinished}[key%2]},
	}
	if key%5 == 0 {
		req.ConcurrencyKey = fmt.Sprint("key-", key%100)
	}
	return req
}

// fleet is worker processes of which dead ones are replaced.
type fleet struct {
	spec  spec
	ships []*process
}

func newFleet(t *testing.T, pool *pgxpool.Pool) *fleet {
	f := &fleet{spec: spec{URL: pool.Config().ConnString(), Lease: fleetLease, Handlers: 8}}
	for range fleetSize {
		f.ships = append(f.ships, f.launch(t))
	}
	return f
}

func (f *fleet) launch(t *testing.T) *process {
	s := f.spec
	s.ID = fmt.Sprintf("ship-%x", rand.Uint32())
	return start(t, s)
}

// decimate kills and replaces workers at random moments until ctx ends, and
// returns how many. All that are left live on.
func (f *fleet) decimate(ctx context.Context, t *testing.T) (kills int) {
	for {
		select {
		case <-ctx.Done():
			return kills
		case <-time.After(rand.N(killPause)):
		}
		i := rand.IntN(len(f.ships))
		f.ships[i].kill()
		f.ships[i] = f.launch(t)
		kills++
	}
}

// overdue is how long jobs were held past their leases.
type overdue struct{ most time.Duration }

func (o *overdue) watch(ctx context.Context, t *testing.T, pool *pgxpool.Pool) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			o.look(t, pool)
		}
	}
}

func (o *overdue) look(t *testing.T, pool *pgxpool.Pool) {
	us := pgtest.Scan[int64](t, pool, `SELECT coalesce(max(extract(epoch FROM clock_timestamp() - lease_until) * 1e6), 0)::bigint FROM onceq.running`)
	o.most = max(o.most, time.Duration(us)*time.Microsecond)
}

// wantFlowDone wants every job to have ended exactly once, as succeeded, and its
// effects to be there as often as promised.
func wantFlowDone(t *testing.T, pool *pgxpool.Pool, keys int) {
	t.Helper()
	for _, check := range []struct {
		why, sql string
		want     int
	}{
		{"every key has one job", `SELECT count(*) FROM onceq.job`, keys},
		{"every job has succeeded", `SELECT count(*) FROM onceq.finished AS f JOIN onceq.job AS j ON j.id = f.job_id WHERE f.state = 1`, keys},
		{"no job ended otherwise", `SELECT count(*) FROM onceq.finished WHERE state <> 1`, 0},
		{"no job waits or runs beside its end", `SELECT count(*) FROM (SELECT job_id FROM onceq.pending UNION ALL SELECT job_id FROM onceq.running) AS x`, 0},
		{"every handler's effect happened", `SELECT count(*) FROM onceq.job AS j WHERE NOT EXISTS (SELECT FROM effect AS e WHERE e.job_id = j.id)`, 0},
		{"effects in the transaction of the completion or of a checkpoint happened once",
			`SELECT count(*) FROM (SELECT FROM effect WHERE how <> '` + inNoTransaction + `' GROUP BY job_id HAVING count(*) > 1) AS x`, 0},
		{"an effect in the transaction of the completion is of the attempt that was recorded",
			`SELECT count(*) FROM effect AS e JOIN onceq.finished AS f USING (job_id) WHERE e.how = '` + withCompletion + `' AND e.attempt <> f.attempt`, 0},
		{"no attempt ran twice", `SELECT count(*) FROM (SELECT FROM started GROUP BY job_id, attempt HAVING count(*) > 1) AS x`, 0},
		{"no attempt ran after the one recorded", `SELECT count(*) FROM started AS s JOIN onceq.finished AS f USING (job_id) WHERE s.attempt > f.attempt`, 0},
		{"the attempt that was recorded ran, by the worker that was recorded", `SELECT count(*) FROM onceq.finished AS f
			WHERE NOT EXISTS (SELECT FROM started AS s WHERE s.job_id = f.job_id AND s.attempt = f.attempt AND s.worker = f.worker_id)`, 0},
		{"each attempt before the recorded one ended by an event", `SELECT count(*) FROM onceq.finished AS f WHERE f.attempt <> 1 +
			(SELECT count(DISTINCT e.attempt) FROM onceq.event AS e WHERE e.job_id = f.job_id AND e.attempt < f.attempt AND e.kind IN ('lease_expired', 'retry_scheduled'))`, 0},
		{"an attempt ended by one event", `SELECT count(*) FROM (SELECT FROM onceq.event WHERE kind <> 'checkpoint_saved' GROUP BY job_id, attempt HAVING count(*) > 1) AS x`, 0},
		{"nothing else happened", `SELECT count(*) FROM onceq.event WHERE kind NOT IN ('lease_expired', 'retry_scheduled', 'checkpoint_saved')`, 0},
		{"a first attempt that fails is followed by another", `SELECT count(*) FROM onceq.job AS j JOIN onceq.finished AS f ON f.job_id = j.id
			WHERE (j.payload->>'Stumbles')::boolean AND f.attempt = 1`, 0},
		{"keys that are freed by success are free", `SELECT count(*) FROM onceq.binding AS b JOIN onceq.job AS j ON j.id = b.job_id WHERE j.key_release = 1`, 0},
		{"no slot of a concurrency key is held", `SELECT count(*) FROM onceq.running WHERE slot IS NOT NULL`, 0},
	} {
		if got := pgtest.Scan[int](t, pool, check.sql); got != check.want {
			t.Errorf("%s: %d, want %d", check.why, got, check.want)
		}
	}
}

// wantTimelines reads the jobs with the most attempts as a user would.
func wantTimelines(t *testing.T, pool *pgxpool.Pool, c *queue.Client) {
	t.Helper()
	for _, id := range pgtest.List[string](t, pool, `SELECT job_id::text FROM onceq.finished ORDER BY attempt DESC LIMIT 20`) {
		job, err := c.Job(t.Context(), queue.JobID(id))
		if err != nil {
			t.Fatal(err)
		}
		events, err := c.Events(t.Context(), job.ID)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range events {
			if e.Kind == queue.EventCheckpointSaved {
				continue
			}
			got = append(got, fmt.Sprint(e.Kind, " ", e.Attempt))
		}
		want := []string{"accepted 0"}
		for attempt := 1; attempt <= job.Attempt; attempt++ {
			want = append(want, fmt.Sprint("claimed ", attempt))
			end := "succeeded"
			if attempt < job.Attempt {
				end = "lease_expired"
				if slices.Contains(got, fmt.Sprint("retry_scheduled ", attempt)) {
					end = "retry_scheduled"
				}
			}
			want = append(want, fmt.Sprint(end, " ", attempt))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the timeline of job %s (-want +got):\n%s", job.ID, diff)
		}
	}
}
