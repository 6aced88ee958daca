package racetest

import (
	"math/rand/v2"
	"testing"

	"github.com/onceq/onceq/internal/pgtest"
)

// FuzzPayloadEquality looks for two texts about which Request.Fingerprint and
// PostgreSQL disagree: whether they are jsonb, and whether they are equal.
func FuzzPayloadEquality(f *testing.F) {
	r := rand.New(rand.NewPCG(20261130, 4))
	u := universe{r}
	for range 50 {
		for _, p := range []pair{generated(r), u.pair(), {u.doubt(), u.doubt()}} {
			f.Add(p.a, p.b)
		}
	}
	o := newOracle(f, pgtest.New(f))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if len(a)+len(b) > 1<<20 {
			return // longer texts only make it slower
		}
		p := pair{a, b}
		verdicts, err := o.ask(t.Context(), []pair{p})
		if err != nil {
			t.Fatal(err)
		}
		if err := disagreement(p, verdicts[0]); err != nil {
			t.Error(err)
		}
	})
}
