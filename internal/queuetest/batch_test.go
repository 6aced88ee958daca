package queuetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// batch makes n idempotent requests, numbered from first.
func batch(prefix string, first, n int) []queue.Request {
	reqs := make([]queue.Request, n)
	for i := range reqs {
		reqs[i] = queue.Request{Type: "t", Payload: first + i, Admission: queue.Idempotency{Key: fmt.Sprint(prefix, first+i)}}
	}
	return reqs
}

func enqueueMany(t testing.TB, c *queue.Client, reqs []queue.Request) []queue.Result {
	t.Helper()
	results, err := c.EnqueueMany(t.Context(), reqs)
	if err != nil {
		t.Fatalf("EnqueueMany: %v", err)
	}
	if len(results) != len(reqs) {
		t.Fatalf("%d requests got %d results", len(reqs), len(results))
	}
	return results
}

// wantOutcomes fails the test unless the outcomes are those, and every id is
// one of a job that exists.
func wantOutcomes(t testing.TB, pool *pgxpool.Pool, results []queue.Result, want ...queue.Outcome) {
	t.Helper()
	got := []queue.Outcome{}
	for i, res := range results {
		got = append(got, res.Outcome)
		if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.job WHERE id = $1`, string(res.JobID)); n != 1 {
			t.Errorf("result %d names job %q, of which there are %d", i, res.JobID, n)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the outcomes by position (-want +got):\n%s", diff)
	}
}

func TestClient_EnqueueMany(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	const accepted, replayed, coalesced = queue.OutcomeAccepted, queue.OutcomeReplayed, queue.OutcomeCoalesced

	t.Run("no requests make no query and no error", func(t *testing.T) {
		other, sent, _ := observed(t, pool)
		watched := newClient(t, other, queue.Config{})
		got := sent.during(func() {
			for _, empty := range [][]queue.Request{nil, {}} {
				if results, err := watched.EnqueueMany(t.Context(), empty); err != nil || len(results) != 0 {
					t.Errorf("an empty batch: %v, %v", results, err)
				}
			}
		})
		if len(got) != 0 || other.Stat().AcquireCount() != 0 {
			t.Errorf("an empty batch reached PostgreSQL: %q", got)
		}
	})

	t.Run("one request", func(t *testing.T) {
		reqs := batch("one-", 0, 1)
		results := enqueueMany(t, c, reqs)
		wantOutcomes(t, pool, results, accepted)
		replay(t, c, reqs[0], results[0].JobID)
	})

	t.Run("a thousand requests, each result at its request's position", func(t *testing.T) {
		reqs := batch("thousand-", 0, 1000)
		r := slices.Clone(reqs)
		slices.Reverse(r)
		results := enqueueMany(t, c, r)
		ids := map[queue.JobID]bool{}
		for i, res := range results {
			ids[res.JobID] = true
			payload := pgtest.Scan[int](t, pool, `SELECT payload::int FROM onceq.job WHERE id = $1`, string(res.JobID))
			if res.Outcome != accepted || payload != r[i].Payload {
				t.Fatalf("result %d is %s as job with payload %d, the request had %v", i, res.Outcome, payload, r[i].Payload)
			}
		}
		if len(ids) != 1000 {
			t.Errorf("1000 requests made %d jobs", len(ids))
		}
		for i, res := range enqueueMany(t, c, reqs) {
			wantResult(t, res, queue.Result{JobID: results[999-i].JobID, Outcome: replayed})
		}
	})

	t.Run("a thousand and one requests are refused", func(t *testing.T) {
		other, sent, _ := observed(t, pool)
		watched := newClient(t, other, queue.Config{})
		got := sent.during(func() {
			_, err := watched.EnqueueMany(t.Context(), batch("too-many-", 0, 1001))
			wantInvalid(t, err, "1000", "1001")
		})
		if len(got) != 0 {
			t.Errorf("a batch over the bound reached PostgreSQL: %q", got)
		}
	})

	t.Run("repeats inside a batch are decided one after the other", func(t *testing.T) {
		throttled := queue.Request{Type: "t", Admission: queue.Throttle{Key: "inside-throttle", Window: day}}
		idempotent := queue.Request{Type: "t", Admission: queue.Idempotency{Key: "inside"}}
		explicit := queue.Request{Type: "t", Queue: "default", Payload: json.RawMessage(`null`), Admission: queue.Idempotency{Key: "inside", Scope: "default", TTL: queue.DefaultTTL}}
		plain := queue.Request{Type: "t"}
		results := enqueueMany(t, c, []queue.Request{idempotent, throttled, plain, explicit, throttled, plain, idempotent})
		wantOutcomes(t, pool, results, accepted, accepted, accepted, replayed, coalesced, accepted, replayed)
		if results[3].JobID != results[0].JobID || results[6].JobID != results[0].JobID || results[4].JobID != results[1].JobID {
			t.Errorf("a repeat inside the batch names another job than the first: %v", results)
		}
		if results[2].JobID == results[5].JobID {
			t.Error("two plain requests of a batch made one job")
		}
	})

	t.Run("two equal requests at positions 3 and 700 of a thousand", func(t *testing.T) {
		reqs := batch("b053-", 0, 1000)
		reqs[700] = reqs[3]
		results := enqueueMany(t, c, reqs)
		wantResult(t, results[700], queue.Result{JobID: results[3].JobID, Outcome: replayed})
	})

	t.Run("plain and keyed, queues and modes mixed with what exists", func(t *testing.T) {
		kept := accept(t, c, invoice("mixed"))
		keptNotice := accept(t, c, notice("mixed-notice"))
		reqs := []queue.Request{
			{Type: "p", Queue: "q1"}, invoice("mixed"), {Type: "k", Queue: "q2", Priority: 3, Admission: queue.Idempotency{Key: "mixed-2"}},
			notice("mixed-notice"), notice("mixed-notice-2"), {Type: "p", RunAt: noon}, notice("mixed-notice-2"), {Type: "k", Admission: queue.Idempotency{Key: "mixed", Scope: "other"}},
		}
		results := enqueueMany(t, c, reqs)
		wantOutcomes(t, pool, results, accepted, replayed, accepted, coalesced, accepted, accepted, coalesced, accepted)
		if results[1].JobID != kept || results[3].JobID != keptNotice || results[6].JobID != results[4].JobID {
			t.Errorf("a repeat names another job than the first acceptance: %v", results)
		}
		for i, want := range reqs {
			job, err := c.Job(t.Context(), results[i].JobID)
			if err != nil {
				t.Fatal(err)
			}
			if job.Type != want.Type || job.Priority != want.Priority || want.Queue != "" && job.Queue != want.Queue || !want.RunAt.IsZero() && !job.RunAt.Equal(want.RunAt) {
				t.Errorf("request %d became %+v", i, job)
			}
		}
	})

	t.Run("every member of a request is kept as in a single one", func(t *testing.T) {
		single, inBatch := everything("members-single"), everything("members-batch")
		one := accept(t, c, single)
		two := enqueueMany(t, c, []queue.Request{inBatch, {Type: "t"}})[0].JobID
		a, b := storedJob(t, pool, one), storedJob(t, pool, two)
		for _, name := range []string{"id", "accepted_at", "key_hash", "key_preview", "key_length"} {
			delete(a, name)
			delete(b, name)
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("a batch stores another job than a single request (-single +batch):\n%s", diff)
		}
		replay(t, c, inBatch, two)
		if res := enqueueMany(t, c, []queue.Request{single}); res[0].JobID != one {
			t.Errorf("a batch does not recognise what was accepted alone: %+v", res)
		}
	})

	t.Run("an expired key is taken over", func(t *testing.T) {
		old := accept(t, c, invoice("batch-expired"))
		pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp() WHERE job_id = $1`, string(old))
		results := enqueueMany(t, c, []queue.Request{invoice("batch-expired"), invoice("batch-expired")})
		wantOutcomes(t, pool, results, accepted, replayed)
		if results[0].JobID == old || results[1].JobID != results[0].JobID {
			t.Errorf("the expired key's job was %s, now %v", old, results)
		}
	})
}

