package workertest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// oneCall is a first attempt of a job, at the handler.
func oneCall(t *testing.T, req queue.Request) (pool *pgxpool.Pool, c *queue.Client, work *calls, first *call) {
	t.Helper()
	pool = pgtest.New(t)
	c = newClient(t, pool, queue.Config{})
	w := newWorker(t, c, one("a"))
	work = handle(t, workType, w)
	accept(t, c, req)
	start(t, w)
	return pool, c, work, work.next(t)
}

type receipt struct {
	Number int64
	Lines  []string
	Extra  map[string]any
}

func TestCheckpoint_reusedByTheNextAttempt(t *testing.T) {
	t.Parallel()
	pool, c, work, first := oneCall(t, queue.Request{Retry: queue.Fixed{}})
	want := receipt{9007199254740993, []string{"<b>", "ü\u2028"}, map[string]any{"a": 1.5, "b": nil}}
	got, err := queue.Checkpoint(first.ctx, first.job, "charge", func(context.Context) (receipt, error) { return want, nil })
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Checkpoint returns another value than its function (-want +got):\n%s%v", diff, err)
	}
	nothing, err := queue.Checkpoint(first.ctx, first.job, "nothing", func(context.Context) (*receipt, error) { return nil, nil })
	if nothing != nil || err != nil {
		t.Errorf("a stage without a value returns (%v, %v), want nothing", nothing, err)
	}
	id := first.job.ID
	first.end(errNotYet)
	for attempt := 2; attempt <= 3; attempt++ {
		again := work.next(t)
		got, err = queue.Checkpoint(again.ctx, again.job, "charge", func(context.Context) (receipt, error) {
			t.Error("a completed stage was run again by a later attempt")
			return receipt{}, nil
		})
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("attempt %d gets another value than was saved (-want +got):\n%s%v", attempt, diff, err)
		}
		_, err = queue.Checkpoint(again.ctx, again.job, "nothing", func(context.Context) (*receipt, error) {
			t.Error("a completed stage without a value was run again")
			return nil, nil
		})
		if err != nil {
			t.Error(err)
		}
		// A stage that has changed its mind about its type is an error, not a run.
		_, err = queue.Checkpoint(again.ctx, again.job, "charge", func(context.Context) (int, error) {
			t.Error("a stage whose saved value doesn't fit was run again")
			return 1, nil
		})
		if err == nil || strings.Contains(err.Error(), "9007199254740993") {
			t.Errorf("a saved value of another type must be an error that doesn't show it: %v", err)
		}
		again.end(map[bool]error{true: nil, false: errNotYet}[attempt == 3])
	}
	awaitState(t, c, id, queue.StateSucceeded)
	if n := count(t, c, id, queue.EventCheckpointSaved); n != 2 {
		t.Errorf("two stages were saved, the timeline tells of %d", n)
	}
	// Another job knows nothing of it.
	accept(t, c, queue.Request{})
	other := work.next(t)
	ran := false
	if _, err := queue.Checkpoint(other.ctx, other.job, "charge", func(context.Context) (receipt, error) { ran = true; return receipt{}, nil }); err != nil || !ran {
		t.Errorf("another job's stage of the same name: ran %t, %v", ran, err)
	}
	other.end(nil)
	_ = pool
}

func TestCheckpoint_concurrentCallsRunOnce(t *testing.T) {
	t.Parallel()
	_, _, _, first := oneCall(t, queue.Request{})
	defer first.end(nil)
	var runs atomic.Int32
	inside, goOn := make(chan struct{}, 20), make(chan struct{})
	var all sync.WaitGroup
	for i := range 10 {
		for _, stage := range []string{"a", "b"} {
			all.Go(func() {
				got, err := queue.Checkpoint(first.ctx, first.job, stage, func(context.Context) (string, error) {
					runs.Add(1)
					inside <- struct{}{}
					<-goOn
					return "value of " + stage, nil
				})
				if err != nil || got != "value of "+stage {
					t.Errorf("caller %d of stage %s got (%q, %v)", i, stage, got, err)
				}
			})
		}
	}
	<-inside
	<-inside
	close(goOn)
	all.Wait()
	if n := runs.Load(); n != 2 {
		t.Errorf("ten concurrent calls each for two stages ran %d functions: a stage runs once", n)
	}
}

