package modeltest

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// steps is how many operations a history has: fewer than a window has ticks.
const steps = 14

// TestSequential plays generated histories, one operation after the other, on
// PostgreSQL and on the model: every answer and, at the end, everything that is
// stored must be the same.
func TestSequential(t *testing.T) {
	t.Parallel()
	var told tally
	t.Run("lanes", func(t *testing.T) {
		for lane := range lanes {
			t.Run(fmt.Sprint(lane), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				rapid.Check(t, func(t *rapid.T) { sequential(t, w, &told) })
			})
		}
	})
	if full && !fewer && !t.Failed() {
		told.check(t)
	}
}

func sequential(t *rapid.T, w *world, told *tally) {
	if err := w.begin(); err != nil {
		t.Fatal(err)
	}
	var s state
	var p past
	var log []string
	say := func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
	defer func() {
		if t.Failed() {
			t.Log("\n" + p.rename(strings.Join(log, "\n")))
		}
	}()
	for i := range steps + 1 {
		op := operation{action: look}
		if i < steps {
			op = rapid.Custom(func(t *rapid.T) operation { return chooseOperation(drawn{t}, &p) }).Draw(t, "step")
		}
		if op.action == nothing {
			continue
		}
		got := w.do(op)
		next, want := step(s, op, got, false)
		p.note(op, got)
		told.note(op, got)
		say("%3d  %s\n     -> %s", s.now, op, got)
		if got.String() != want.String() {
			say("     the model says: %s", want)
			t.Fatal("PostgreSQL and the model differ")
		}
		s = next
	}
}

// rename gives the jobs of a history short names.
func (p *past) rename(text string) string {
	var names []string
	for i, id := range p.jobs {
		names = append(names, string(id), fmt.Sprintf("job%d", i+1))
	}
	return strings.NewReplacer(names...).Replace(text)
}
