package handover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/onceq/onceq/cmd/onceq/internal/member"
	"github.com/onceq/onceq/pkg/queue"
)

// serial makes a fake usable by several lanes.
type serial struct {
	sync.Mutex
	Enqueuer
	largest int
}

func (s *serial) EnqueueMany(ctx context.Context, reqs []queue.Request) ([]queue.Result, error) {
	s.Lock()
	defer s.Unlock()
	s.largest = max(s.largest, len(reqs))
	for i, r := range reqs {
		reqs[i].Payload = fmt.Sprintf("%s", r.Payload)
	}
	return s.Enqueuer.EnqueueMany(ctx, reqs)
}

func idempotent(key string) queue.Admission { return queue.Idempotency{Key: key} }

// handOver runs a Handover of text and returns what it counted.
func handOver(t *testing.T, client Enqueuer, in io.Reader, lanes, most int) (total Tally, last int, err error) {
	t.Helper()
	h := Handover{
		Client:   client,
		Template: Template{Request: queue.Request{Type: "t"}, Admission: idempotent, KeyField: member.Path{"id"}},
		Lanes:    lanes, Most: most,
		Settled: func(s Settled) {
			if s.Last <= last {
				t.Errorf("the chunk up to line %d comes after line %d", s.Last, last)
			}
			total.Add(s.Tally)
			last = s.Last
		},
	}
	err = h.run(t.Context(), newLineReader(in, 1<<20))
	return total, last, err
}

// However many lanes there are, of lines with one key the first one wins.
func TestHandoverKeepsTheOrderOfAKey(t *testing.T) {
	t.Parallel()
	var in strings.Builder
	const keys, repeats = 40, 25
	for n := range repeats {
		for key := range keys {
			fmt.Fprintf(&in, "{\"id\":%d,\"n\":%d}\n", key, n)
		}
	}
	fake := &oneByOne{owned: map[string]string{}}
	client := &serial{Enqueuer: fake}
	total, last, err := handOver(t, client, strings.NewReader(in.String()), 4, 7)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Tally{Accepted: keys, Conflicts: keys * (repeats - 1)}); total != want || last != keys*repeats {
		t.Errorf("up to line %d: %+v, want %+v", last, total, want)
	}
	for key, payload := range fake.owned {
		if !strings.HasSuffix(payload, `"n":0}`) {
			t.Errorf("key %s is owned by %s, want by its first line", key, payload)
		}
	}
	if client.largest > 7 {
		t.Errorf("a batch had %d lines, allowed were 7", client.largest)
	}
}

func TestHandoverStops(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	many := strings.Repeat("{\"id\":1}\n", 100)

	t.Run("when the input breaks", func(t *testing.T) {
		t.Parallel()
		client := &serial{Enqueuer: &oneByOne{owned: map[string]string{}}}
		in := io.MultiReader(strings.NewReader(many+`{"id":`), iotest.ErrReader(broken))
		total, _, err := handOver(t, client, in, 2, 10)
		var stop *stopped
		if !errors.As(err, &stop) || stop.line != 100 || !errors.Is(err, broken) || total.Lines() != 100 {
			t.Errorf("after %d lines the error is %v", total.Lines(), err)
		}
	})
	t.Run("when a batch fails", func(t *testing.T) {
		t.Parallel()
		total, _, err := handOver(t, failing{broken}, strings.NewReader(many), 2, 10)
		var stop *stopped
		if !errors.As(err, &stop) || stop.line != 0 || !errors.Is(err, broken) || total.Lines() != 0 {
			t.Errorf("after %d lines the error is %v", total.Lines(), err)
		}
	})
	t.Run("when it is cancelled", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		h := Handover{
			Client:   &serial{Enqueuer: &oneByOne{owned: map[string]string{}}},
			Template: Template{Request: queue.Request{Type: "t"}, Admission: idempotent, KeyField: member.Path{"id"}},
			Lanes:    2, Most: 10,
			Settled: func(Settled) { cancel() },
		}
		// An input without end.
		in := newLineReader(endless("{\"id\":1}\n"), 1<<20)
		var stop *stopped
		if err := h.run(ctx, in); !errors.As(err, &stop) || stop.line < 1 || !errors.Is(err, ErrInterrupted) {
			t.Errorf("the error is %v", err)
		}
	})
}

// endless reads its text again and again.
type endless string

func (e endless) Read(p []byte) (int, error) {
	n := 0
	for len(p)-n >= len(e) {
		n += copy(p[n:], e)
	}
	return n, nil
}

// Long lines close a chunk early, so that a few of them don't fill the memory.
func TestChunkIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	c := newChunk(2, 1000)
	for i := range 3 {
		if c.full {
			t.Fatalf("full after %d lines", i)
		}
		c.add(line{number: i + 1, key: fmt.Sprint(i), size: maxChunkBytes / 3})
	}
	if c.full {
		t.Fatal("full too early")
	}
	c.add(line{number: 4, key: "x", size: 1 << 10})
	if !c.full {
		t.Error("not full")
	}
}