func TestCheckpoint_aFailedStageMayBeTriedAgain(t *testing.T) {
	t.Parallel()
	_, c, work, first := oneCall(t, queue.Request{Retry: queue.Fixed{}})
	id := first.job.ID
	boom := errors.New("boom")
	for range 2 {
		if _, err := queue.Checkpoint(first.ctx, first.job, "stage", func(context.Context) (int, error) { return 1, boom }); !errors.Is(err, boom) {
			t.Errorf("the function's own error must come back, got %v", err)
		}
	}
	got, err := queue.Checkpoint(first.ctx, first.job, "stage", func(context.Context) (int, error) { return 3, nil })
	if got != 3 || err != nil {
		t.Errorf("a failed stage may be tried again in the same attempt: (%d, %v)", got, err)
	}
	if _, err := queue.Checkpoint(first.ctx, first.job, "other", func(context.Context) (int, error) { return 1, boom }); !errors.Is(err, boom) {
		t.Error(err)
	}
	first.end(boom)
	again := work.next(t)
	got, err = queue.Checkpoint(again.ctx, again.job, "other", func(context.Context) (int, error) { return 4, nil })
	if got != 4 || err != nil {
		t.Errorf("a failed stage may be tried again in the next attempt: (%d, %v)", got, err)
	}
	again.end(nil)
	awaitState(t, c, id, queue.StateSucceeded)
}

// A stage that panics, or ends its goroutine, leaves nobody waiting.
func TestCheckpoint_aPanickingStage(t *testing.T) {
	t.Parallel()
	_, _, _, first := oneCall(t, queue.Request{})
	defer first.end(nil)
	inside, goOn := make(chan struct{}), make(chan struct{})
	panicked := make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		_, _ = queue.Checkpoint(first.ctx, first.job, "stage", func(context.Context) (int, error) {
			close(inside)
			<-goOn
			panic("stage broke")
		})
	}()
	<-inside
	waiter := make(chan error, 1)
	go func() {
		_, err := queue.Checkpoint(first.ctx, first.job, "stage", func(context.Context) (int, error) { return 2, nil })
		waiter <- err
	}()
	close(goOn)
	if got := awaitClosed(t, "the panic to come through", panicked); got != "stage broke" {
		t.Errorf("the panic of a stage must reach its caller, got %v", got)
	}
	awaitClosed(t, "the other caller of the stage", waiter)
	got, err := queue.Checkpoint(first.ctx, first.job, "stage", func(context.Context) (int, error) { return 3, nil })
	if err != nil || got < 2 {
		t.Errorf("a stage that panicked may be tried again: (%d, %v)", got, err)
	}
}

func TestCheckpoint_waitersHeedTheirContext(t *testing.T) {
	t.Parallel()
	_, _, _, first := oneCall(t, queue.Request{})
	defer first.end(nil)
	inside, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_, _ = queue.Checkpoint(first.ctx, first.job, "stage", func(context.Context) (int, error) { close(inside); <-goOn; return 1, nil })
	}()
	<-inside
	ctx, stop := context.WithCancel(first.ctx)
	stop()
	if _, err := queue.Checkpoint(ctx, first.job, "stage", func(context.Context) (int, error) { return 2, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller whose context has ended must not wait for the stage: %v", err)
	}
	close(goOn)
	<-done
}

