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

// inARow is how many repeats of a scope make the next request one that is looked
// up first.
const inARow = 16

// After a row of repeats the next request is looked up first: one read when it
// repeats as well, and one statement more when it does not, which ends the row.
func TestClient_statementsAfterRepeats(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	trace := newTracer()
	traced := pgtest.Reconnect(t, pool, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = trace })
	c := newClient(t, traced, queue.Config{PollOnly: true})
	scoped := func(scope string, i int) queue.Request {
		req := order(i)
		req.Admission = queue.Idempotency{Key: fmt.Sprint("order-", i), Scope: scope}
		return req
	}
	a := func(i int) queue.Request { return scoped("a", i) }
	other := a(0)
	other.Payload = nil
	accept(t, c, a(0))
	accept(t, c, scoped("b", 0))
	row := func(t *testing.T, scope string) {
		t.Helper()
		for range inARow {
			if err := want(queue.OutcomeReplayed)(c.EnqueueWithResult(t.Context(), scoped(scope, 0))); err != nil {
				t.Fatal(err)
			}
		}
	}
	one := func(outcome queue.Outcome, req queue.Request) func(context.Context) error {
		return func(ctx context.Context) error { return want(outcome)(c.EnqueueWithResult(ctx, req)) }
	}
	refuse := func(ctx context.Context) error {
		if _, err := c.EnqueueWithResult(ctx, other); !isConflict(err) {
			return fmt.Errorf("not a conflict: %w", err)
		}
		return nil
	}
	many := func(reqs ...queue.Request) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := c.EnqueueMany(ctx, reqs)
			return err
		}
	}
	expire := func(t *testing.T) { pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp()`) }

	if sent := trace.during(func() { row(t, "a") }); len(sent) != inARow || sent[inARow-1] != "Enqueue" {
		t.Fatalf("the first %d repeats are asked as any request: sent %q", inARow, sent)
	}
	for _, step := range []struct {
		name   string
		before func(t *testing.T)
		do     func(context.Context) error
		want   []string
	}{
		{"a replay is one look", nil, one(queue.OutcomeReplayed, a(0)), []string{"EnqueueRepeat"}},
		{"so is a conflict", nil, refuse, []string{"EnqueueRepeat"}},
		{"so is a batch of replays", nil, many(a(0), a(0)), []string{"EnqueueManyRepeats"}},
		{"another scope is asked as ever", nil, one(queue.OutcomeReplayed, scoped("b", 0)), []string{"Enqueue"}},
		{"a batch with another scope, too", nil, many(a(0), scoped("b", 0)), []string{"EnqueueMany"}},
		{"a fresh key needs a second statement", nil, one(queue.OutcomeAccepted, a(1)), []string{"EnqueueRepeat", "EnqueueAgain"}},
		{"the next does not", nil, one(queue.OutcomeAccepted, a(2)), []string{"Enqueue"}},
		{"nor does a replay", nil, one(queue.OutcomeReplayed, a(0)), []string{"Enqueue"}},
		{"a batch of which one is fresh needs a second statement", func(t *testing.T) { row(t, "a") }, many(a(0), a(3)), []string{"EnqueueManyRepeats", "EnqueueMany"}},
		{"the next batch does not", nil, many(a(0), a(4)), []string{"EnqueueMany"}},
		{"an expired key needs a second statement", func(t *testing.T) { row(t, "a"); expire(t) }, one(queue.OutcomeAccepted, a(0)), []string{"EnqueueRepeat", "EnqueueAgain"}},
		{"a batch of expired keys, too", func(t *testing.T) { row(t, "a"); expire(t) }, many(a(0), a(1)), []string{"EnqueueManyRepeats", "EnqueueMany"}},
		{"a batch at odds with itself is not looked up", func(t *testing.T) { row(t, "a") }, func(ctx context.Context) error {
			if _, err := c.EnqueueMany(ctx, []queue.Request{a(0), other}); !isConflict(err) {
				return fmt.Errorf("not a conflict: %w", err)
			}
			return nil
		}, []string{"EnqueueMany"}},
		{"in a caller's transaction a replay is one look", func(t *testing.T) { row(t, "a") }, inTx(traced, pgx.ReadCommitted, func(ctx context.Context, tx pgx.Tx) error {
			return want(queue.OutcomeReplayed)(c.EnqueueTx(ctx, tx, a(0)))
		}), []string{"begin", "EnqueueRepeat", "SELECT", "commit"}},
	} {
		if step.before != nil {
			step.before(t)
		}
		sent := trace.during(func() {
			if err := step.do(t.Context()); err != nil {
				t.Errorf("%s: %v", step.name, err)
			}
		})
		if diff := cmp.Diff(step.want, sent); diff != "" {
			t.Fatalf("%s (-want +sent):\n%s", step.name, diff)
		}
	}
}

// A look answers as the whole statement would, for every kind of held key.
func TestClient_answersAfterRepeats(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{PollOnly: true})
	fresh := newClient(t, pool, queue.Config{PollOnly: true}) // has seen no repeats
	accept(t, c, order(0))
	accept(t, c, reminder())
	dead := accept(t, c, order(1))
	if _, err := c.Cancel(t.Context(), dead, "to see it told"); err != nil {
		t.Fatal(err)
	}
	other, throttled := order(0), order(0)
	other.Payload, other.Priority = nil, 7
	throttled.Admission = queue.Throttle{Key: "order-0", Window: day}
	type told struct {
		Result   queue.Result
		Conflict queue.EnqueueIdempotencyConflictError
	}
	ask := func(c *queue.Client, req queue.Request, batch bool) (a told) {
		res, err := single(t.Context(), c, batch, req)
		if conflict, ok := asConflict(err); ok {
			a.Conflict = *conflict
		} else if err != nil {
			t.Errorf("%+v: %v", req.Admission, err)
		}
		a.Result = res
		return a
	}
	for _, row := range []struct {
		name string
		req  queue.Request
	}{
		{"a replay", order(0)}, {"a coalesced request", reminder()}, {"a replay of a cancelled job", order(1)},
		{"a conflict", other}, {"a key under another admission", throttled},
	} {
		for _, batch := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, batch %t", row.name, batch), func(t *testing.T) {
				for range inARow {
					ask(c, order(0), false)
				}
				if diff := cmp.Diff(ask(fresh, row.req, batch), ask(c, row.req, batch), cmp.AllowUnexported(queue.EnqueueIdempotencyConflictError{})); diff != "" {
					t.Errorf("the answer does not depend on what was asked before (-without +after repeats):\n%s", diff)
				}
				fresh = newClient(t, pool, queue.Config{PollOnly: true})
			})
		}
	}
}

// The same for several requests at once, of which some have a key together.
func TestClient_batchAnswersAfterRepeats(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{PollOnly: true})
	for i := range 3 {
		accept(t, c, order(i))
	}
	differs := func(i int) queue.Request {
		req := order(i)
		req.Payload, req.Priority = nil, 7
		return req
	}
	for _, row := range []struct {
		name string
		reqs []queue.Request
	}{
		{"replays, one of them twice", []queue.Request{order(0), order(1), order(0)}},
		{"a conflict after a replay", []queue.Request{order(0), differs(1)}},
		{"a conflict that is asked for twice", []queue.Request{differs(1), order(2), differs(1)}},
		{"two conflicts", []queue.Request{differs(2), order(0), differs(1)}},
	} {
		t.Run(row.name, func(t *testing.T) {
			for range inARow {
				if err := want(queue.OutcomeReplayed)(c.EnqueueWithResult(t.Context(), order(0))); err != nil {
					t.Fatal(err)
				}
			}
			told := func(c *queue.Client) (a struct {
				Results []queue.Result
				Error   string
			}) {
				results, err := c.EnqueueMany(t.Context(), row.reqs)
				if a.Results = results; err != nil {
					a.Error = err.Error()
				}
				return a
			}
			fresh := newClient(t, pool, queue.Config{PollOnly: true}) // has seen no repeats
			if diff := cmp.Diff(told(fresh), told(c)); diff != "" {
				t.Errorf("the answer does not depend on what was asked before (-without +after repeats):\n%s", diff)
			}
		})
	}
}

// A request that was prepared for a look alone is stored as any other.
func TestClient_acceptedAfterRepeats(t *testing.T) {
	t.Parallel()
	c := newClient(t, pgtest.New(t), queue.Config{PollOnly: true})
	accept(t, c, order(0))
	for i, batch := range []bool{false, true} {
		for range inARow {
			if err := want(queue.OutcomeReplayed)(c.EnqueueWithResult(t.Context(), order(0))); err != nil {
				t.Fatal(err)
			}
		}
		if err := want(queue.OutcomeAccepted)(single(t.Context(), c, batch, order(1+i))); err != nil {
			t.Fatalf("batch %t: %v", batch, err)
		}
		other := order(1 + i)
		other.Payload, other.Priority = nil, 7
		_, err := c.EnqueueWithResult(t.Context(), other)
		conflict, ok := asConflict(err)
		if !ok {
			t.Fatalf("batch %t: not a conflict: %v", batch, err)
		}
		if diff := cmp.Diff([]queue.Field{queue.FieldPayload, queue.FieldPriority}, conflict.Fields); diff != "" {
			t.Errorf("batch %t: a conflict with it names the members that differ (-want +got):\n%s", batch, diff)
		}
	}
}
