//go:build race

package modeltest

// Under the race detector, a small part, which may not come to all that is rare.
const (
	sequentialHistories = 320
	concurrentHistories = 40
	full                = false
)
