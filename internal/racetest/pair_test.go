package racetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/onceq/onceq/internal/canon/canontest"
)

// pair is two JSON texts, or what may not be any.
type pair struct{ a, b []byte }

// universe makes pairs from a small stock of spellings, so that two values drawn
// independently are often equal: by chance, not by a rule that the generator
// shares with what it tests. Each line is one value in several spellings; what
// PostgreSQL makes of them is not told here.
type universe struct{ r *rand.Rand }

var spellings = [][]string{
	{"null"}, {"true"}, {"false"},
	{"0", "-0", "0.0", "0e0", "-0.000", "0E+10", "0e-16383", "0e1073741822"},
	{"1", "1.0", "1e0", "10e-1", "0.1e1", "1E+0", "1.00000000", "0.0001e4", "1e-0", "100000e-5"},
	{"-1", "-1.0", "-10E-1", "-0.01e2"},
	{"10", "1e1", "1E+01", "10.0", "100e-1"},
	{"9007199254740992", "9007199254740992.0", "9.007199254740992e15"},
	{"9007199254740993", "9007199254740993.0", "9.007199254740993e15"},
	{"0.1", "1e-1", "0.10", "10e-2"},
	{"0.1000000000000000055511151231257827", "1000000000000000055511151231257827e-34"},
	{"1e131071", "10e131070", "0.1e131072"}, {"1e131070", "10e131069"}, {"9.99e131071"},
	{"1e-16383", "0." + strings.Repeat("0", 16382) + "1"}, {"2e-16383"}, {"1e-16382", "1.0e-16382"},
	{"12345678901234567890123456789012345678", "1234567890123456789012345678901234567.8e1"},
	{"12345678901234567890123456789012345679"},
	{`""`},
	{`"a"`, `"\u0061"`}, {`"A"`, `"\u0041"`}, {`"1"`, `"\u0031"`},
	{`"/"`, `"\/"`, `"\u002f"`, `"\u002F"`}, {`"\\"`, `"\u005c"`}, {`"\""`, `"\u0022"`}, {`"\n"`, `"\u000a"`, `"\u000A"`}, {`"\t"`, `"\u0009"`},
	{"\"\u00e9\"", `"\u00e9"`, `"\u00E9"`}, {"\"e\u0301\"", `"e\u0301"`, `"\u0065\u0301"`},
	{"\"\u212b\"", `"\u212b"`}, {"\"\u00c5\"", `"\u00c5"`}, {"\"A\u030a\""},
	{"\"\U0001f600\"", `"\ud83d\ude00"`, `"\uD83D\uDE00"`}, {"\"\U0010ffff\"", `"\udbff\udfff"`}, {"\"\ufffd\"", `"\ufffd"`},
	{"\"\uac00\"", `"\uac00"`}, {"\"\u1100\u1161\"", `"\u1100\u1161"`},
	{`"a\u001fb"`}, {"\"\u007f\"", `"\u007f"`}, {`"\u0001"`}, {`" "`, `"\u0020"`}, {"\"\u00a0\""},
	{`[]`, `[ ]`, "[\n]"}, {`{}`, `{ }`, "{\t}"},
}

// doubtful are spellings that PostgreSQL may refuse.
var doubtful = []string{
	"1e131072", "10e131071", "0.01e131074", "1e-16384", "1.0e-16383", "0e-16384", "0e1073741823", "0e99999999999999999999", "1e99999999999999999999",
	"-", "+1", "01", "1.", ".5", "1e", "1e+", "0x1", "1_0", "NaN", "Infinity", "-Infinity", "nul", "TRUE", "", " ",
	`"\u0000"`, `"a\u0000b"`, `"\ud83d"`, `"\ude00"`, `"\ude00\ud83d"`, `"\ud83d\ud83d\ude00"`, `"\ud83d\u0061"`, `"\u12"`, `"\x41"`, `"`, "\"\n\"", "\"\t\"", "\"\x00\"",
	"\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\xef\xbb\xbf1", "[1,]", "[,1]", "[1 2]", `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{"a":1 "b":2}`, "[", "]", "[}", "1 2", "1,", "'a'",
	"\u00a01", "\v1", "//\n1", `{"a":1,"a":"\u0000"}`, `{"\u0000":1}`, `{"a":[1,{"b":"\ud800"}]}`,
}

func (u universe) pick(all []string) string { return all[u.r.IntN(len(all))] }

// atom is a scalar or an empty container in one of its spellings.
func (u universe) atom() string { return u.pick(spellings[u.r.IntN(len(spellings))]) }

// few is an atom from a handful of values, so that small structures collide.
func (u universe) few() string { return u.pick(spellings[2+u.r.IntN(3)]) }

func (u universe) space() string { return u.pick([]string{"", "", "", " ", "\n", "\t\r ", "  "}) }

func (u universe) value(depth int) string {
	if depth == 0 {
		if u.r.IntN(2) == 0 {
			return u.few()
		}
		return u.atom()
	}
	var b strings.Builder
	n := u.r.IntN(4)
	open, shut := "[", "]"
	object := u.r.IntN(2) == 0
	if object {
		open, shut = "{", "}"
	}
	b.WriteString(u.space() + open + u.space())
	for i := range n {
		if i > 0 {
			b.WriteString(u.space() + "," + u.space())
		}
		if object {
			b.WriteString(u.pick([]string{`"a"`, `"\u0061"`, `"b"`, `""`, `"aa"`, "\"\u00e9\"", "\"e\u0301\""}) + u.space() + ":" + u.space())
		}
		b.WriteString(u.value(u.r.IntN(depth)))
	}
	b.WriteString(u.space() + shut + u.space())
	return b.String()
}

// pair draws two values, often one line of spellings twice.
func (u universe) pair() pair {
	switch u.r.IntN(8) {
	case 0, 1:
		line := spellings[u.r.IntN(len(spellings))]
		return pair{[]byte(u.space() + u.pick(line)), []byte(u.pick(line) + u.space())}
	case 2:
		return pair{[]byte(u.atom()), []byte(u.atom())}
	case 3: // one line in two spellings, beside the same other value
		line, beside := spellings[u.r.IntN(len(spellings))], u.value(2)
		return pair{fmt.Appendf(nil, `{"x":%s,"y":%s}`, u.pick(line), beside), fmt.Appendf(nil, `{"y": %s, "x": %s}`, beside, u.pick(line))}
	default:
		depth := u.r.IntN(4)
		return pair{[]byte(u.value(depth)), []byte(u.value(depth))}
	}
}

// deep nests a value so that the depth is exactly n.
func (u universe) deep(n int) []byte {
	var b bytes.Buffer
	var shut []byte
	for range n {
		if u.r.IntN(2) == 0 {
			b.WriteByte('[')
			shut = append(shut, ']')
		} else {
			b.WriteString(`{"a":`)
			shut = append(shut, '}')
		}
	}
	b.WriteString(u.few())
	for i := range shut {
		b.WriteByte(shut[len(shut)-1-i])
	}
	return b.Bytes()
}

// doubt is a text that may be refused, alone or inside another.
func (u universe) doubt() []byte {
	text := u.pick(doubtful)
	switch u.r.IntN(4) {
	case 0:
		return []byte("[" + u.value(1) + "," + text + "]")
	case 1:
		return []byte(`{"a":` + text + `,"a":` + u.few() + "}")
	}
	return []byte(u.space() + text + u.space())
}

// generated draws from canontest's generator.
func generated(r *rand.Rand) pair {
	a, b := canontest.Pair(r)
	return pair{a, b}
}
