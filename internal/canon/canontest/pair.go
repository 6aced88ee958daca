// Package canontest makes JSON texts that try what PostgreSQL's jsonb does with
// equality and with its bounds. It is for tests: of package canon, and of canon
// against a real PostgreSQL.
package canontest

import "math/rand/v2"

// Pair returns two JSON texts that jsonb takes. About half of all pairs are equal
// as jsonb, though hardly ever as bytes.
func Pair(r *rand.Rand) (a, b []byte) {
	if r.IntN(2) == 0 {
		return Equal(r)
	}
	return Different(r)
}

// Equal returns two JSON texts of one value, which jsonb takes and finds equal.
// They differ in white space, in the order of members, in members that a later
// one of the same name replaces, in escapes, and in how numbers are written.
func Equal(r *rand.Rand) (a, b []byte) {
	v := randomValue(r)
	return render(r, v), render(r, v)
}

// Different returns JSON texts of two values, which jsonb takes and finds
// different. Most differ in one small thing.
func Different(r *rand.Rand) (a, b []byte) {
	v := randomValue(r)
	return render(r, v), render(r, changed(r, v))
}

// Near returns a text that is a JSON value jsonb takes, or has some fault that is
// easily missed. About half of the texts have one.
func Near(r *rand.Rand) []byte {
	text := render(r, randomValue(r))
	for range r.IntN(3) {
		text = damaged(r, text)
	}
	if text == nil {
		text = []byte{} // a driver would send nil as NULL
	}
	return text
}
