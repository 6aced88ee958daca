package member

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestParsePath(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		want Path
	}{
		{"id", Path{"id"}},
		{"data.object.id", Path{"data", "object", "id"}},
		{`a\.b.c`, Path{"a.b", "c"}},
		{`a\\.b`, Path{`a\`, "b"}},
		{`a\b`, Path{`a\b`}},
		{"größe. x ", Path{"größe", " x "}},
		{"", nil},
		{".", nil},
		{"a.", nil},
		{".a", nil},
		{"a..b", nil},
	} {
		got, err := ParsePath(tt.text)
		if (err != nil) != (tt.want == nil) {
			t.Errorf("%q: error %v", tt.text, err)
			continue
		}
		if diff := cmp.Diff(tt.want, got); err == nil && diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.text, diff)
		}
	}
}

func TestMemberPathText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ why, path, text, want, err string }{
		{"a string", "id", `{"id":"x y"}`, "x y", ""},
		{"spacing everywhere", "id", " {\t\"id\"\r\n: \"x\" } ", "x", ""},
		{"escapes are undone", "id", `{"id":"\u00e9\"\\\/\n"}`, "é\"\\/\n", ""},
		{"an escaped quote ends nothing", "id", `{"a":"\"id\":1,\\","id":"x"}`, "x", ""},
		{"an escaped name", "id", `{"\u0069d":"x"}`, "x", ""},
		{"a number as it stands", "id", `{"id":9007199254740993}`, "9007199254740993", ""},
		{"a number with an exponent as it stands", "id", `{"id": 1.50e+2 ,"v":0}`, "1.50e+2", ""},
		{"false", "id", `{"id":false}`, "false", ""},
		{"the last of two", "id", `{"id":1,"id":"x","v":{"id":3}}`, "x", ""},
		{"not one of a nested object", "id", `{"v":{"id":1},"w":[{"id":2}]}`, "", "there is no id"},
		{"a path", "data.object.id", `{"id":1,"data":{"id":2,"object":{"id":"x"}}}`, "x", ""},
		{"the last of two on the way", "a.b", `{"a":{"b":1,"c":2},"a":{"c":3}}`, "", "there is no a.b"},
		{"a name with a dot", `a\.b`, `{"a":{"b":1},"a.b":2}`, "2", ""},
		{"an empty string", "id", `{"id":""}`, "", "id is empty"},
		{"a path through a string", "id.x", `{"id":"x"}`, "", "id is no object, so there is no id.x"},
		{"a path through null", "a.b.c", `{"a":{"b":null}}`, "", "a.b is no object, so there is no a.b.c"},
		{"no object", "id", `["id"]`, "", "not a JSON object"},
	} {
		path, err := ParsePath(tt.path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := path.Text([]byte(tt.text))
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
			t.Errorf("%s: %s of %s is %q, %v; want %q, %s", tt.why, tt.path, tt.text, got, err, tt.want, tt.err)
		}
	}
}

// In valid JSON member finds what a decoder finds; in anything else it may find
// what it likes, but must end.
func FuzzMember(f *testing.F) {
	for _, text := range []string{
		`{"id":"x"}`, ` { "a" : [ 1 , {"id":2} ] , "id" : { "b":"}" } } `, `{"id":1,"id":2}`, `{"a":"\\","id":-1.5e3}`,
		`{"\u0069d":true}`, `[1]`, `{`, `{"id"`, `{"id":`, `{"id":"\`, `{"id":}`, `{"a":]]],"id":1}`, `{"id":[[}`, `{"id" "x"}`,
	} {
		f.Add(text, "id")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		value, found, object := member([]byte(text), name)
		if !json.Valid([]byte(text)) {
			return
		}
		var want map[string]json.RawMessage
		isObject := json.Unmarshal([]byte(text), &want) == nil && want != nil
		if object != isObject {
			t.Fatalf("%q is an object: %t, want %t", text, object, isObject)
		}
		// A decoder replaces invalid UTF-8 in names; the library refuses it anyway.
		if raw, ok := want[name]; utf8.ValidString(text) && (found != ok || string(raw) != string(value)) {
			t.Fatalf("%q of %q is %q, %t; want %q, %t", name, text, value, found, raw, ok)
		}
	})
}