func TestCheckpoint_nestedStages(t *testing.T) {
	t.Parallel()
	pool, _, _, first := oneCall(t, queue.Request{})
	defer first.end(nil)
	ctx, job := first.ctx, first.job
	got, err := queue.Checkpoint(ctx, job, "outer", func(ctx context.Context) (int, error) {
		return queue.CheckpointTx(ctx, job, "middle", func(ctx context.Context, _ pgx.Tx) (int, error) {
			inner, err := queue.Checkpoint(ctx, job, "inner", func(context.Context) (int, error) { return 1, nil })
			return inner + 1, err
		})
	})
	if got != 2 || err != nil {
		t.Errorf("nested stages return (%d, %v), want 2", got, err)
	}
	if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.checkpoint`); n != 3 {
		t.Errorf("%d of 3 nested stages were saved", n)
	}
}

func TestCheckpoint_bounds(t *testing.T) {
	t.Parallel()
	pool, c, _, first := oneCall(t, queue.Request{})
	ctx, job := first.ctx, first.job
	fine := func(context.Context) (int, error) { return 1, nil }
	never := func(context.Context) (int, error) { t.Error("a stage with a bad name was run"); return 1, nil }
	for _, name := range []string{"", strings.Repeat("x", 201), strings.Repeat("ü", 201), "\xff", "a\x00b"} {
		_, err := queue.Checkpoint(ctx, job, name, never)
		wantInvalid(t, err, fmt.Sprintf("stage %.20q", name))
		_, err = queue.CheckpointTx(ctx, job, name, func(ctx context.Context, _ pgx.Tx) (int, error) { return never(ctx) })
		wantInvalid(t, err, fmt.Sprintf("stage %.20q", name))
	}
	for _, name := range []string{"x", strings.Repeat("🧾", 200), "a b\n'"} {
		if _, err := queue.Checkpoint(ctx, job, name, fine); err != nil {
			t.Errorf("stage %.20q: %v", name, err)
		}
	}
	value := func(v any) error {
		_, err := queue.Checkpoint(ctx, job, "value", func(context.Context) (any, error) { return v, nil })
		return err
	}
	for name, v := range map[string]any{
		"a value of more than 1 MiB": strings.Repeat("x", 1<<20-1),
		"a channel":                  make(chan int),
		"NaN":                        math.NaN(),
		"infinity":                   math.Inf(1),
		"a NUL":                      "a\x00b",
		"invalid UTF-8":              json.RawMessage("\"\xff\""),
		"text that is not JSON":      json.RawMessage(`{"a":`),
		"a number beyond numeric":    json.RawMessage(`1e200000`),
	} {
		wantInvalid(t, value(v), name)
	}
	if err := value(strings.Repeat("x", 1<<20-2)); err != nil {
		t.Errorf("a value of 1 MiB of JSON: %v", err)
	}
	if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.checkpoint`); n != 4 {
		t.Errorf("4 good stages and values leave %d checkpoints", n)
	}
	first.wantAlive(t, "a refused checkpoint is the handler's to deal with")
	first.end(nil)
	awaitState(t, c, job.ID, queue.StateSucceeded)
}

