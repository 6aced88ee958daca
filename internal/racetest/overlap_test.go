package racetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// overlapKeys is how many keys all batches share, and overlapTTL for how long
// the key with the number is owned: so shortly that it is taken over many times.
const overlapKeys = 200

func overlapTTL(i int) time.Duration { return time.Duration(200+2*i) * time.Millisecond }

// overlapping is the request with key i: every other one under a throttle.
func overlapping(i int) queue.Request {
	label := fmt.Sprintf("overlap-%03d", i)
	req := queue.Request{Type: "overlap", Queue: fmt.Sprint("queue-", i%5), Tags: []string{label}}
	if i%2 == 0 {
		req.Admission = queue.Idempotency{Key: label, TTL: overlapTTL(i)}
	} else {
		req.Admission = queue.Throttle{Key: label, Window: overlapTTL(i)}
	}
	return req
}

// told is one answer of a batch.
type told struct {
	label string
	res   queue.Result
}

func TestClient_overlappingBatches(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	trace := newTracer()
	callers := pgtest.Reconnect(t, pool, func(cfg *pgxpool.Config) {
		cfg.MaxConns = 10
		cfg.ConnConfig.Tracer = trace
	})
	c := newClient(t, callers, queue.Config{})
	seed := newSeed(t)

	var mu sync.Mutex
	var answers []told
	batches := 0
	accepted := 0
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return accepted >= 5*overlapKeys
	}
	goesOn := lasting(5*time.Second, enough)
	together(8, func(caller int) {
		r := random(t, seed, uint64(caller))
		for n := 0; goesOn(); n++ {
			reqs := make([]queue.Request, overlapKeys)
			for i := range reqs {
				reqs[i] = overlapping(i)
			}
			if caller%2 == 1 {
				slices.Reverse(reqs)
			}
			for i := range 10 { // some without a key, anywhere
				plain := queue.Request{Type: "plain", Tags: []string{fmt.Sprintf("plain-%d-%d-%d", caller, n, i)}}
				reqs = slices.Insert(reqs, r.IntN(len(reqs)+1), plain)
			}
			results, err := c.EnqueueMany(t.Context(), reqs)
			if err != nil {
				t.Errorf("overlapping batches of equal requests are no errors: caller %d, batch %d: %v", caller, n, err)
				return
			}
			mu.Lock()
			batches++
			for i, res := range results {
				answers = append(answers, told{reqs[i].Tags[0], res})
				if res.Outcome == queue.OutcomeAccepted && reqs[i].Admission != nil {
					accepted++
				}
			}
			mu.Unlock()
		}
	})
	callers.Close() // which also makes its sessions hand in their statistics
	if t.Failed() {
		return
	}

	if codes := trace.errorCodes(); codes["40P01"] > 0 {
		t.Errorf("batches lock bindings in one order, so there are no deadlocks: PostgreSQL ended %d", codes["40P01"])
	}
	if n := pgtest.Scan[int](t, pool, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n > 0 {
		t.Errorf("batches lock bindings in one order, so there are no deadlocks: PostgreSQL counted %d", n)
	}
	judgeOverlap(t, pool, answers)
	if !enough() {
		t.Errorf("the test is weak: only %d acceptances of %d keys in %d batches", accepted, overlapKeys, batches)
	}
	t.Logf("%d batches, %d answers, %d acceptances; errors inside: %v", batches, len(answers), accepted, trace.errorCodes())
}

// judgeOverlap holds the answers against the jobs: every answer is about its own
// request, every job was accepted once, and one key's jobs are a window apart.
func judgeOverlap(t *testing.T, pool *pgxpool.Pool, answers []told) {
	t.Helper()
	type job struct {
		ID, Label  string
		AcceptedAt time.Time
	}
	jobs := map[queue.JobID]job{}
	byLabel := map[string][]job{}
	for _, j := range pgtest.Records[job](t, pool, `SELECT id::text AS id, tags[1] AS label, accepted_at FROM onceq.job ORDER BY accepted_at`) {
		jobs[queue.JobID(j.ID)] = j
		byLabel[j.Label] = append(byLabel[j.Label], j)
	}
	owners := map[queue.JobID]int{}
	for _, a := range answers {
		if got := jobs[a.res.JobID].Label; got != a.label {
			t.Errorf("result i is for request i, and its job exists: %s was told %+v, which is the job of %q", a.label, a.res, got)
		}
		if a.res.Outcome == queue.OutcomeAccepted {
			owners[a.res.JobID]++
		}
	}
	for id, n := range owners {
		if n != 1 {
			t.Errorf("a job is accepted once: %d callers were told so of %s", n, id)
		}
	}
	if len(owners) != len(jobs) {
		t.Errorf("every job was accepted by somebody: there are %d jobs and %d acceptances", len(jobs), len(owners))
	}
	for i := range overlapKeys {
		label := overlapping(i).Tags[0]
		for n, j := range byLabel[label] {
			if n == 0 {
				continue
			}
			// A binding's clock is read at most a quarter of its time before the job's.
			if apart := j.AcceptedAt.Sub(byLabel[label][n-1].AcceptedAt); apart < overlapTTL(i)*3/4 {
				t.Errorf("one acceptance in a window: %s has two within %s of %s", label, apart, overlapTTL(i))
			}
		}
	}
	wantWhole(t, pool)
}

// A batch in a caller's order comes back in it, whatever order it is locked in.
func TestClient_resultsInTheCallersOrder(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	r := random(t, newSeed(t), 0)
	ids := map[string]queue.JobID{}
	for range pgtest.Rounds(20) {
		reqs := make([]queue.Request, 100)
		for i := range reqs {
			reqs[i] = order(r.IntN(300))
		}
		got, err := c.EnqueueMany(t.Context(), reqs)
		if err != nil {
			t.Fatal(err)
		}
		want := make([]queue.Result, len(reqs))
		for i, req := range reqs {
			key := req.Admission.(queue.Idempotency).Key
			want[i] = queue.Result{JobID: ids[key], Outcome: queue.OutcomeReplayed}
			if ids[key] == "" {
				ids[key] = got[i].JobID
				want[i] = queue.Result{JobID: got[i].JobID, Outcome: queue.OutcomeAccepted}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("result i is for request i (-want +got):\n%s", diff)
		}
	}
}
