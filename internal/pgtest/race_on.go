//go:build race

package pgtest

import "time"

// Patience is how long a condition is awaited before the test fails: no claim
// about speed.
const Patience = 2 * time.Minute

// Rounds is how often a race is run: a fifth of what the test asks for, since the
// race detector makes each round several times as long.
func Rounds(n int) int { return max(n/5, 1) }
