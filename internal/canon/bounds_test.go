package canon_test

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/onceq/onceq/internal/canon"
)

func TestAppend_numericBounds(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat
	for _, tt := range []struct {
		name, text string
		reason     string // none if PostgreSQL 15 takes it
		why        string
	}{
		{"the largest exponent", "1e131071", "", "131,072 digits before the point"},
		{"one more", "1e131072", tooLarge, "131,073 digits before the point"},
		{"the largest, negative", "-9.99e131071", "", "the sign takes no room"},
		{"one more, negative", "-1e131072", tooLarge, "the sign takes no room"},
		{"two digits", "10e131070", "", "the first digit counts"},
		{"two digits, one more", "10e131071", tooLarge, "the first digit counts"},
		{"a small fraction", "0.01e131073", "", "zeros in front do not count"},
		{"a small fraction, one more", "0.01e131074", tooLarge, "zeros in front do not count"},
		{"all digits", zeros("9", 131072), "", "no exponent, same bound"},
		{"all digits and one", zeros("9", 131073), tooLarge, "no exponent, same bound"},
		{"both bounds at once", zeros("9", 131072) + "." + zeros("9", 16383), "", "each has its own"},
		{"the smallest exponent", "1e-16383", "", "16,383 digits after the point"},
		{"one less", "1e-16384", tooPrecise, "16,384 digits after the point"},
		{"a fraction", "1.0e-16382", "", "a zero after the point counts"},
		{"a fraction, one less", "1.0e-16383", tooPrecise, "a zero after the point counts"},
		{"zeros before the point", "100e-16384", tooPrecise, "a zero before it does not help"},
		{"the longest fraction", "1." + zeros("0", 16383), "", "no exponent, same bound"},
		{"one digit longer", "1." + zeros("0", 16384), tooPrecise, "no exponent, same bound"},
		{"moved by its exponent", "1." + zeros("0", 16384) + "e1", "", "the exponent takes one digit back"},
		{"moved too little", "1." + zeros("0", 16385) + "e1", tooPrecise, "the exponent takes only one digit back"},
		{"a zero", "0e-16383", "", "zero has digits after the point too"},
		{"a zero, one less", "0e-16384", tooPrecise, "zero has digits after the point too"},
		{"a zero with a fraction", "0.0e-16383", tooPrecise, "zero has digits after the point too"},
		{"a zero with a large exponent", "0e131072", "", "zero has no first digit"},
		{"a zero with the largest exponent", "-0e1073741822", "", "one below half of 2^31-1"},
		{"a zero, one more", "0e1073741823", tooLarge, "PostgreSQL 15 refuses half of 2^31-1"},
		{"a zero beyond 32 bits", "0e4294967296", tooLarge, "nothing may wrap round"},
		{"a zero beyond 64 bits", "0e18446744073709551616", tooLarge, "nothing may wrap round"},
		{"an exponent of many digits", "1e" + zeros("9", 1<<20), tooLarge, "nothing may wrap round"},
		{"a negative one", "1e-" + zeros("9", 1<<20), tooLarge, "nothing may wrap round"},
		{"many zeros and their exponent", "0." + zeros("0", 1<<20) + "1e1048576", "", "it is 0.1"},
		{"many zeros, exponent at the bound", "0." + zeros("0", 999999) + "1e1131071", "", "the first digit counts"},
		{"many zeros, exponent beyond it", "0." + zeros("0", 999999) + "1e1131072", tooLarge, "the first digit counts"},
		{"the most zeros a scale takes back", "1" + zeros("0", 147454) + "e-16383", "", "131,072 digits before the point"},
		{"one zero more", "1" + zeros("0", 147455) + "e-16383", tooLarge, "131,073 digits before the point"},
		{"256 long numbers", "[" + zeros("1e131071,", 255) + "1e131071]", "", "written out they stay below 32 MiB"},
		{"257 long numbers", "[" + zeros("1e131071,", 256) + "1e131071]", tooWide, "written out they are more than 32 MiB"},
		{"long fractions", "[" + zeros("1e-16383,", 2048) + "1e-16383]", tooWide, "places after the point are written out too"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := canon.Append(nil, tt.text)
			got := ""
			if err != nil {
				got = refusal(t, err).Reason
			}
			if got != tt.reason {
				t.Errorf("%.40s: refused for %q, want %q: %s", tt.text, got, tt.reason, tt.why)
			}
		})
	}
}

