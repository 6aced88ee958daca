package queue

import (
	"context"
	"log/slog"
	"testing"
)

// Two attempts of one job meet in one worker, whose process was paused in
// between. The one with the higher fence has the job, whichever comes first.
func TestLeases_add(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]int32{"in their order": {1, 2}, "the stale one late": {2, 1}} {
		w := &Worker{log: slog.New(slog.DiscardHandler)}
		w.leases.held = map[JobID]*attempt{}
		contexts := map[int32]context.Context{}
		for _, fence := range order {
			ctx, cancel := context.WithCancelCause(t.Context())
			contexts[fence] = ctx
			w.leases.add(&attempt{w: w, id: "job", fence: fence, cancel: cancel})
		}
		if cause := context.Cause(contexts[1]); cause != ErrLeaseLost {
			t.Errorf("%s: the stale attempt's context must end with %v, got %v", name, ErrLeaseLost, cause)
		}
		if contexts[2].Err() != nil || w.leases.held["job"].fence != 2 {
			t.Errorf("%s: the owner must go on and be renewed; renewed is fence %d, the owner's context says %v", name, w.leases.held["job"].fence, contexts[2].Err())
		}
	}
}
