package queue

import (
	"time"

	"github.com/onceq/onceq/db"
)

// levels are the priorities from 100 down to 0.
const levels = maxPriority + 1

const (
	// busyMargin and idleMargin are how far below the last claim a floor stays:
	// of a level that had more to take, and of one that had nothing left.
	busyMargin = 100 * time.Millisecond
	idleMargin = 10 * time.Second
)

// floors are the times below which nothing is left to claim, for each level. A
// claim does not look below them, whatever dead rows are still there.
type floors [levels]time.Time

// raise moves the floor of a level up, never down.
func (f *floors) raise(level int, floor time.Time) {
	if floor.After(f[level]) {
		f[level] = floor
	}
}

// raiseAll is for a look that found nothing to claim in any level.
func (f *floors) raiseAll(at time.Time) {
	for level := range f {
		f.raise(level, at.Add(-idleMargin))
	}
}

// follow is for a claim that got all it asked for. What it took is the first of
// its levels, and those above the lowest of them had nothing else; but not what a
// key led it to beyond where it looked.
func (f *floors) follow(rows []db.ClaimJobsRow) {
	var firsts floors
	lowest, latest := 0, time.Time{}
	for _, row := range rows {
		if row.Beyond {
			continue
		}
		level, ready := maxPriority-int(row.Priority), time.UnixMicro(row.ReadyAtUs)
		if first := firsts[level]; first.IsZero() || ready.Before(first) {
			firsts[level] = ready
		}
		if ready.After(latest) {
			latest = ready
		}
		lowest = max(lowest, level)
	}
	for level := range lowest + 1 {
		if first := firsts[level]; !first.IsZero() {
			f.raise(level, first.Add(-busyMargin))
		} else {
			f.raise(level, latest.Add(-idleMargin))
		}
	}
}
