package queuetest_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

const day = 24 * time.Hour

// newClient returns a client on pool; it must be a good Config.
func newClient(t testing.TB, pool *pgxpool.Pool, cfg queue.Config) *queue.Client {
	t.Helper()
	c, err := queue.New(pool, cfg)
	if err != nil {
		t.Fatalf("queue.New refuses a good Config: %v", err)
	}
	return c
}

// invoice is a small idempotent request with the key.
func invoice(key string) queue.Request {
	return queue.Request{
		Type:      "invoice.capture",
		Payload:   map[string]any{"invoice": 42},
		Admission: queue.Idempotency{Key: key},
	}
}

// notice is a small throttled request with the key and a window of a day.
func notice(key string) queue.Request {
	return queue.Request{
		Type:      "notice.send",
		Payload:   map[string]any{"notice": 7},
		Admission: queue.Throttle{Key: key, Window: day},
	}
}

func enqueue(t testing.TB, c *queue.Client, req queue.Request) queue.Result {
	t.Helper()
	res, err := c.EnqueueWithResult(t.Context(), req)
	if err != nil {
		t.Fatalf("EnqueueWithResult: %v", err)
	}
	if res.JobID == "" {
		t.Fatalf("JobID is empty on success: %+v", res)
	}
	return res
}

// accept enqueues a request that must make a new job.
func accept(t testing.TB, c *queue.Client, req queue.Request) queue.JobID {
	t.Helper()
	res := enqueue(t, c, req)
	wantResult(t, res, queue.Result{JobID: res.JobID, Outcome: queue.OutcomeAccepted})
	return res.JobID
}

// replay enqueues a request that must be answered with the job id.
func replay(t testing.TB, c *queue.Client, req queue.Request, id queue.JobID) {
	t.Helper()
	wantResult(t, enqueue(t, c, req), queue.Result{JobID: id, Outcome: queue.OutcomeReplayed})
}

func wantResult(t testing.TB, got, want queue.Result) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("the answer is another one than promised (-want +got):\n%s", diff)
	}
}

// wantConflict fails the test unless err is one conflict with the job and the
// fields, and returns it.
func wantConflict(t testing.TB, err error, id queue.JobID, fields ...queue.Field) *queue.EnqueueIdempotencyConflictError {
	t.Helper()
	var conflict *queue.EnqueueIdempotencyConflictError
	if !errors.As(err, &conflict) {
		t.Fatalf("a different request under an owned key must be a *EnqueueIdempotencyConflictError, got %T: %v", err, err)
	}
	if conflict.JobID != id {
		t.Errorf("the conflict names job %q, the key is owned by %q", conflict.JobID, id)
	}
	if diff := cmp.Diff(fields, conflict.Fields); diff != "" {
		t.Errorf("the conflict names other fields than those that differ (-want +got):\n%s", diff)
	}
	return conflict
}

// wantInvalid fails the test unless err wraps ErrInvalidRequest and its text
// mentions every word; case, underscores and blanks don't count.
func wantInvalid(t testing.TB, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, queue.ErrInvalidRequest) {
		t.Fatalf("a bad value must be refused with an error that wraps ErrInvalidRequest, got %v", err)
	}
	text := plainWords(err.Error())
	for _, word := range words {
		if !strings.Contains(text, plainWords(word)) {
			t.Errorf("the refusal does not mention %q: %v", word, err)
		}
	}
}

func plainWords(s string) string {
	return strings.NewReplacer("_", "", " ", "", ",", "").Replace(strings.ToLower(s))
}

// errorsOf collects every error of type E in the tree of err, in order.
func errorsOf[E error](err error) []E {
	var found []E
	var walk func(error)
	walk = func(err error) {
		if err == nil {
			return
		}
		if e, ok := err.(E); ok {
			found = append(found, e)
		}
		switch u := err.(type) {
		case interface{ Unwrap() error }:
			walk(u.Unwrap())
		case interface{ Unwrap() []error }:
			for _, e := range u.Unwrap() {
				walk(e)
			}
		}
	}
	walk(err)
	return found
}

// wantCounts fails the test unless the tables of the default schema hold so
// many rows.
func wantCounts(t testing.TB, pool *pgxpool.Pool, jobs, bindings int) {
	t.Helper()
	for _, table := range []struct {
		name string
		want int
	}{{"job", jobs}, {"pending", jobs}, {"binding", bindings}} {
		if got := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.`+table.name); got != table.want {
			t.Errorf("onceq.%s holds %d rows, want %d", table.name, got, table.want)
		}
	}
}

// together runs f n times at once and returns when all have ended.
func together(n int, f func(i int)) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	all.Wait()
}