// storedJob is a job's row as JSON.
func storedJob(t testing.TB, pool *pgxpool.Pool, id queue.JobID) map[string]any {
	t.Helper()
	row := map[string]any{}
	if err := json.Unmarshal(pgtest.Scan[[]byte](t, pool, `SELECT to_jsonb(j) FROM onceq.job j WHERE id = $1`, string(id)), &row); err != nil {
		t.Fatal(err)
	}
	return row
}

func TestClient_EnqueueManyInvalid(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	other, sent, _ := observed(t, pool)
	c := newClient(t, other, queue.Config{})

	t.Run("all bad requests are reported with their index", func(t *testing.T) {
		reqs := batch("invalid-", 0, 100)
		reqs[0].Type = ""
		reqs[57].Priority = 101
		reqs[57].MaxAttempts = -1
		reqs[99].Payload = json.RawMessage(`{`)
		got := sent.during(func() {
			results, err := c.EnqueueMany(t.Context(), reqs)
			wantInvalid(t, err, "type", "priority", "max_attempts", "payload")
			if results != nil {
				t.Errorf("a refused batch has results: %v", results)
			}
			about := map[int]string{}
			for _, e := range errorsOf[*queue.RequestError](err) {
				if !errors.Is(e, queue.ErrInvalidRequest) {
					t.Errorf("the error about request %d does not wrap ErrInvalidRequest: %v", e.Index, e)
				}
				about[e.Index] = e.Error()
			}
			if len(about) != 3 || !strings.Contains(about[0], "type") || !strings.Contains(about[57], "max_attempts") || !strings.Contains(about[99], "payload") {
				t.Errorf("requests 0, 57 and 99 are bad, reported are %v", about)
			}
		})
		if len(got) != 0 {
			t.Errorf("a batch with bad requests reached PostgreSQL: %q", got)
		}
	})

	t.Run("one key under two admissions is refused", func(t *testing.T) {
		for _, scope := range []string{"", "default"} {
			got := sent.during(func() {
				_, err := c.EnqueueMany(t.Context(), []queue.Request{
					{Type: "t"},
					{Type: "t", Admission: queue.Idempotency{Key: "two-admissions"}},
					{Type: "t", Admission: queue.Throttle{Key: "two-admissions", Scope: scope, Window: day}},
				})
				wantInvalid(t, err)
				if found := errorsOf[*queue.RequestError](err); !slices.ContainsFunc(found, func(e *queue.RequestError) bool { return e.Index == 2 }) {
					t.Errorf("the refusal does not name request 2: %v", err)
				}
			})
			if len(got) != 0 {
				t.Errorf("it reached PostgreSQL: %q", got)
			}
		}
		if _, err := c.EnqueueMany(t.Context(), []queue.Request{
			{Type: "t", Admission: queue.Idempotency{Key: "two-scopes"}},
			{Type: "t", Admission: queue.Throttle{Key: "two-scopes", Scope: "other", Window: day}},
		}); err != nil {
			t.Errorf("one key in two scopes is two keys: %v", err)
		}
	})
}

