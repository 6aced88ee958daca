package queuetest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// text is a Go string whose JSON is n+2 bytes long.
func text(n int) string { return strings.Repeat("a", n) }

// Pairs of JSON texts; PostgreSQL itself says whether they are equal.
var jsonPairs = []struct{ why, one, other string }{
	{"member order", `{"a":1,"b":{"x":1,"y":2}}`, `{"b":{"y":2,"x":1},"a":1}`},
	{"spacing", `{"a":[1,2]}`, " {\n\t\"a\" : [ 1 ,\r2 ] } "},
	{"array order", `[1,2]`, `[2,1]`},
	{"null is not missing", `{"a":null,"n":1}`, `{"n":1}`},
	{"nested order", `{"a":null,"n":{"p":[{"q":1,"r":2}]}}`, `{"n":{"p":[{"r":2,"q":1}]},"a":null}`},
	{"the last of two members wins", `{"a":1,"a":2}`, `{"a":2}`},
	{"the first of two members does not", `{"a":1,"a":2}`, `{"a":1}`},
	{"the last wins whatever it is", `{"a":{"x":1},"a":{"y":1}}`, `{"a":{"y":1}}`},
	{"three levels down", `{"a":{"b":{"c":1,"d":0,"c":2}}}`, `{"a":{"b":{"d":0,"c":2}}}`},
	{"members that an escape makes equal", `{"a":1,"\u0061":2}`, `{"a":2}`},
	{"case of members", `{"A":2,"a":1}`, `{"a":2}`},
	{"one and one point nought", `1`, `1.0`},
	{"one and an exponent", `1`, `1e0`},
	{"one from ten", `1`, `10e-1`},
	{"a hundred", `100`, `1E+2`},
	{"trailing noughts", `[0.10]`, `[0.1]`},
	{"minus nought", `[-0]`, `[0]`},
	{"minus nought point nought", `[-0.0]`, `[0]`},
	{"nought with an exponent", `[0e10]`, `[0]`},
	{"above 2^53", `{"id":9007199254740993}`, `{"id":9007199254740992}`},
	{"every digit counts", `[0.1000000000000000055]`, `[0.1]`},
	{"many digits", `[123456789012345678901234567890.123456789]`, `[1.23456789012345678901234567890123456789e29]`},
	{"large exponents", `[1e1000]`, `[10e999]`},
	{"small exponents", `[1e-1000]`, `[0.1e-999]`},
	{"large and larger", `[1e1000]`, `[1e1001]`},
	{"sign", `[1]`, `[-1]`},
	{"number and string", `[1]`, `["1"]`},
	{"boolean and string", `[true]`, `["true"]`},
	{"booleans", `[true]`, `[false]`},
	{"null and string", `[null]`, `["null"]`},
	{"an escape and its character", `"\u00e9"`, `"é"`},
	{"case of an escape", `"\u00E9"`, `"\u00e9"`},
	{"composed and decomposed", `"é"`, `"e\u0301"`},
	{"a surrogate pair and its character", `"\ud83d\ude00"`, `"😀"`},
	{"short escapes", `"\n\t\/\"\\"`, `"\u000a\u0009\u002f\u0022\u005c"`},
	{"HTML escaped or not", `{"u":"a\u003cb\u003e\u0026c\u2028"}`, "{\"u\":\"a<b>&c\u2028\"}"},
	{"DEL", `"\u007f"`, "\"\x7f\""},
	{"empty array and object", `[]`, `{}`},
	{"empty and null", `{}`, `null`},
	{"a scalar and an array of it", `1`, `[1]`},
	{"an array in an array", `[[1]]`, `[1]`},
	{"an empty member name", `{"":1}`, `{}`},
	{"member names of other lengths", `{"bb":1,"a":2,"ccc":3}`, `{"ccc":3,"a":2,"bb":1}`},
	{"member names against values", `{"a":"b"}`, `{"b":"a"}`},
	{"concatenation in arrays", `["ab","c"]`, `["a","bc"]`},
	{"concatenation in objects", `{"a":"bc"}`, `{"ab":"c"}`},
	{"nesting of arrays", `[[1],2]`, `[[1,2]]`},
	{"case of strings", `"a"`, `"A"`},
	{"blank at the end of a string", `"a"`, `"a "`},
	{"numbers as strings", `"1"`, `"1.0"`},
}

