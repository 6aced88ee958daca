package workertest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// logs collects what a client and its workers log.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// logged is a Config whose log is kept, from the default level up.
func logged() (queue.Config, *logs) {
	l := &logs{}
	return queue.Config{Logger: slog.New(slog.NewJSONHandler(l, nil))}, l
}

type fuse struct{ n int }

func (f *fuse) blow(text string) { panic(errors.New(text)) }

// brittle is an error that can't even be read.
type brittle struct{ why *string }

func (e brittle) Error() string { return *e.why }

// hollow is an error whose nil pointer, returned by mistake, can't be unwrapped.
type hollow struct{ cause error }

func (e *hollow) Error() string { return e.cause.Error() }
func (e *hollow) Unwrap() error { return e.cause }

// explosive panics when it is decoded.
type explosive struct{}

func (*explosive) UnmarshalJSON([]byte) error { panic("undecodable") }

func deep(n int) int {
	if n == 0 {
		panic("deep down")
	}
	return deep(n-1) + 1
}

func TestPanic_isAnAttemptsFailure(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	cfg, log := logged()
	c := newClient(t, pool, cfg)
	w := newWorker(t, c, one("a"))
	var none map[string]int
	var nothing error
	type custom struct{ A, B int }
	for _, tt := range []struct {
		name string
		run  func() error
		want []string
	}{
		{"text", func() error { panic("the tank is empty") }, []string{"the tank is empty", "panic_test.go"}},
		{"error", func() error { (&fuse{}).blow("a fuse has blown"); return nil }, []string{"a fuse has blown", "(*fuse).blow"}},
		{"nil", func() error { panic(nothing) }, []string{"nil", "panic_test.go"}},
		{"custom", func() error { panic(custom{7, 9}) }, []string{"7", "9"}},
		{"nil map", func() error { none["a"]++; return nil }, []string{"nil map", "panic_test.go"}},
		{"nil pointer", func() error { var f *fuse; f.n++; return nil }, []string{"nil pointer"}},
		{"deep", func() error { deep(10_000); return nil }, []string{"deep down", "deep("}},
		{"huge", func() error { panic(strings.Repeat("ü", 1<<20)) }, []string{"üüü"}},
		{"not UTF-8", func() error { panic("bad \xff\x00 text") }, []string{"text"}},
		{"brittle", func() error { panic(brittle{}) }, []string{"panic"}},
		{"brittle error", func() error { return brittle{} }, []string{""}},
		{"brittle wrapped", func() error { return fmt.Errorf("wrapped: %w", brittle{}) }, []string{"wrapped"}},
		{"hollow error", func() error { var e *hollow; return e }, []string{"nil"}},
		{"hollow wrapped", func() error { return fmt.Errorf("wrapped: %w", (*hollow)(nil)) }, []string{"wrapped"}},
		{"exit", func() error { runtime.Goexit(); return nil }, []string{""}},
	} {
		queue.Handle(w, tt.name, func(context.Context, *queue.Job[any]) error { return tt.run() })
		id := accept(t, c, queue.Request{Type: tt.name, MaxAttempts: 1})
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			job := awaitState(t, c, id, queue.StateDead)
			for _, want := range tt.want {
				if !strings.Contains(job.LastError, want) {
					t.Errorf("the error of the attempt that panicked must mention %q:\n%.2000s", want, job.LastError)
				}
			}
			if n := utf8.RuneCountInString(job.LastError); n == 0 || n > 10_000 {
				t.Errorf("the error of the attempt that panicked has %d characters: it must say something, and be bounded", n)
			}
		})
	}
	queue.Handle(w, "explosive", func(context.Context, *queue.Job[explosive]) error { return nil })
	exploded := accept(t, c, queue.Request{Type: "explosive", MaxAttempts: 1})
	queue.Handle(w, "last", func(context.Context, *queue.Job[any]) error { return nil })
	last := accept(t, c, queue.Request{Type: "last"})
	start(t, w)
	awaitState(t, c, exploded, queue.StateDead)
	awaitState(t, c, last, queue.StateSucceeded) // with the one handler that the worker may run
	if text := log.String(); !strings.Contains(text, `"level":"ERROR"`) || strings.Contains(text, "the tank is empty") {
		t.Errorf("a panic must be logged as an error, without its text:\n%s", text)
	}
}

