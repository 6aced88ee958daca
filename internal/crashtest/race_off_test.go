//go:build unix && !race

package crashtest

import "time"

// flowTime is how long jobs flow while workers are killed, one within each
// killPause, and workTime how long they flow beside an old snapshot.
const (
	flowTime  = 60 * time.Second
	killPause = 500 * time.Millisecond
	workTime  = 60 * time.Second
)