func TestAppend_depth(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, open, inner, end string }{
		{"arrays", "[", "", "]"},
		{"objects", `{"a":`, "1", "}"},
		{"objects out of order", `{"b":`, "1", `,"a":1}`},
		{"objects with replaced members", `{"a":1,"a":`, "1", "}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			nested := func(depth int) []byte {
				return []byte(strings.Repeat(tt.open, depth) + tt.inner + strings.Repeat(tt.end, depth))
			}
			if _, err := canon.Append(nil, string(nested(canon.MaxDepth))); err != nil {
				t.Errorf("%d levels: got %v, want no error", canon.MaxDepth, err)
			}
			_, err := canon.Append(nil, string(nested(canon.MaxDepth+1)))
			got, want := refusal(t, err), canon.Error{Offset: len(tt.open) * canon.MaxDepth, Reason: tooDeep}
			if got != want {
				t.Errorf("%d levels: got %v, want %v", canon.MaxDepth+1, got, want)
			}
			side := "[" + strings.Repeat(tt.open+tt.inner+tt.end+",", canon.MaxDepth+1) + "1]"
			if _, err := canon.Append(nil, side); err != nil {
				t.Errorf("side by side: got %v, want no error", err)
			}
		})
	}
}

func TestAppend_ordersEveryLevel(t *testing.T) {
	t.Parallel()
	const levels = canon.MaxDepth - 1 // and the array on the innermost
	ordered := strings.Repeat(`{"a":1,"b":[0],"c":`, levels) + "2" + strings.Repeat("}", levels)
	reversed := strings.Repeat(`{"c":`, levels) + "2" + strings.Repeat(`,"b":[0],"a":1}`, levels)
	replaced := strings.Repeat(`{"a":{"y":1,"x":2},"c":`, levels-1) + `{"c":2,"b":[0],"a":1}` + strings.Repeat(`,"b":[0],"a":1}`, levels-1)
	want := form(t, ordered)
	for _, text := range []string{reversed, replaced} {
		if !bytes.Equal(form(t, text), want) {
			t.Errorf("another form for %.60s...", text)
		}
	}
	if bytes.Equal(form(t, strings.Replace(reversed, "2", "3", 1)), want) {
		t.Error("the same form with another value on the innermost level")
	}
}

func TestAppend_length(t *testing.T) {
	t.Parallel()
	text := bytes.Repeat([]byte(" "), canon.MaxText+1)
	text[0] = '1'
	if _, err := canon.Append(nil, string(text[:canon.MaxText])); err != nil {
		t.Errorf("%d bytes: got %v, want no error", canon.MaxText, err)
	}
	_, err := canon.Append(nil, string(text))
	if got, want := refusal(t, err), (canon.Error{Offset: canon.MaxText, Reason: tooLong}); got != want {
		t.Errorf("%d bytes: got %v, want %v", len(text), got, want)
	}
}

// It is not parallel, so that what it counts is only its own.
func TestAppend_memoryIsLinear(t *testing.T) {
	const size = 4 << 20
	for _, tt := range []struct {
		name, open, inner, end string
		why                    string
	}{
		{"deep and out of order", strings.Repeat(`{"b":`, 10000), `"` + strings.Repeat("x", size) + `"`, strings.Repeat(`,"a":1}`, 10000), "to sort each level at its end would copy 40 GB"},
		{"one name for all members", "{", strings.Repeat(`"":1,`, size/5) + `"":1`, "}", "every member but one is dropped"},
		{"members out of order", "{", strings.Repeat(`"b":1,"a":{},`, size/13) + `"":1`, "}", "every second one breaks the order"},
		{"small objects out of order", "[", strings.Repeat(`{"b":1,"a":1},`, size/14) + "1", "]", "each is noted by itself"},
		{"numbers", "[", strings.Repeat("1,", size/2) + "1", "]", "the form that grows most over its text"},
		{"exponents", "[", strings.Repeat("1e3,", size/4) + "1", "]", "never written out in full"},
		{"escapes", `"`, strings.Repeat(`\u00e9`, size/6), `"`, "the form is shorter than the text"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := []byte(tt.open + tt.inner + tt.end)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := canon.Append(nil, string(text)); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			got := (after.TotalAlloc - before.TotalAlloc) / uint64(len(text))
			t.Logf("%d bytes allocated for each byte of text", got)
			if limit := uint64(40); got > limit {
				t.Errorf("allocated %d bytes for each byte of text, want at most %d: %s", got, limit, tt.why)
			}
		})
	}
}
