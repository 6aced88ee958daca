//go:build !race

package pgtest

import "time"

// Patience is how long a condition is awaited before the test fails: no claim
// about speed.
const Patience = time.Minute

// Rounds is how often a race is run: as often as the test asks for.
func Rounds(n int) int { return n }
