package admissiontest

import (
	"fmt"
	"testing"
	"time"

	"github.com/onceq/onceq/pkg/queue"
)

// The time for a batch grows with its length and not with its square, also under
// the plan that PostgreSQL keeps after the first five executions.
func TestDebounce_batchCost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	batch := func(n, round int) []queue.Request {
		rs := make([]queue.Request, n)
		for i := range rs {
			rs[i] = debounce(fmt.Sprint("key ", i), round, queue.Debounce{Window: time.Hour, FollowUp: i%2 == 0})
		}
		return rs
	}
	best := func(n int, prepare func()) time.Duration {
		least := time.Hour
		for round := range 12 {
			prepare()
			began := time.Now()
			w.enqueueMany(batch(n, round)...)
			if took := time.Since(began); round >= 6 {
				least = min(least, took)
			}
		}
		return least
	}
	everything := func() { w.exec("TRUNCATE onceq.job, onceq.binding, onceq.pending, onceq.event") }
	started := func() {
		w.exec("WITH t AS (DELETE FROM onceq.pending RETURNING job_id) UPDATE onceq.binding SET dead = false")
	}
	for _, c := range []struct {
		name    string
		prepare func()
	}{
		{"accepted", everything}, {"replaced", func() {}}, {"followed or refused", started},
	} {
		c.prepare()
		few, many := best(100, c.prepare), best(1000, c.prepare)
		t.Logf("%s: %s for 100, %s for 1,000", c.name, few.Round(time.Microsecond), many.Round(time.Microsecond))
		if many > 40*few+100*time.Millisecond {
			t.Errorf("%s: ten times the batch took %.0f times as long", c.name, float64(many)/float64(few))
		}
	}
}
