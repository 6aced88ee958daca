package modeltest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/onceq/onceq/pkg/queue"
)

var seedFlag = flag.Uint64("modeltest.seed", 0, "seed of the first concurrent history; 0 picks one")

const (
	callers = 5
	turns   = 5 // operations of each caller
	// checkLimit is how long the search for an order may take.
	checkLimit = time.Minute
)

// TestConcurrent plays histories of several callers at once over one or two
// keys: what they were told must be what the model tells them in some order
// that agrees with the times of the calls, and so must be what is stored then.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	const lanes = 2
	for lane := range lanes {
		t.Run(fmt.Sprint(lane), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			for n := lane; n < concurrentHistories && !t.Failed(); n += lanes {
				concurrent(t, w, seed+uint64(n))
			}
		})
	}
}

func concurrent(t *testing.T, w *world, seed uint64) {
	t.Helper()
	if err := w.begin(); err != nil {
		t.Fatal(err)
	}
	h := &history{w: w, began: time.Now()}
	choices := rand.New(rand.NewPCG(seed, 0))
	h.keys = 1 + choices.IntN(2)
	h.shape = choices.IntN(keyCount)
	var wg sync.WaitGroup
	for caller := range callers {
		s := seeded{rand.New(rand.NewPCG(seed, uint64(caller)+1))}
		wg.Go(func() {
			for range turns {
				h.mu.Lock()
				op := h.choose(s)
				h.mu.Unlock()
				h.play(caller, op)
			}
		})
	}
	wg.Wait()
	h.play(0, operation{action: look})
	for _, o := range h.done {
		if err := o.Output.(answer).err; err != nil {
			t.Errorf("seed %d: %s: %v", seed, o.Input, err)
		}
	}
	result, info := porcupine.CheckOperationsVerbose(model, h.done, checkLimit)
	if result != porcupine.Ok {
		t.Errorf("no order explains the history (%s); its operations are those of -modeltest.seed=%d:\n%s", result, seed, h.tell(info))
	}
}

// model is the model in porcupine's form.
var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, input, output any) (bool, any) {
		next, want := step(s.(state), input.(operation), output.(answer), true)
		return want.String() == output.(answer).String(), next
	},
	Equal: func(a, b any) bool { return a.(state).equal(b.(state)) },
}

// seeded makes choices by a seed.
type seeded struct{ *rand.Rand }

func (s seeded) choose(n int) int { return s.IntN(n) }

// history is what several callers did.
type history struct {
	w     *world
	began time.Time
	keys  int // how many are played with
	shape int // turns the keys, so that each admission is met alone too

	mu   sync.Mutex
	past past
	done []porcupine.Operation
}

// play does an operation and notes when it was called and when it came back.
func (h *history) play(caller int, op operation) {
	if op.action == nothing {
		return
	}
	call := time.Since(h.began)
	got := h.w.do(op)
	back := time.Since(h.began)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.past.note(op, got)
	h.done = append(h.done, porcupine.Operation{ClientId: caller, Input: op, Call: int64(call), Output: got, Return: int64(back)})
}

// choose is an operation without steps of time. A purge names one job, since one
// of many is a walk and not a moment; a claim takes one job.
func (h *history) choose(s source) operation {
	op := operation{action: pick(s, enqueue, enqueue, enqueue, enqueue, enqueue, enqueue, claim, claim, claim, succeed, fail, handBack, cancel, purge)}
	switch op.action {
	case enqueue:
		r := chooseRequest(s, &h.past)
		for r.mode == plain {
			r = chooseRequest(s, &h.past)
		}
		r.key = (r.key%h.keys + h.shape) % keyCount
		r.def.queue = 0
		op.requests = []request{r}
		op.way = pick(s, byClient, byClient, byClient, committed, rolledBack)
	case claim:
		op.most, op.early = 1, true
	case succeed, fail, handBack:
		if len(h.past.attempts) == 0 {
			return operation{}
		}
		op.attempt = recent(s, h.past.attempts)
		op.again = op.action == fail && s.choose(2) == 1
	case cancel, purge:
		if len(h.past.jobs) == 0 {
			return operation{}
		}
		op.jobs = []queue.JobID{recent(s, h.past.jobs)}
	}
	return op
}

// tell lists the operations by the times of their calls, and how far an order
// was found.
func (h *history) tell(info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	var lines []string
	line := func(o porcupine.Operation) {
		lines = append(lines, fmt.Sprintf("%6d-%6d µs  caller %d  %s\n    -> %s", o.Call/1000, o.Return/1000, o.ClientId, o.Input, o.Output))
	}
	slices.SortFunc(h.done, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	for _, o := range h.done {
		line(o)
	}
	lines = append(lines, "The longest order:")
	s := state{}
	for _, o := range longest {
		line(o)
		s, _ = step(s, o.Input.(operation), o.Output.(answer), true)
	}
	lines = append(lines, "after which the model says of the others:")
	for _, o := range h.done {
		if !slices.ContainsFunc(longest, func(l porcupine.Operation) bool { return l.ClientId == o.ClientId && l.Call == o.Call }) {
			_, want := step(s, o.Input.(operation), o.Output.(answer), true)
			lines = append(lines, fmt.Sprintf("  %s\n    -> %s", o.Input, want))
		}
	}
	return h.past.rename(strings.Join(lines, "\n"))
}