// Payloads are equal exactly when PostgreSQL finds the two jsonb values equal.
func TestPayload_equality(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	for _, row := range jsonPairs {
		t.Run(row.why, func(t *testing.T) {
			equal := pgtest.Scan[bool](t, pool, `SELECT $1::text::jsonb = $2::text::jsonb`, row.one, row.other)
			for i, pair := range [][2]string{{row.one, row.other}, {row.other, row.one}} {
				one := queue.Request{Type: "t", Payload: json.RawMessage(pair[0]), Admission: queue.Idempotency{Key: fmt.Sprint(t.Name(), i)}}
				other := one
				other.Payload = json.RawMessage(pair[1])
				want := []queue.Field{queue.FieldPayload}
				if equal {
					want = nil
				}
				if diff := cmp.Diff(want, fingerprint(t, one).Diff(fingerprint(t, other))); diff != "" {
					t.Errorf("PostgreSQL says equal: %t (-want +got):\n%s", equal, diff)
				}
				id := accept(t, c, one)
				if equal {
					replay(t, c, other, id)
					continue
				}
				_, err := c.EnqueueWithResult(t.Context(), other)
				wantConflict(t, err, id, queue.FieldPayload)
			}
		})
	}
}

// One value, given in Go and as JSON text, is one request.
func TestPayload_goValues(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	type args struct {
		Items []string `json:"items"`
		Count int      `json:"count,omitempty"`
		Ref   *string  `json:"ref,omitempty"`
		Big   uint64   `json:"big"`
		Text  string   `json:"text"`
	}
	for _, row := range []struct {
		name, why string
		one       any
		other     any
		equal     bool
	}{
		{"a struct and its JSON", "the encoded text counts", args{Items: []string{"a"}, Big: 1<<63 + 1}, json.RawMessage(`{"big":9223372036854775809,"text":"","items":["a"]}`), true},
		{"a struct and a pointer to it", "the encoded text counts", args{}, &args{}, true},
		{"a struct and a map", "the encoded text counts", args{}, map[string]any{"items": nil, "big": 0, "text": ""}, true},
		{"a nil slice and an empty one", "B-041: null is not []", args{Items: nil}, args{Items: []string{}}, false},
		{"nought with omitempty and missing", "B-042: omitempty leaves it out", args{Count: 0}, args{}, true},
		{"HTML from Go and as it is", "B-043: what is compared is not escaped", args{Text: "a<b>&c\u2028"}, json.RawMessage("{\"big\":0,\"items\":null,\"text\":\"a<b>&c\u2028\"}"), true},
		{"an int and a float", "1 equals 1.0", 1, 1.0, true},
		{"a json.Number and its digits", "every digit counts", json.Number("0.1000000000000000055"), json.RawMessage(`0.1000000000000000055`), true},
		{"a json.Number and its float", "every digit counts", json.Number("0.1000000000000000055"), 0.1, false},
		{"bytes and base64", "encoding/json writes base64", []byte("ab"), "YWI=", true},
		{"a raw message and a pointer to it", "the encoded text counts", json.RawMessage(`[1]`), new(json.RawMessage(`[1]`)), true},
		{"a raw message inside a struct", "the encoded text counts", struct{ A json.RawMessage }{json.RawMessage(` [ 1 ] `)}, json.RawMessage(`{"A":[1]}`), true},
		{"an untyped nil and a nil pointer", "both are null", nil, (*args)(nil), true},
	} {
		t.Run(row.name, func(t *testing.T) {
			one := queue.Request{Type: "t", Payload: row.one, Admission: queue.Idempotency{Key: t.Name()}}
			other := one
			other.Payload = row.other
			if got := fingerprint(t, one) == fingerprint(t, other); got != row.equal {
				t.Errorf("equal fingerprints: %t, want %t: %s", got, row.equal, row.why)
			}
			id := accept(t, c, one)
			if row.equal {
				replay(t, c, other, id)
				return
			}
			_, err := c.EnqueueWithResult(t.Context(), other)
			wantConflict(t, err, id, queue.FieldPayload)
		})
	}
}
