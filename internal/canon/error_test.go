package canon_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onceq/onceq/internal/canon"
	"github.com/onceq/onceq/internal/canon/canontest"
)

const (
	tooLong    = "a text longer than 32 MiB"
	bom        = "a byte order mark"
	badUTF8    = "invalid UTF-8"
	end        = "unexpected end"
	trailing   = "not one JSON value: more follows"
	noValue    = "no JSON value where one is expected"
	notElement = "neither a comma nor the end of the array"
	notMember  = "neither a comma nor the end of the object"
	noName     = "no member name where one is expected"
	noColon    = "no colon after a member name"
	tooDeep    = "nesting deeper than 10000"
	control    = "an unescaped control character in a string"
	badEscape  = "an escape that JSON does not have"
	badHex     = `a \u escape without four hexadecimal digits`
	nul        = `the escape \u0000, which jsonb cannot hold`
	unpaired   = "an unpaired surrogate escape"
	leading    = "a number with a leading zero"
	noDigit    = "a number without a digit where one is expected"
	tooLarge   = "a number beyond PostgreSQL's numeric"
	tooWide    = "numbers that PostgreSQL would write out at more than 32 MiB"
	tooPrecise = "a number with more decimal places than PostgreSQL's numeric has"
)

// reasons are all that an error may say, and whether encoding/json refuses the
// text as well.
var reasons = map[string]bool{
	tooLong: false, bom: true, badUTF8: false, end: true, trailing: true, noValue: true, notElement: true, notMember: true,
	noName: true, noColon: true, tooDeep: true, control: true, badEscape: true, badHex: true, nul: false,
	unpaired: false, leading: true, noDigit: true, tooLarge: false, tooPrecise: false, tooWide: false,
}