// picky is a payload that much does not fit into.
type picky struct {
	When   time.Time
	Small  int8
	List   []int
	Nested struct{ Flag bool }
}

func TestPayload_undecodable(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	cfg, log := logged()
	c := newClient(t, pool, cfg)
	w := newWorker(t, c, one("a"))
	queue.Handle(w, workType, func(context.Context, *queue.Job[picky]) error { return nil })
	const secret, number = "s3cret-4711", 47114711
	var ids []queue.JobID
	for _, payload := range []any{
		secret,
		map[string]any{"When": secret},
		map[string]any{"Small": number},
		map[string]any{"Small": secret},
		map[string]any{"List": map[string]any{secret: number}},
		map[string]any{"List": []any{1, secret}},
		map[string]any{"Nested": map[string]any{"Flag": secret}},
		[]any{secret},
		number,
	} {
		ids = append(ids, accept(t, c, queue.Request{Payload: payload, MaxAttempts: 2, Retry: queue.Fixed{}}))
	}
	last := accept(t, c, queue.Request{Payload: picky{}})
	start(t, w)
	for _, id := range ids {
		job := awaitState(t, c, id, queue.StateDead)
		if job.Attempt != 2 || job.LastError == "" {
			t.Errorf("a payload that doesn't fit must fail attempt after attempt, with a reason: attempt %d, error %q", job.Attempt, job.LastError)
		}
		if strings.Contains(job.LastError, secret) || strings.Contains(job.LastError, fmt.Sprint(number)) {
			t.Errorf("the error shows the payload: %s", job.LastError)
		}
	}
	awaitState(t, c, last, queue.StateSucceeded)
	for what, text := range map[string]string{
		"the log":    log.String(),
		"the events": strings.Join(pgtest.List[string](t, pool, `SELECT e::text FROM onceq.event AS e`), "\n"),
		"the errors": strings.Join(pgtest.List[string](t, pool, `SELECT coalesce(error, '') FROM onceq.finished`), "\n"),
	} {
		if strings.Contains(text, secret) || strings.Contains(text, fmt.Sprint(number)) {
			t.Errorf("the payload shows in %s:\n%s", what, text)
		}
	}
}

func TestError_anyTextIsStored(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	cfg, log := logged()
	c := newClient(t, pool, cfg)
	w := newWorker(t, c, one("a"))
	all := []string{"", "with \x00 NUL", "not \xff\xfe UTF-8", "half a character \xc3", strings.Repeat("ä\x00", 50_000), "\\u0000 'quoted' \"$1\" %s", "a\nb"}
	queue.Handle(w, workType, func(_ context.Context, job *queue.Job[int]) error { return errors.New(all[job.Payload]) })
	start(t, w)
	for i, text := range all {
		id := accept(t, c, queue.Request{Payload: i, MaxAttempts: 2, Retry: queue.Fixed{}})
		job := awaitState(t, c, id, queue.StateDead)
		if job.Attempt != 2 {
			t.Errorf("error text %.20q: dead after %d attempts, want 2", text, job.Attempt)
		}
		if utf8.ValidString(text) && !strings.Contains(text, "\x00") && job.LastError != text {
			t.Errorf("error text %q was stored as %q", text, job.LastError)
		}
		if n := utf8.RuneCountInString(job.LastError); n > 10_000 || !utf8.ValidString(job.LastError) {
			t.Errorf("error text %.20q was stored with %d characters; it must be bounded and valid", text, n)
		}
	}
	if n := pgtest.Scan[int](t, pool, `SELECT coalesce(max(char_length(details->>'error')), 0) FROM onceq.event`); n == 0 || n > 1000 {
		t.Errorf("an event holds an error of %d characters; allowed are 1,000", n)
	}
	if strings.Contains(log.String(), "quoted") {
		t.Errorf("error bodies belong to the debug level:\n%s", log.String())
	}
}
