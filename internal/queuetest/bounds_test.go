package queuetest_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

const year = 365 * day

var (
	// The first and the last instant of a timestamptz.
	firstInstant = time.Date(-4713, 11, 24, 0, 0, 0, 0, time.UTC)
	lastInstant  = time.Date(294276, 12, 31, 23, 59, 59, 999999000, time.UTC)
)

// tags returns n different tags.
func tags(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint("tag-", i)
	}
	return list
}

// bounds are values at the edge of a bound and one over it. The words of a bad
// one are what its refusal must mention: the field, the bound, the size.
var bounds = []struct {
	name string
	ok   []queue.Request
	bad  []queue.Request
	says [][]string // of bad, by position; a single one stands for all
}{
	{
		name: "type is 1 to 255 bytes without control characters or a space at either end",
		ok: []queue.Request{
			{Type: "t"}, {Type: text(255)}, {Type: strings.Repeat("é", 127) + "x"}, {Type: strings.Repeat("🐘", 63) + "xyz"}, {Type: "a b"}, {Type: "\u200b"},
		},
		bad: []queue.Request{
			{Type: text(256)}, {Type: strings.Repeat("é", 128)}, {Type: strings.Repeat("🐘", 64)},
			{Type: " t"}, {Type: "t "}, {Type: " "}, {Type: "a\x00b"}, {Type: "a\nb"}, {Type: "a\x1fb"}, {Type: "a\x7fb"}, {Type: "a\u0085b"}, {Type: "a\xffb"}, {Type: "\xc3"},
		},
		says: [][]string{
			{"type", "255", "256"}, {"type", "255", "256"}, {"type", "255", "256"},
			{"type"}, {"type"}, {"type"}, {"type"}, {"type"}, {"type"}, {"type"}, {"type"}, {"type", "utf-8"}, {"type", "utf-8"},
		},
	},
	{
		name: "queue is 1 to 255 bytes without control characters or a space at either end",
		ok:   []queue.Request{{Queue: "q"}, {Queue: text(255)}, {Queue: strings.Repeat("é", 127) + "x"}, {Queue: strings.Repeat("🐘", 63) + "xyz"}, {Queue: "a b"}},
		bad: []queue.Request{
			{Queue: text(256)}, {Queue: strings.Repeat("é", 128)}, {Queue: strings.Repeat("🐘", 64)},
			{Queue: " q"}, {Queue: "q "}, {Queue: " "}, {Queue: "a\x00b"}, {Queue: "a\tb"}, {Queue: "a\x7fb"}, {Queue: "a\u009fb"}, {Queue: "a\xc3\x28b"},
		},
		says: [][]string{
			{"queue", "255", "256"}, {"queue", "255", "256"}, {"queue", "255", "256"},
			{"queue"}, {"queue"}, {"queue"}, {"queue"}, {"queue"}, {"queue"}, {"queue"}, {"queue", "utf-8"},
		},
	},
	{
		name: "payload is at most 1 MiB of JSON text by default",
		ok:   []queue.Request{{Payload: text(1<<20 - 2)}, {Payload: strings.Repeat("é", 1<<19-1)}, {Payload: strings.Repeat("<", 1<<20-2)}},
		bad:  []queue.Request{{Payload: text(1<<20 - 1)}, {Payload: strings.Repeat("é", 1<<19)}, {Payload: strings.Repeat("<", 1<<20-1)}},
		says: [][]string{{"payload", "1048576", "1048577"}, {"payload", "1048576", "1048578"}, {"payload", "1048576", "1048577"}},
	},
	{
		name: "priority is 0 to 100",
		ok:   []queue.Request{{Priority: 0}, {Priority: 1}, {Priority: 100}},
		bad:  []queue.Request{{Priority: -1}, {Priority: 101}, {Priority: math.MaxInt}, {Priority: math.MinInt}, {Priority: 1 << 32}},
		says: [][]string{{"priority", "100"}},
	},
	{
		name: "run time is any instant that PostgreSQL holds",
		ok:   []queue.Request{{RunAt: firstInstant}, {RunAt: lastInstant}, {RunAt: lastInstant.Add(999)}, {RunAt: time.Unix(0, 0)}, {RunAt: time.Unix(0, -1000)}, {RunAt: time.Time{}.Add(time.Microsecond)}},
		bad:  []queue.Request{{RunAt: firstInstant.Add(-time.Microsecond)}, {RunAt: lastInstant.Add(time.Microsecond)}, {RunAt: time.Unix(math.MaxInt64/2, 0)}, {RunAt: time.Unix(math.MinInt64/2, 0)}, {RunAt: time.Unix(1<<62, 0)}},
		says: [][]string{{"run_at"}},
	},
	{
		name: "deadline is any instant that PostgreSQL holds, also one that has passed",
		ok:   []queue.Request{{Deadline: firstInstant}, {Deadline: lastInstant}, {Deadline: time.Unix(0, 0)}},
		bad:  []queue.Request{{Deadline: firstInstant.Add(-time.Microsecond)}, {Deadline: lastInstant.Add(time.Microsecond)}, {Deadline: time.Unix(1<<62, 0)}},
		says: [][]string{{"deadline"}},
	},
	{
		name: "execution timeout is 1 ms to 365 days",
		ok:   []queue.Request{{ExecutionTimeout: time.Millisecond}, {ExecutionTimeout: year}},
		bad:  []queue.Request{{ExecutionTimeout: time.Millisecond - 1}, {ExecutionTimeout: 1}, {ExecutionTimeout: -1}, {ExecutionTimeout: year + 1}, {ExecutionTimeout: math.MaxInt64}, {ExecutionTimeout: math.MinInt64}},
		says: [][]string{{"execution_timeout"}},
	},
	{
		name: "attempts are 1 to 100",
		ok:   []queue.Request{{MaxAttempts: 1}, {MaxAttempts: 100}},
		bad:  []queue.Request{{MaxAttempts: -1}, {MaxAttempts: 101}, {MaxAttempts: 1<<32 + 1}},
		says: [][]string{{"max_attempts", "100"}},
	},
	{
		name: "retry delays are 0 to 365 days",
		ok: []queue.Request{
			{Retry: queue.Fixed{}}, {Retry: queue.Fixed{Delay: year}}, {Retry: queue.Exponential{Initial: time.Microsecond, Max: year, Multiplier: 1}},
			{Retry: queue.Exponential{Multiplier: 1000}}, {Retry: queue.DecorrelatedJitter{Base: time.Microsecond, Max: year}},
		},
		bad: []queue.Request{
			{Retry: queue.Fixed{Delay: -1}}, {Retry: queue.Exponential{Initial: -1}}, {Retry: queue.DecorrelatedJitter{Base: -1}}, {Retry: queue.DecorrelatedJitter{Max: -1}}, {Retry: queue.Fixed{Delay: -time.Microsecond}}, {Retry: queue.Fixed{Delay: year + time.Microsecond}}, {Retry: queue.Exponential{Initial: -time.Microsecond}}, {Retry: queue.Exponential{Max: -time.Microsecond}},
			{Retry: queue.Exponential{Max: year + time.Microsecond}}, {Retry: queue.Exponential{Multiplier: 0.99}}, {Retry: queue.Exponential{Multiplier: -2}},
			{Retry: queue.Exponential{Multiplier: math.NaN()}}, {Retry: queue.Exponential{Multiplier: math.Inf(1)}}, {Retry: queue.Exponential{Multiplier: 1000.5}},
			{Retry: queue.DecorrelatedJitter{Base: -time.Microsecond}}, {Retry: queue.DecorrelatedJitter{Max: -time.Microsecond}}, {Retry: queue.DecorrelatedJitter{Max: year + time.Microsecond}},
		},
		says: [][]string{{"retry"}},
	},
	{
		name: "tags are at most 20, each 1 to 100 characters without control characters",
		ok:   []queue.Request{{Tags: tags(20)}, {Tags: []string{"a"}}, {Tags: []string{text(100)}}, {Tags: []string{strings.Repeat("🐘", 100)}}, {Tags: []string{" "}}},
		bad: []queue.Request{
			{Tags: tags(21)}, {Tags: []string{text(101)}}, {Tags: []string{strings.Repeat("é", 101)}},
			{Tags: []string{""}}, {Tags: []string{"a", ""}}, {Tags: []string{"a\x00"}}, {Tags: []string{"a\n"}}, {Tags: []string{"a\x7f"}}, {Tags: []string{"a\u0080"}}, {Tags: []string{"\xff"}},
		},
		says: [][]string{
			{"tags", "20", "21"}, {"tags", "100", "101"}, {"tags", "100", "101"},
			{"tags"}, {"tags"}, {"tags"}, {"tags"}, {"tags"}, {"tags"}, {"tags", "utf-8"},
		},
	},
	{
		name: "concurrency key is 1 to 256 bytes",
		ok:   []queue.Request{{ConcurrencyKey: "c"}, {ConcurrencyKey: text(256)}, {ConcurrencyKey: strings.Repeat("é", 128)}, {ConcurrencyKey: " \n"}},
		bad:  []queue.Request{{ConcurrencyKey: text(257)}, {ConcurrencyKey: strings.Repeat("é", 128) + "x"}, {ConcurrencyKey: "\xff"}, {ConcurrencyKey: "a\x00"}},
		says: [][]string{{"concurrency_key", "256", "257"}, {"concurrency_key", "256", "257"}, {"concurrency_key", "utf-8"}, {"concurrency_key"}},
	},
	{
		name: "an idempotency key is 1 to 512 bytes",
		ok:   admitted(queue.Idempotency{Key: "k"}, queue.Idempotency{Key: text(512)}, queue.Idempotency{Key: strings.Repeat("é", 256)}, queue.Idempotency{Key: strings.Repeat("🐘", 128)}),
		bad: admitted(queue.Idempotency{Key: text(513)}, queue.Idempotency{Key: strings.Repeat("é", 256) + "x"}, queue.Idempotency{Key: strings.Repeat("🐘", 128) + "x"},
			queue.Idempotency{}, queue.Idempotency{Key: "\xff\xfe"}, queue.Idempotency{Key: "\xfe\xff"}),
		says: [][]string{{"key", "512", "513"}, {"key", "512", "513"}, {"key", "512", "513"}, {"key"}, {"key", "utf-8"}, {"key", "utf-8"}},
	},
	{
		name: "a throttle key is 1 to 512 bytes",
		ok:   admitted(queue.Throttle{Key: text(512), Scope: "throttle", Window: day}),
		bad:  admitted(queue.Throttle{Key: text(513), Window: day}, queue.Throttle{Window: day}, queue.Throttle{Key: "\xff", Window: day}),
		says: [][]string{{"key", "512", "513"}, {"key"}, {"key", "utf-8"}},
	},
	{
		name: "a scope is 1 to 256 bytes without NUL",
		ok:   admitted(queue.Idempotency{Key: "k", Scope: text(256)}, queue.Idempotency{Key: "k", Scope: strings.Repeat("é", 128)}, queue.Throttle{Key: "k", Scope: "\x01\n ", Window: day}),
		bad: admitted(queue.Idempotency{Key: "k", Scope: text(257)}, queue.Throttle{Key: "k", Scope: strings.Repeat("é", 128) + "x", Window: day},
			queue.Idempotency{Key: "k", Scope: "a\x00b"}, queue.Idempotency{Key: "k", Scope: "\xff"}),
		says: [][]string{{"scope", "256", "257"}, {"scope", "256", "257"}, {"scope"}, {"scope", "utf-8"}},
	},
	{
		name: "a TTL is 1 ms to 365 days",
		ok:   admitted(queue.Idempotency{Key: "ttl-1", TTL: time.Millisecond}, queue.Idempotency{Key: "ttl-2", TTL: year}),
		bad: admitted(queue.Idempotency{Key: "k", TTL: time.Millisecond - 1}, queue.Idempotency{Key: "k", TTL: 1}, queue.Idempotency{Key: "k", TTL: -1},
			queue.Idempotency{Key: "k", TTL: year + 1}, queue.Idempotency{Key: "k", TTL: math.MaxInt64}, queue.Idempotency{Key: "k", TTL: math.MinInt64}),
		says: [][]string{{"ttl"}},
	},
	{
		name: "a release is one of three",
		ok:   admitted(queue.Idempotency{Key: "rel-1", Release: queue.ReleaseFinished}, queue.Idempotency{Key: "rel-2", Release: queue.ReleaseDead}),
		bad:  admitted(queue.Idempotency{Key: "k", Release: -1}, queue.Idempotency{Key: "k", Release: 3}, queue.Idempotency{Key: "k", Release: 1 << 16}),
		says: [][]string{{"release"}},
	},
	{
		name: "a throttle's window is 1 ms to 365 days and required",
		ok:   admitted(queue.Throttle{Key: "win-1", Window: time.Millisecond}, queue.Throttle{Key: "win-2", Window: year}),
		bad:  admitted(queue.Throttle{Key: "k"}, queue.Throttle{Key: "k", Window: time.Millisecond - 1}, queue.Throttle{Key: "k", Window: -1}, queue.Throttle{Key: "k", Window: year + 1}),
		says: [][]string{{"window"}},
	},
}

