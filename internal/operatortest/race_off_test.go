//go:build !race

package operatortest

// rounds is how often a race is run: as often as the test asks for.
func rounds(n int) int { return n }
