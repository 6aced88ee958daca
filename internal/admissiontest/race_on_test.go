//go:build race

package admissiontest

// shrink is how many rounds of a race to run: under the race detector, a tenth.
func shrink(n int) int { return n / 10 }
