//go:build !race

package modeltest

const (
	sequentialHistories = 2000
	concurrentHistories = 400
	full                = true // tells that these are enough to come to everything
)
