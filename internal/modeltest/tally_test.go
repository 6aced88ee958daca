package modeltest

import (
	"fmt"
	"sync"
	"testing"
)

// tally counts what histories were told, so that they can't pass by never
// coming to what they are to check.
type tally struct {
	mu    sync.Mutex
	count map[string]int
}

func (c *tally) note(op operation, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == nil {
		c.count = map[string]int{}
	}
	for _, r := range a.results {
		text := fmt.Sprintf("%s %s", op.action, r.Outcome)
		if r.Reason != "" {
			text += " " + string(r.Reason)
		}
		c.count[text]++
		if r.Dead {
			c.count[text+" dead"]++
		}
	}
	for _, conflict := range a.conflicts {
		for _, field := range conflict.fields {
			c.count[fmt.Sprintf("%s conflict %s", op.action, field)]++
		}
		if conflict.job == "" {
			c.count["conflict in the batch"]++
		}
	}
	if a.invalid != nil {
		c.count["two admissions"]++
	}
	if len(a.claimed) > 0 {
		c.count["claimed"]++
	}
	if a.told != "" && op.action != look {
		c.count[fmt.Sprintf("%s %s", op.action, a.told)]++
	}
	for i, n := range a.counts {
		if n > 0 {
			c.count[fmt.Sprintf("%s %d", op.action, i)]++
		}
	}
}

// common is what a full number of histories is sure to come to.
var common = []string{
	"enqueue accepted", "enqueue replayed", "enqueue replaced", "enqueue coalesced", "enqueue coalesced dead",
	"enqueue non_replaceable incompatible_mode", "enqueue non_replaceable not_pending", "enqueue non_replaceable not_pending dead",
	"enqueue non_replaceable window_elapsed",
	"enqueue many accepted", "enqueue many replayed", "enqueue many replaced", "enqueue many coalesced",
	"enqueue many non_replaceable incompatible_mode", "enqueue many non_replaceable not_pending", "enqueue many non_replaceable window_elapsed",
	"enqueue conflict admission", "enqueue conflict queue", "enqueue conflict type", "enqueue conflict payload", "enqueue conflict priority",
	"enqueue conflict tags", "enqueue conflict max_attempts", "enqueue conflict retry", "enqueue conflict run_at", "enqueue conflict deadline",
	"enqueue conflict execution_timeout", "enqueue conflict retention", "enqueue many conflict admission", "enqueue many conflict payload",
	"conflict in the batch", "two admissions", "claimed",
	"succeed ended", "succeed lost", "fail dead", "fail retry_scheduled", "fail cancelled", "fail lost", "hand back ended", "hand back lost",
	"cancel cancelled", "cancel requested", "cancel already_terminal", "cancel not_found",
	"purge 0", "maintain 0", "maintain 1", "maintain 2", "maintain 3",
}

func (c *tally) check(t *testing.T) {
	t.Helper()
	for _, text := range common {
		if c.count[text] == 0 {
			t.Errorf("no history came to %q", text)
		}
	}
	t.Logf("answers: %v", c.count)
}
