package canontest

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// faults are what a text may not hold, or only in the right place.
var faults = []string{
	`\u0000`, `\ud83d`, `\ude00`, `\ud83d\ude00`, `\ud83d\ud83d`, `\ude00\ud83d`, `\ud83d\n`, `\u12`, `\u123g`, `\x41`, `\'`, `\`, `\\`,
	"\x00", "\x01", "\t", "\n", "\v", "\f", "\x1f", "\x7f", "\u0085", "\u00a0", "\u2028", "\ufeff",
	"\x80", "\xff", "\xc0\x80", "\xe2\x82", "\xed\xa0\x80", "\xed\xb0\x80", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80",
	"NaN", "Infinity", "-Infinity", "nul", "True", "null", "undefined", "//", "/**/", "'", "`",
	"0", "00", "-", "+", ".", "e", "E", "1.", ".5", "1e", "1e+", "0x10", "1_000",
	"[", "]", "{", "}", ",", ":", `"`, `""`, "[]", "{}", ",,", `"a":1`,
}

// edges are numbers around the bounds of numeric.
var edges = []string{
	"1e131071", "1e131072", "-1e131071", "-1e131072", "0.01e131073", "0.01e131074", "10e131070", "10e131071",
	"1e-16383", "1e-16384", "1.0e-16382", "1.0e-16383", "100e-16383", "100e-16385", "0e-16383", "0e-16384", "0.0e-16383", "0e-20000",
	"0e200000", "0e1073741822", "0e1073741823", "0e-1073741823", "0e2147483648", "0e4294967296", "0e9223372036854775808",
	"1e200000", "1e99999999999999999999", "1e-99999999999999999999", "1e00000000000000000000000001", "-0e+0", "-0.0",
	"0." + strings.Repeat("0", 16383), "0." + strings.Repeat("0", 16384), "0." + strings.Repeat("0", 16384) + "e1", "-1." + strings.Repeat("3", 16384),
	strings.Repeat("9", 131072), strings.Repeat("9", 131073), "0." + strings.Repeat("0", 20000) + "1e20000", "0." + strings.Repeat("0", 20000) + "1e3617",
	"1" + strings.Repeat("0", 147454) + "e-16383", "1" + strings.Repeat("0", 147455) + "e-16383",
}

// damaged returns the text with one fault in it, or with something that may be
// one.
func damaged(r *rand.Rand, text []byte) []byte {
	at := r.IntN(len(text) + 1)
	end := min(len(text), at+r.IntN(3))
	switch r.IntN(8) {
	case 0:
		return text[:at]
	case 1:
		return slices.Concat(text[:at], text[end:])
	case 2:
		return slices.Concat(text[:end], text[at:])
	case 3:
		return slices.Concat(text[:at], []byte{byte(r.IntN(256))}, text[end:])
	case 4, 5:
		number := edges[r.IntN(len(edges))]
		return slices.Concat([]byte("["), text, []byte(", "+number+"]"))
	default:
		return slices.Concat(text[:at], []byte(faults[r.IntN(len(faults))]), text[end:])
	}
}
