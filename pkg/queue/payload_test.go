package queue

import (
	"encoding"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

const bad = "caf\xe9"

type (
	textOfPointer struct{ s string }
	jsonOfPointer struct{ S string }
	goodText      string
	badText       string
	numberText    int
	zeroOfValue   struct{ Self *zeroOfValue }
	loop          struct{ Self *loop }
	jsonOverLoop  struct{ Loop loop }
	EmbeddedSelf  struct{ *EmbeddedSelf }
	Inner         struct{ S string }
	inner         struct{ S, Other string }
	InnerTagged   struct {
		T string `json:"S"`
	}
	textAndJSON    struct{ S string }
	byteOfText     byte
	nilText        struct{}
	namedStringKey map[goodText]int
)

func (t *textOfPointer) MarshalText() ([]byte, error) { return []byte(t.s), nil }
func (*jsonOfPointer) MarshalJSON() ([]byte, error)   { return []byte(`"own"`), nil }
func (goodText) MarshalText() ([]byte, error)         { return []byte("good"), nil }
func (badText) MarshalText() ([]byte, error)          { return []byte(bad), nil }
func (numberText) MarshalText() ([]byte, error)       { return []byte(bad), nil }
func (zeroOfValue) IsZero() bool                      { return true }
func (*jsonOverLoop) MarshalJSON() ([]byte, error)    { return []byte(`"own"`), nil }
func (textAndJSON) MarshalText() ([]byte, error)      { return []byte(bad), nil }
func (*textAndJSON) MarshalJSON() ([]byte, error)     { return []byte(`"own"`), nil }
func (byteOfText) MarshalText() ([]byte, error)       { return []byte(bad), nil }
func (*nilText) MarshalText() ([]byte, error)         { return []byte(bad), nil }

// walked are values of which encoding/json may pass by the part that is bad.
func walked() map[string]any {
	looped := loop{}
	looped.Self = &looped
	self := EmbeddedSelf{}
	self.EmbeddedSelf = &self
	return map[string]any{
		"a string": bad,
		"a nil interface of a marshaler": struct {
			T encoding.TextMarshaler
			J json.Marshaler
		}{},
		"a nil pointer of a text marshaler": []*goodText{nil},
		"a nil pointer in a marshaler":      []encoding.TextMarshaler{(*nilText)(nil)},
		"a string beside a nil marshaler": struct {
			T encoding.TextMarshaler
			S string
		}{nil, bad},
		"MarshalText of *T, in a slice":          []textOfPointer{{bad}},
		"MarshalText of *T, behind a pointer":    &struct{ T textOfPointer }{textOfPointer{bad}},
		"MarshalText of *T, without an address":  struct{ T textOfPointer }{textOfPointer{bad}},
		"MarshalText of *T, in a map":            map[string]textOfPointer{"a": {bad}},
		"MarshalJSON of *T, in a slice":          []jsonOfPointer{{bad}},
		"MarshalJSON of *T, behind a pointer":    &struct{ T jsonOfPointer }{jsonOfPointer{bad}},
		"MarshalJSON of *T, without an address":  struct{ T jsonOfPointer }{jsonOfPointer{bad}},
		"MarshalJSON of *T, in a map":            map[string]jsonOfPointer{"a": {bad}},
		"MarshalText of T, MarshalJSON of *T":    []textAndJSON{{}},
		"the same without an address":            map[string]textAndJSON{"a": {}},
		"the same as the text marshaler it is":   []encoding.TextMarshaler{&textAndJSON{}},
		"a bad text of a good string":            badText("good"),
		"a good text of a bad string":            goodText(bad),
		"a key that is a bad string":             namedStringKey{bad: 1},
		"a key with a bad text that is a string": map[badText]int{"good": 1},
		"a key with a bad text that is a number": map[numberText]int{1: 1},
		"a key that is a marshaler":              map[encoding.TextMarshaler]int{numberText(1): 1},
		"a key that is a nil pointer":            map[*numberText]int{nil: 1},
		"bytes with a text of their own":         []byteOfText{1},
		"bytes":                                  []byte(bad),
		"a cycle under MarshalJSON of *T":        &struct{ T jsonOverLoop }{jsonOverLoop{looped}},
		"a cycle in a field without a name": &struct {
			T loop `json:"-"`
		}{looped},
		"a cycle of embedded structs": struct {
			EmbeddedSelf
			S string
		}{self, bad},
		"omitempty on a bad text of a struct": struct {
			T textAndJSON `json:",omitempty"`
		}{},
		"an unexported field":                     struct{ s, S string }{bad, ""},
		"an embedded struct":                      struct{ Inner }{Inner{bad}},
		"an embedded struct that is not exported": struct{ inner }{inner{S: bad}},
		"an embedded pointer":                     struct{ *Inner }{&Inner{bad}},
		"an embedded pointer to nothing": struct {
			*Inner
			T string
		}{nil, bad},
		"an embedded struct with a name": struct {
			Inner `json:"x"`
			S     string
		}{Inner{bad}, ""},
		"a field whose outer one has another name": struct {
			Inner
			S string `json:"T"`
		}{Inner{bad}, ""},
		"a field with a tag that hides one": struct {
			Inner
			InnerTagged
		}{Inner{}, InnerTagged{bad}},
		"a field beside one of another name": struct {
			Inner
			inner
		}{Inner{}, inner{Other: bad}},
	}
}

// A string that is not valid UTF-8 is refused where encoding/json mends it, and
// only there: what it passes by may hold anything.
func TestPayload_invalidUTF8(t *testing.T) {
	for name, v := range walked() {
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			mended := strings.Contains(string(text), `\ufffd`) || strings.Contains(string(text), "\ufffd")
			// The true U+FFFD makes the walk start in any case.
			for _, own := range []string{"1", `"\ufffd"`, "\"\ufffd\""} {
				_, err := Request{Type: "a", Payload: []any{v, json.RawMessage(own)}}.Fingerprint()
				if (err != nil) != mended {
					t.Errorf("beside %s: encoding/json writes %s, the payload is answered with %v", own, text, err)
				}
				if err != nil && !errors.Is(err, ErrInvalidRequest) {
					t.Errorf("want ErrInvalidRequest, got %v", err)
				}
			}
		})
	}
}