// admitted returns one request per admission.
func admitted(list ...queue.Admission) []queue.Request {
	reqs := make([]queue.Request, len(list))
	for i, a := range list {
		reqs[i].Admission = a
	}
	return reqs
}

// typed gives a request of a table a type, unless the table is about types.
func typed(req queue.Request) queue.Request {
	if req.Type == "" {
		req.Type = "t"
	}
	return req
}

func TestRequest_bounds(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	other, sent, _ := observed(t, pool)
	watched := newClient(t, other, queue.Config{})

	for _, row := range bounds {
		t.Run(row.name, func(t *testing.T) {
			for i, req := range row.ok {
				req = typed(req)
				if _, err := req.Fingerprint(); err != nil {
					t.Errorf("value %d at the bound has no fingerprint: %v", i, err)
				}
				id := accept(t, c, req)
				if _, err := c.Job(t.Context(), id); err != nil {
					t.Errorf("the job of value %d at the bound can't be read: %v", i, err)
				}
				if _, err := c.EnqueueMany(t.Context(), []queue.Request{req}); err != nil {
					t.Errorf("value %d at the bound is refused in a batch: %v", i, err)
				}
			}
			for i, req := range row.bad {
				req = typed(req)
				says := row.says[min(i, len(row.says)-1)]
				reached := sent.during(func() {
					_, err := watched.EnqueueWithResult(t.Context(), req)
					wantInvalid(t, err, says...)
					_, err = watched.Enqueue(t.Context(), req)
					wantInvalid(t, err, says...)
					_, err = watched.EnqueueMany(t.Context(), []queue.Request{req})
					wantInvalid(t, err, says...)
					_, err = req.Fingerprint()
					if _, large := req.Payload.(string); !large {
						wantInvalid(t, err, says...)
					}
				})
				if len(reached) != 0 {
					t.Errorf("bad value %d reached PostgreSQL: %q", i, reached)
				}
			}
		})
	}

	t.Run("an empty type is an error", func(t *testing.T) {
		_, err := watched.EnqueueWithResult(t.Context(), queue.Request{})
		wantInvalid(t, err, "type")
	})
	if n := other.Stat().AcquireCount(); n != 0 {
		t.Errorf("bad requests took a connection %d times", n)
	}
}