func TestCheckpointTx_effectAndValueTogether(t *testing.T) {
	t.Parallel()
	pool, c, work, first := oneCall(t, queue.Request{Retry: queue.Fixed{}})
	id := first.job.ID
	pgtest.Exec(t, pool, `CREATE TABLE effect (stage text)`)
	stage := func(c *call, name string, after func(tx pgx.Tx) (string, error)) (string, error) {
		return queue.CheckpointTx(c.ctx, c.job, name, func(ctx context.Context, tx pgx.Tx) (string, error) {
			if _, err := tx.Exec(ctx, `INSERT INTO effect VALUES ($1)`, name); err != nil {
				return "", err
			}
			return after(tx)
		})
	}
	good := func(pgx.Tx) (string, error) { return "saved", nil }
	boom := errors.New("boom")
	if got, err := stage(first, "good", good); got != "saved" || err != nil {
		t.Errorf("CheckpointTx returns (%q, %v)", got, err)
	}
	if _, err := stage(first, "fails", func(pgx.Tx) (string, error) { return "", boom }); !errors.Is(err, boom) {
		t.Errorf("the function's own error must come back, got %v", err)
	}
	_, err := stage(first, "oversized", func(pgx.Tx) (string, error) { return strings.Repeat("x", 1<<20), nil })
	wantInvalid(t, err, "an oversized value")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of a stage must reach its caller")
			}
		}()
		_, _ = stage(first, "panics", func(pgx.Tx) (string, error) { panic(boom) })
	}()
	if _, err := stage(first, "breaks its transaction", func(tx pgx.Tx) (string, error) {
		_, err := tx.Exec(t.Context(), `SELECT 1/0`)
		if err == nil {
			t.Error("no error of 1/0")
		}
		return "swallowed", nil
	}); err == nil {
		t.Error("a stage whose transaction has failed must not succeed")
	}
	if diff := cmp.Diff([]string{"good"}, pgtest.List[string](t, pool, `SELECT stage FROM effect`)); diff != "" {
		t.Errorf("effects must commit with their stage's value, or not at all (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"good"}, pgtest.List[string](t, pool, `SELECT name FROM onceq.checkpoint`)); diff != "" {
		t.Errorf("values must commit with their stage's effects, or not at all (-want +got):\n%s", diff)
	}
	first.end(boom)
	again := work.next(t)
	if got, err := stage(again, "good", func(pgx.Tx) (string, error) { t.Error("run again"); return "", nil }); got != "saved" || err != nil {
		t.Errorf("the next attempt gets (%q, %v), want the saved value", got, err)
	}
	for _, name := range []string{"fails", "panics"} {
		if got, err := stage(again, name, good); got != "saved" || err != nil {
			t.Errorf("a stage that failed before returns (%q, %v)", got, err)
		}
	}
	if n := pgtest.Scan[int](t, pool, `SELECT count(*) FROM effect`); n != 3 {
		t.Errorf("%d effects after three stages", n)
	}
	again.end(nil)
	awaitState(t, c, id, queue.StateSucceeded)
}

// A stage may take longer than a lease.
func TestCheckpointTx_longerThanTheLease(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	cfg := one("a")
	cfg.Lease = shortLease
	w := newWorker(t, c, cfg)
	work := handle(t, workType, w)
	id := accept(t, c, queue.Request{MaxAttempts: 1})
	start(t, w)
	first := work.next(t)
	got, err := queue.CheckpointTx(first.ctx, first.job, "long", func(ctx context.Context, tx pgx.Tx) (int, error) {
		_, err := tx.Exec(ctx, `SELECT pg_sleep($1)`, 2.2*shortLease.Seconds())
		return 7, err
	})
	if got != 7 || err != nil {
		t.Errorf("a stage of more than two leases returns (%d, %v)", got, err)
	}
	first.end(err)
	awaitState(t, c, id, queue.StateSucceeded)
}

// A role's stricter default does not let heartbeats spoil what a stage has done.
func TestCheckpointTx_strictRole(t *testing.T) {
	t.Parallel()
	direct := pgtest.New(t)
	pool := pgtest.Reconnect(t, direct, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	})
	c := newClient(t, pool, queue.Config{})
	w := newWorker(t, c, calm("a"))
	work := handle(t, workType, w)
	id := accept(t, c, queue.Request{MaxAttempts: 1})
	start(t, w)
	first := work.next(t)
	_, err := queue.CheckpointTx(first.ctx, first.job, "stage", func(context.Context, pgx.Tx) (int, error) {
		pgtest.Exec(t, direct, `UPDATE onceq.running SET lease_until = lease_until + interval '1 s'`) // as a heartbeat does
		return 1, nil
	})
	if err != nil {
		t.Errorf("a stage during which a heartbeat came was not saved: %v", err)
	}
	first.end(err)
	awaitState(t, c, id, queue.StateSucceeded)
}