// Overlapping batches in opposite order wait for each other and never deadlock.
func TestClient_EnqueueManyOppositeOrder(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	mixed := func(round int) []queue.Request {
		reqs := batch(fmt.Sprintf("opposite-%d-", round), 0, 200)
		for i := range reqs {
			if i%3 == 0 {
				reqs[i].Admission = queue.Throttle{Key: fmt.Sprintf("opposite-%d-%d", round, i), Window: day}
			}
			if i%7 == 0 {
				reqs[i].Admission = queue.Idempotency{Key: fmt.Sprint(i), Scope: fmt.Sprintf("opposite-%d", round)}
			}
		}
		return reqs
	}
	for _, kind := range []string{"fresh", "expired"} {
		t.Run(kind+" keys", func(t *testing.T) {
			if kind == "expired" {
				pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp()`)
			}
			for round := range 6 {
				forward := mixed(round)
				backward := slices.Clone(forward)
				slices.Reverse(backward)
				var mu sync.Mutex
				owners := map[string]queue.JobID{}
				together(6, func(n int) {
					reqs := forward
					if n%2 == 1 {
						reqs = backward
					}
					// In a transaction of ours a deadlock would show instead of being retried.
					tx, err := pool.Begin(context.Background())
					if err != nil {
						t.Error(err)
						return
					}
					defer func() { _ = tx.Rollback(context.Background()) }()
					results, err := c.EnqueueManyTx(context.Background(), tx, reqs)
					if err != nil {
						t.Errorf("a batch failed among others in opposite order: %v", err)
						return
					}
					if err := tx.Commit(context.Background()); err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					for i, res := range results {
						owner := fmt.Sprint(reqs[i].Payload)
						if owners[owner] == "" {
							owners[owner] = res.JobID
						}
						if owners[owner] != res.JobID {
							t.Errorf("request %s is answered with job %s and job %s", owner, owners[owner], res.JobID)
						}
					}
				})
			}
		})
	}
	wantCounts(t, pool, 2*6*200, 6*200)
}