// Everything that is wrong is told at once, and nothing that is secret.
func TestRequest_allThatIsWrongAtOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	other, sent, _ := observed(t, pool)
	c := newClient(t, other, queue.Config{MaxPayloadBytes: 100})

	const secret = "S3CRET"
	req := queue.Request{
		Queue: " q", Payload: strings.Repeat(secret, 20), Priority: -1, RunAt: lastInstant.Add(day), Deadline: lastInstant.Add(day),
		ExecutionTimeout: -1, MaxAttempts: 101, Retry: queue.Fixed{Delay: -time.Second}, ConcurrencyKey: text(257), Tags: tags(21),
		Admission: queue.Idempotency{Key: strings.Repeat(secret, 100), Scope: text(257), TTL: -1, Release: 9},
	}
	fields := []string{
		"type", "queue", "payload", "priority", "run_at", "deadline", "execution_timeout", "max_attempts", "retry",
		"concurrency_key", "tags", "key", "scope", "ttl", "release",
	}
	throttled := req
	throttled.Admission = queue.Throttle{Key: strings.Repeat(secret, 100), Scope: text(257), Window: -1}
	reached := sent.during(func() {
		_, err := c.EnqueueWithResult(t.Context(), req)
		wantInvalid(t, err, fields...)
		wantInvalid(t, err, "122", "600", "257", "512", "256", "21") // sizes and bounds
		wantNoSecret(t, err, secret)
		_, err = c.EnqueueWithResult(t.Context(), throttled)
		wantInvalid(t, err, append(fields[:len(fields)-2], "window")...)
		wantNoSecret(t, err, secret)
		_, err = c.EnqueueMany(t.Context(), []queue.Request{{Type: "t"}, req, throttled})
		wantInvalid(t, err, "ttl", "window")
		wantNoSecret(t, err, secret)
	})
	if len(reached) != 0 {
		t.Errorf("a bad request reached PostgreSQL: %q", reached)
	}
}

func wantNoSecret(t testing.TB, err error, secret string) {
	t.Helper()
	for _, verb := range []string{"%v", "%+v", "%#v", "%q", "%s"} {
		if text := fmt.Sprintf(verb, err); strings.Contains(text, secret) {
			t.Errorf("the error shows a key or payload by %s: %.200s", verb, text)
		}
	}
}
