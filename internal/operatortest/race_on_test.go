//go:build race

package operatortest

// rounds is how often a race is run: a fifth of what the test asks for, since
// the race detector makes each round several times as long.
func rounds(n int) int { return max(n/5, 1) }