func TestAppend_refuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		offset     int
		reason     string
		why        string
	}{
		{"nothing", "", 0, end, "no text is no value"},
		{"only space", " \n", 2, end, "space is no value"},
		{"two values", "1 2", 2, trailing, "one value only"},
		{"a value and a bracket", "{}]", 2, trailing, "one value only"},
		{"a digit and a letter", "1a", 1, trailing, "the number ends where it must"},
		{"a byte order mark", "\ufeff1", 0, bom, "RFC 8259 forbids it and jsonb refuses it"},
		{"a byte order mark after the value", "1\ufeff", 1, trailing, "it is not white space"},
		{"other white space", "\v1", 0, noValue, "JSON knows four kinds of white space"},
		{"a no-break space", "\u00a01", 0, noValue, "JSON knows four kinds of white space"},
		{"NaN", "NaN", 0, noValue, "numeric knows it, JSON does not"},
		{"Infinity", "[Infinity]", 1, noValue, "numeric knows it, JSON does not"},
		{"minus Infinity", "-Infinity", 1, noDigit, "numeric knows it, JSON does not"},
		{"a misspelt literal", "nul1", 3, noValue, "a literal is one word"},
		{"a long literal", "trues", 4, trailing, "a literal is one word"},
		{"half a literal", "fal", 3, end, "the text stops"},
		{"a literal in capitals", "TRUE", 0, noValue, "literals are in lower case"},

		{"257 numbers of 131,072 digits", "[" + strings.Repeat("1e131071,", 257) + "1]", 1 + 256*len("1e131071,"), tooWide, "2 kB of text, and PostgreSQL would write out 32 MiB"},

		{"an open array", "[1", 2, end, "the text stops"},
		{"a comma at the end of an array", "[1,]", 3, noValue, "a value follows a comma"},
		{"two elements without a comma", "[1 2]", 3, notElement, "a comma stands between"},
		{"the wrong bracket", "[1}", 2, notElement, "brackets pair"},
		{"an open object", `{"a":1`, 6, end, "the text stops"},
		{"a comma at the end of an object", `{"a":1,}`, 7, noName, "a member follows a comma"},
		{"a bare name", `{a:1}`, 1, noName, "names are strings"},
		{"a name without a colon", `{"a" 1}`, 5, noColon, "a colon follows a name"},
		{"two members without a comma", `{"a":1 "b":2}`, 7, notMember, "a comma stands between"},
		{"a name without a value", `{"a":}`, 5, noValue, "a value follows a colon"},
		{"a fault in a member that is replaced", `{"a":1e200000,"a":1}`, 5, tooLarge, "jsonb reads it before the last one wins"},

		{"an open string", `"abc`, 4, end, "the text stops"},
		{"a string that ends in a backslash", `"abc\`, 5, end, "the text stops"},
		{"a raw NUL", "\"\x00\"", 1, control, "control characters must be escaped"},
		{"a raw tab", "\"\t\"", 1, control, "control characters must be escaped"},
		{"a raw 0x1f", "\"a\x1f\"", 2, control, "the last of the control characters"},
		{"an unknown escape", `"\x41"`, 2, badEscape, "JSON has nine escapes"},
		{"an escape with three digits", `"\u12"`, 5, badHex, "four digits"},
		{"an escape with another letter", `"\u00g0"`, 5, badHex, "hexadecimal digits"},
		{"an escape cut short", `"\u00`, 5, end, "the text stops"},
		{"an escaped NUL", `"a\u0000"`, 2, nul, "PostgreSQL's text has no NUL"},
		{"an escaped NUL in a name", `{"\u0000":1}`, 2, nul, "a name is a string"},
		{"a high surrogate alone", `"\ud83d"`, 1, unpaired, "half a code point"},
		{"a high surrogate and a letter", `"\ud83da"`, 1, unpaired, "half a code point"},
		{"a high surrogate and an escape", `"\ud83d\n\ude00"`, 1, unpaired, "a pair has nothing in between"},
		{"two high surrogates", `"\udbff\ud800\udc00"`, 1, unpaired, "the second has its pair, the first has none"},
		{"a low surrogate alone", `"\ude00"`, 1, unpaired, "half a code point"},
		{"a pair the wrong way round", `"\ude00\ud83d"`, 1, unpaired, "high before low"},
		{"a high surrogate after a pair", `"\ud83d\ude00\ud83d"`, 13, unpaired, "half a code point"},

		{"a stray byte", "\"\xff\"", 1, badUTF8, "never part of UTF-8"},
		{"a stray byte outside strings", "[1,\x80]", 3, badUTF8, "invalid anywhere"},
		{"a cut sequence", "\"\xe2\x82\"", 1, badUTF8, "a byte is missing"},
		{"an overlong sequence", "\"\xc0\xaf\"", 1, badUTF8, "more bytes than needed"},
		{"a surrogate in UTF-8", "\"\xed\xa0\x80\"", 1, badUTF8, "surrogates are no code points"},
		{"beyond Unicode", "\"a\xf4\x90\x80\x80\"", 2, badUTF8, "U+110000"},
		{"invalid after valid", "\"é\xff\"", 3, badUTF8, "the offset counts bytes"},

		{"a leading zero", "[-01]", 2, leading, "RFC 8259"},
		{"a leading plus", "+1", 0, noValue, "RFC 8259"},
		{"a point first", ".5", 0, noValue, "RFC 8259"},
		{"a point last", "1.", 2, end, "RFC 8259"},
		{"a point and no digit", "[1.]", 3, noDigit, "RFC 8259"},
		{"an exponent without digits", "[1e+]", 4, noDigit, "RFC 8259"},
		{"only a minus", "-", 1, end, "RFC 8259"},
		{"a hexadecimal number", "0x10", 1, trailing, "RFC 8259"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := canon.Append(nil, tt.text)
			got, want := refusal(t, err), canon.Error{Offset: tt.offset, Reason: tt.reason}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Append(%q), because %s (-want +got):\n%s", tt.text, tt.why, diff)
			}
		})
	}
}

func TestError(t *testing.T) {
	t.Parallel()
	_, err := canon.Append(nil, `{"card":"4929\ud83d"}`)
	if got, want := err.Error(), "an unpaired surrogate escape at byte 13"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestError_saysNothingOfTheText(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(4, 4))
	seen := map[string]bool{}
	for range rounds {
		_, err := canon.Append(nil, string(canontest.Near(r)))
		if err == nil {
			continue
		}
		reason := refusal(t, err).Reason
		if _, ok := reasons[reason]; !ok {
			t.Fatalf("the reason %q is not one of the fixed ones", reason)
		}
		seen[reason] = true
	}
	for reason := range reasons {
		rare := reason == tooLong || reason == tooDeep || reason == tooWide || reason == bom
		if !seen[reason] && !rare {
			t.Errorf("no text was refused for %q", reason)
		}
	}
}

// refusal returns the *canon.Error that err must be.
func refusal(t *testing.T, err error) canon.Error {
	t.Helper()
	e, ok := errors.AsType[*canon.Error](err)
	if !ok {
		t.Fatalf("got error %v, want a *canon.Error", err)
	}
	return *e
}
