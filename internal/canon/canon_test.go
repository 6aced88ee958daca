package canon_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/onceq/onceq/internal/canon"
)

func TestAppend_equality(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, a, b string
		equal      bool
		why        string
	}{
		{"white space", " { \"a\" :\t[ 1 ,\r\n2 ] } ", `{"a":[1,2]}`, true, "space outside strings means nothing"},
		{"space inside a string", `"a b"`, `"ab"`, false, "inside a string it is content"},
		{"space inside a name", `{"a ":1}`, `{"a":1}`, false, "a name is a string"},
		{"member order", `{"b":1,"a":2,"aa":3,"":4}`, `{"":4,"a":2,"aa":3,"b":1}`, true, "an object is a set of members"},
		{"member order inside members", `{"b":{"d":1,"c":2},"a":[{"f":1,"e":2}]}`, `{"a":[{"e":2,"f":1}],"b":{"c":2,"d":1}}`, true, "at every level"},
		{"names that swap their values", `{"a":1,"b":2}`, `{"a":2,"b":1}`, false, "a value belongs to its name"},
		{"duplicate members", `{"a":1,"b":2,"a":3}`, `{"a":3,"b":2}`, true, "the last wins"},
		{"duplicate members, first kept", `{"a":1,"a":3}`, `{"a":1}`, false, "the last wins, not the first"},
		{"adjacent duplicates in order", `{"a":1,"a":1,"b":2}`, `{"a":1,"b":2}`, true, "an object in order may still repeat a name"},
		{"duplicates by escape", `{"a":1,"\u0061":2}`, `{"a":2}`, true, "names compare after their escapes are resolved"},
		{"duplicate that is an object", `{"a":{"y":1,"x":2},"a":0}`, `{"a":0}`, true, "the loser goes with all that is in it"},
		{"duplicates do not merge", `{"a":{"x":1},"a":{"y":2}}`, `{"a":{"x":1,"y":2}}`, false, "the last replaces the first"},
		{"name that looks like a value", `{"a":"b"}`, `{"b":"a"}`, false, "a name and a value stand in different places"},
		{"array order", `[1,2]`, `[2,1]`, false, "an array is a sequence"},
		{"nested arrays", `[[1],2]`, `[1,[2]]`, false, "the brackets count"},
		{"empty array and empty object", `[]`, `{}`, false, "different kinds"},
		{"empty array inside", `[[]]`, `[]`, false, "an element, even if it is empty"},
		{"null member", `{"a":null}`, `{}`, false, "null is a value"},
		{"null and false", `null`, `false`, false, "different literals"},
		{"a value and its array", `1`, `[1]`, false, "jsonb stores a lone scalar in an array of its own, but they differ"},
		{"a number and its text", `1`, `"1"`, false, "different kinds"},
		{"a literal and its text", `true`, `"true"`, false, "different kinds"},

		{"1 and 1.0", `1`, `1.0`, true, "numeric ignores trailing zeros"},
		{"1 and 1e0", `1`, `1e0`, true, "an exponent is only a spelling"},
		{"10 and 1e1", `10`, `1E+1`, true, "an exponent is only a spelling"},
		{"0.05 and 5e-2", `0.05`, `5e-02`, true, "an exponent is only a spelling"},
		{"0.0012e3 and 1.2", `0.0012e3`, `1.2`, true, "leading zeros of a fraction only place the digits"},
		{"120 and 12", `120`, `12`, false, "same digits, another exponent"},
		{"0.12 and 0.012", `0.12`, `0.012`, false, "same digits, another exponent"},
		{"-0 and 0", `-0`, `0`, true, "numeric has one zero"},
		{"-0.00e-5 and 0e9", `-0.00e-5`, `0e9`, true, "numeric has one zero"},
		{"1 and -1", `1`, `-1`, false, "the sign counts"},
		{"2^53 and its successor", `9007199254740992`, `9007199254740993`, false, "every digit counts, also where float64 has none"},
		{"0.1 and what float64 makes of it", `0.1`, `0.1000000000000000055`, false, "every digit counts"},
		{"a huge exponent and its neighbour", `1e131071`, `1e131070`, false, "beyond float64 too"},
		{"a huge number in full", `1e131071`, "1" + strings.Repeat("0", 131071), true, "the same number, however long"},
		{"an exponent with many zeros", `1e5`, `1e` + strings.Repeat("0", 100000) + `5`, true, "the length of an exponent says nothing about its size"},

		{"escapes", `"\"\\\/\b\f\n\r\t\u0041"`, `"\u0022\u005c/\u0008\u000C\u000a\u000D\u0009A"`, true, "strings compare after their escapes are resolved"},
		{"surrogate pair", `"\ud83d\uDE00"`, `"😀"`, true, "a pair is one code point"},
		{"an escaped escape", `"\\u0041"`, `"\u0041"`, false, "the backslash is content"},
		{"normalisation", `"é"`, `"e\u0301"`, false, "no Unicode normalisation"},
		{"compatibility", `"\u00c5"`, `"\u212b"`, false, "no Unicode normalisation"},
		{"case", `"ß"`, `"SS"`, false, "no folding"},
		{"replacement character", `"\ufffd"`, "\"\ufffd\"", true, "it is a code point like any other"},
		{"byte order mark inside a string", `"\ufeff"`, "\"\ufeff\"", true, "only in front of a text is it refused"},
		{"a string that holds a form", `"s\u00010"`, `["0"]`, false, "lengths keep content apart from structure"},
		{"where one string ends", `["a","bc"]`, `["ab","c"]`, false, "lengths keep neighbours apart"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, b := form(t, tt.a), form(t, tt.b)
			if bytes.Equal(a, b) != tt.equal {
				t.Errorf("equal forms: got %v, want %v: %s\na: %.100q\nb: %.100q", !tt.equal, tt.equal, tt.why, a, b)
			}
		})
	}
}

func TestAppend_keepsDst(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"b":{"d":1,"c":2},"a":3}`, `{"a":1}`, `"x"`} {
		want := append([]byte("before"), form(t, text)...)
		for _, room := range []int{0, 8, 1000} {
			dst := append(make([]byte, 0, len("before")+room), "before"...)
			got, err := canon.Append(dst, text)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("Append with room for %d: got %q, %v, want %q", room, got, err, want)
			}
		}
	}
	got, err := canon.Append([]byte("before"), `{"b":1,"a":2`)
	if err == nil || string(got) != "before" {
		t.Errorf("Append of half an object: got %q, %v, want dst as it was and an error", got, err)
	}
}

// form returns the canonical form of a text that must be good.
func form(t *testing.T, text string) []byte {
	t.Helper()
	b, err := canon.Append(nil, text)
	if err != nil {
		t.Fatalf("Append: %v in %.100q", err, text)
	}
	return b
}