// A true U+FFFD is a character like any other, in whatever form.
func TestPayload_replacementCharacter(t *testing.T) {
	var first Fingerprint
	for i, v := range []any{"\ufffd", json.RawMessage(`"\ufffd"`), json.RawMessage("\"\ufffd\""), new(any("\ufffd"))} {
		f, err := Request{Type: "a", Payload: v}.Fingerprint()
		if err != nil {
			t.Fatalf("payload %d is refused: %v", i, err)
		}
		if i == 0 {
			first = f
		}
		if !f.same(first) {
			t.Errorf("payload %d is another than the first", i)
		}
	}
}

// The walk ends, and is no overflow of the stack, however many pointers lie before
// the end of a value.
func TestPayload_deep(t *testing.T) {
	chain := func(v any, n int) any {
		for range n {
			v = new(v)
		}
		return v
	}
	for _, row := range []struct {
		end  string
		n    int
		want error
	}{
		{"\ufffd", 40_000, nil}, {bad, 40_000, errInvalidUTF8}, {"\ufffd", maxWalkDepth, errWalkDepth}, {bad, maxWalkDepth, errWalkDepth},
	} {
		_, err := Request{Type: "a", Payload: chain(row.end, row.n)}.Fingerprint()
		if row.want == nil && err != nil || row.want != nil && (err == nil || !strings.Contains(err.Error(), row.want.Error())) {
			t.Errorf("%q behind %d pointers: got %v, want %v", row.end, row.n, err, row.want)
		}
	}
	zero := zeroOfValue{}
	zero.Self = &zero
	omitted := []any{struct {
		T zeroOfValue `json:",omitzero"`
	}{zero}, bad}
	if _, err := (Request{Type: "a", Payload: omitted}).Fingerprint(); !errors.Is(err, ErrInvalidRequest) {
		t.Errorf("a cycle that is not encoded, beside a bad string: got %v, want ErrInvalidRequest", err)
	}
	var endless loop
	endless.Self = &endless
	if err := checkUTF8(reflect.ValueOf(&endless), 0); err != errWalkDepth {
		t.Errorf("a cycle: got %v, want %v", err, errWalkDepth)
	}
}
