package queue

import (
	"testing"
	"time"

	"github.com/onceq/onceq/db"
)

// A full claim raises the floors of its own levels to just below what it took,
// those above the lowest to well below, and leaves the rest, whatever it took from
// beyond where it looked.
func TestFloors_follow(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	row := func(priority int16, ready time.Time) db.ClaimJobsRow {
		return db.ClaimJobsRow{Priority: priority, ReadyAtUs: ready.UnixMicro()}
	}
	var f floors
	beyond := row(10, at.Add(time.Hour))
	beyond.Beyond = true
	f.follow([]db.ClaimJobsRow{row(90, at.Add(time.Second)), row(90, at.Add(2*time.Second)), row(40, at), beyond})
	for level, floor := range f {
		priority := maxPriority - level
		want := at.Add(2 * time.Second).Add(-idleMargin)
		switch {
		case priority == 90:
			want = at.Add(time.Second).Add(-busyMargin)
		case priority == 40:
			want = at.Add(-busyMargin)
		case priority < 40:
			want = time.Time{}
		}
		if !floor.Equal(want) {
			t.Errorf("the floor of priority %d is %v, want %v", priority, floor, want)
		}
	}
	high := f
	f.follow([]db.ClaimJobsRow{row(90, at.Add(-time.Hour)), row(40, at.Add(-time.Hour))})
	if f != high {
		t.Error("a claim of earlier jobs lowers floors")
	}
}
