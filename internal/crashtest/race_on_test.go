//go:build unix && race

package crashtest

import "time"

// The race detector makes everything several times as slow, and what it looks
// for shows in a third of the time.
const (
	flowTime  = 20 * time.Second
	killPause = 1500 * time.Millisecond
	workTime  = 20 * time.Second
)
