package canon_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/onceq/onceq/internal/canon"
	"github.com/onceq/onceq/internal/canon/canontest"
)

// rounds is how many random texts a property is tried with.
const rounds = 5000

func TestAppend_equalTextsHaveOneForm(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for range rounds {
		a, b := canontest.Equal(r)
		if !bytes.Equal(form(t, string(a)), form(t, string(b))) {
			t.Fatalf("two forms of one value\na: %s\nb: %s", a, b)
		}
	}
}

func TestAppend_differentTextsHaveTwoForms(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(2, 2))
	for range rounds {
		a, b := canontest.Different(r)
		if bytes.Equal(form(t, string(a)), form(t, string(b))) {
			t.Fatalf("one form of two values\na: %s\nb: %s", a, b)
		}
	}
}

// Forms that are written one after the other must not be able to run together.
func TestAppend_noFormIsAPrefix(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 3))
	var forms [][]byte
	for range 2000 {
		a, b := canontest.Different(r)
		forms = append(forms, form(t, string(a)), form(t, string(b)))
	}
	for i, a := range forms {
		for _, b := range forms[i+1:] {
			if !bytes.Equal(a, b) && (bytes.HasPrefix(a, b) || bytes.HasPrefix(b, a)) {
				t.Fatalf("one form begins another\na: %q\nb: %q", a, b)
			}
		}
	}
}

// Strings are read eight bytes at a time, so what ends such a run is put at every
// place of it.
func TestAppend_everyByteAtEveryPlace(t *testing.T) {
	t.Parallel()
	for _, around := range []string{strings.Repeat("a", 20), strings.Repeat("é", 10), strings.Repeat("\x7f", 20)} {
		for place := 0; place <= len(around); place++ {
			if !utf8.RuneStart((around + "a")[place]) {
				continue
			}
			for c := range rune(256) {
				text := `"` + around[:place] + string(c) + around[place:] + `"`
				got, err := canon.Append(nil, text)
				if good := json.Valid([]byte(text)); good != (err == nil) {
					t.Fatalf("%q: got %v, but encoding/json finds it good: %t", text, err, good)
				}
				if want := "s" + string(rune(len(text)-2)) + text[1:len(text)-1]; err == nil && string(got) != want {
					t.Fatalf("the form of %q: got %q, want %q", text, got, want)
				}
			}
		}
	}
}

func FuzzAppend(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 100 {
		// The fuzzer would spend its time on making longer ones short.
		if text := canontest.Near(r); len(text) < 500 {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := canon.Append(nil, string(text))
		if err != nil {
			e := refusal(t, err)
			if e.Offset < 0 || e.Offset > len(text) {
				t.Errorf("the offset %d lies outside a text of %d bytes", e.Offset, len(text))
			}
			refused, known := reasons[e.Reason]
			if !known {
				t.Errorf("the reason %q is not one of the fixed ones", e.Reason)
			}
			if refused && json.Valid(text) {
				t.Errorf("refused for %q, but encoding/json takes it", e.Reason)
			}
			return
		}
		if !json.Valid(text) {
			t.Fatal("taken, but encoding/json refuses it")
		}
		// What encoding/json reads and writes keeps the value and changes order,
		// space and escapes.
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		var v any
		if err := decoder.Decode(&v); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(form(t, string(again)), got) {
			t.Error("another form after a round trip through encoding/json")
		}
	})
}
