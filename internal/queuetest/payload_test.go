package queuetest_test

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onceq/onceq/internal/canon/canontest"
	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

const payloadSecret = "S3CRET-PAYLOAD"

// asText marshals to itself, valid or not.
type asText string

func (s asText) MarshalText() ([]byte, error) { return []byte(s), nil }

var _ encoding.TextMarshaler = asText("")

// asJSON marshals to itself, valid or not.
type asJSON string

func (s asJSON) MarshalJSON() ([]byte, error) { return []byte(s), nil }

// failing can't be marshaled and tells why, with a secret.
type failing struct{ how string }

func (f failing) MarshalJSON() ([]byte, error) {
	if f.how == "json" {
		return nil, fmt.Errorf("card %s is bad", payloadSecret)
	}
	return nil, errors.New(payloadSecret)
}

type failingText struct{}

func (failingText) MarshalText() ([]byte, error) { return nil, errors.New(payloadSecret) }

type cycle struct{ Next *cycle }

// depth nests n arrays.
func depth(n int) json.RawMessage {
	return json.RawMessage(strings.Repeat("[", n) + strings.Repeat("]", n))
}

// objects nests n objects.
func objects(n int) json.RawMessage {
	return json.RawMessage(strings.Repeat(`{"a":`, n-1) + "{}" + strings.Repeat("}", n-1))
}

// traps are payloads that must be refused before PostgreSQL sees them.
func traps() map[string]any {
	loop := &cycle{}
	loop.Next = loop
	bad := "a\xffb"
	return map[string]any{
		"NUL in a string":                              "a\x00b",
		"NUL in a raw string":                          json.RawMessage(`{"s":"a\u0000b"}`),
		"NUL in a member name":                         map[string]int{"a\x00": 1},
		"NUL in a raw member name":                     json.RawMessage(`{"\u0000":1}`),
		"NUL in a member that a later one replaces":    json.RawMessage(`{"a":"\u0000","a":1}`),
		"a raw NUL byte":                               json.RawMessage("\"a\x00b\""),
		"a high surrogate alone":                       json.RawMessage(`"\ud800"`),
		"a low surrogate alone":                        json.RawMessage(`"\udc00"`),
		"surrogates in the wrong order":                json.RawMessage(`"\udc00\ud800"`),
		"a high surrogate before a character":          json.RawMessage(`"\ud800x"`),
		"a high surrogate before another escape":       json.RawMessage(`"\ud800\n"`),
		"two high surrogates":                          json.RawMessage(`"\ud800\ud800"`),
		"a surrogate in a member name":                 json.RawMessage(`{"\ud800":1}`),
		"a surrogate from a marshaler":                 asJSON(`"\udfff"`),
		"invalid UTF-8 in a string":                    bad,
		"invalid UTF-8 in a raw message":               json.RawMessage("\"a\xffb\""),
		"an encoded surrogate in a raw message":        json.RawMessage("\"\xed\xa0\x80\""),
		"an overlong encoding in a raw message":        json.RawMessage("\"\xc0\x80\""),
		"invalid UTF-8 in a map key":                   map[string]int{bad: 1},
		"invalid UTF-8 in a map value":                 map[string]any{"a": []any{map[string]any{"b": bad}}},
		"invalid UTF-8 in a struct":                    struct{ A string }{bad},
		"invalid UTF-8 behind pointers":                new(new(bad)),
		"invalid UTF-8 in a slice":                     []string{"a", bad},
		"invalid UTF-8 in an array":                    [1]string{bad},
		"invalid UTF-8 in a defined string":            struct{ A any }{asDefined(bad)},
		"invalid UTF-8 in an embedded struct":          struct{ Embedded }{Embedded{bad}},
		"invalid UTF-8 from a text marshaler":          asText(bad),
		"invalid UTF-8 from a text marshaler as a key": map[asText]int{asText(bad): 1},
		"invalid UTF-8 from a nested text marshaler":   []any{struct{ A *asText }{new(asText(bad))}},
		"invalid UTF-8 from a marshaler":               asJSON("\"\xff\""),
		"invalid UTF-8 from a nested marshaler":        map[string]any{"a": asJSON("{\"b\":\"\xff\"}")},
		"invalid UTF-8 in a nested raw message":        struct{ A json.RawMessage }{json.RawMessage("\"\xff\"")},
		"invalid UTF-8 in a string option": struct {
			A string `json:",string"`
		}{bad},
		"not a number":                         math.NaN(),
		"infinity":                             math.Inf(1),
		"minus infinity":                       []any{map[string]float64{"a": math.Inf(-1)}},
		"not a number in 32 bits":              float32(math.NaN()),
		"a number with a huge exponent":        json.RawMessage(`1e200000`),
		"a number with a huge small exponent":  json.RawMessage(`1e-200000`),
		"an exponent beyond an int":            json.RawMessage(`1e99999999999999999999`),
		"a number one digit too long":          json.RawMessage(`1e131072`),
		"a fraction one digit too long":        json.RawMessage(`1e-16384`),
		"digits beyond numeric":                json.RawMessage(strings.Repeat("9", 131073)),
		"a json.Number with a huge exponent":   json.Number("1e200000"),
		"a json.Number that is none":           json.Number("1x"),
		"a huge number in a replaced member":   json.RawMessage(`{"a":1e200000,"a":1}`),
		"arrays nested deeper than 10,000":     depth(10_001),
		"objects nested deeper than 10,000":    objects(10_001),
		"far too deep":                         json.RawMessage(strings.Repeat("[", 500_000)),
		"a channel":                            make(chan int),
		"a function":                           func() {},
		"a function in a struct":               struct{ F func() }{func() {}},
		"a complex number":                     1i,
		"a map with keys that are no text":     map[[2]int]int{{1, 2}: 3},
		"a value that contains itself":         loop,
		"a marshaler that fails":               failing{},
		"a nested marshaler that fails":        map[string]any{"a": []any{failing{"json"}}},
		"a text marshaler that fails":          failingText{},
		"a marshaler that writes no JSON":      asJSON(payloadSecret),
		"a marshaler that writes two values":   asJSON(`1 "` + payloadSecret + `"`),
		"no JSON at all":                       json.RawMessage(payloadSecret),
		"an empty raw message":                 json.RawMessage{},
		"blanks alone":                         json.RawMessage(" \n"),
		"half a value":                         json.RawMessage(`{"` + payloadSecret + `":`),
		"two values":                           json.RawMessage(`{} "` + payloadSecret + `"`),
		"a comma too many":                     json.RawMessage(`[1,]`),
		"a single quote":                       json.RawMessage(`{'a':1}`),
		"a leading nought":                     json.RawMessage(`01`),
		"a plus sign":                          json.RawMessage(`+1`),
		"a point without digits":               json.RawMessage(`1.`),
		"NaN as text":                          json.RawMessage(`NaN`),
		"an unknown escape":                    json.RawMessage(`"\x41"`),
		"a short escape":                       json.RawMessage(`"\u12"`),
		"a raw line break in a string":         json.RawMessage("\"a\nb\""),
		"a byte order mark":                    json.RawMessage("\ufeff1"),
		"a comment":                            json.RawMessage(`1 /* ` + payloadSecret + ` */`),
		"a blank that JSON does not know":      json.RawMessage("\u00a01"),
		"another blank that JSON doesn't know": json.RawMessage("\v1"),
	}
}

type asDefined string

// Embedded is embedded in a trap.
type Embedded struct{ A string }

func TestPayload_traps(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	other, sent, _ := observed(t, pool)
	c := newClient(t, other, queue.Config{})

	for name, payload := range traps() {
		t.Run(name+" is refused", func(t *testing.T) {
			req := queue.Request{Type: "t", Payload: payload}
			reached := sent.during(func() {
				_, err := c.EnqueueWithResult(t.Context(), req)
				wantInvalid(t, err, "payload")
				wantNoSecret(t, err, payloadSecret)
				_, err = c.EnqueueMany(t.Context(), []queue.Request{{Type: "t"}, req})
				wantInvalid(t, err, "payload")
				wantNoSecret(t, err, payloadSecret)
				_, err = req.Fingerprint()
				wantInvalid(t, err, "payload")
				wantNoSecret(t, err, payloadSecret)
			})
			if len(reached) != 0 {
				t.Errorf("it reached PostgreSQL: %q", reached)
			}
		})
	}
}

// What is stored is what was given, digit for digit and character for character.
func TestPayload_kept(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	for _, row := range []struct {
		name    string
		payload any
		want    string
	}{
		{"above 2^53", json.RawMessage(`{"id":9007199254740993}`), `{"id": 9007199254740993}`},
		{"above 2^53 from Go", map[string]any{"id": int64(9007199254740993)}, `{"id": 9007199254740993}`},
		{"the largest uint64", uint64(math.MaxUint64), `18446744073709551615`},
		{"more digits than a float", json.RawMessage(`0.1000000000000000055`), `0.1000000000000000055`},
		{"more digits than a float, from Go", []any{json.Number("0.1000000000000000055")}, `[0.1000000000000000055]`},
		{"HTML", map[string]string{"u": "a<b>&c"}, `{"u": "a<b>&c"}`},
		{"HTML escaped by the caller", json.RawMessage(`"a\u003cb"`), `"a<b"`},
		{"a line separator", "\u2028", "\"\u2028\""},
		{"a replacement character is a character", map[string]any{"\ufffd": "\ufffd"}, "{\"\ufffd\": \"\ufffd\"}"},
		{"a replacement character from a text marshaler", asText("\ufffd"), "\"\ufffd\""},
		{"a surrogate pair", json.RawMessage(`"\ud83d\ude00"`), `"😀"`},
		{"control characters", "\x01\x1f\x7f", "\"\\u0001\\u001f\x7f\""},
		{"bytes that are no text", []byte{0xff, 0}, `"/wA="`},
		{"invalid UTF-8 that is not marshaled", struct {
			A string `json:"-"`
			b string
			C int
		}{"\xff", "\xff", 1}, `{"C": 1}`},
		{"a nil pointer", (*cycle)(nil), `null`},
		{"a nil map", map[string]int(nil), `null`},
		{"the largest number", json.RawMessage(`1e131071`), "1" + strings.Repeat("0", 131071)},
		{"the finest number", json.RawMessage(`1e-16383`), "0." + strings.Repeat("0", 16382) + "1"},
		{"the deepest nesting", depth(10_000), string(depth(10_000))},
		{"the deepest nesting of objects", objects(10_000), strings.ReplaceAll(string(objects(10_000)), ":", ": ")},
		{"the last of two members", json.RawMessage(`{"a":1,"a":2}`), `{"a": 2}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			id := accept(t, c, queue.Request{Type: "t", Payload: row.payload})
			job, err := c.Job(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if string(job.Payload) != row.want {
				t.Errorf("stored as %.100s, want %.100s", job.Payload, row.want)
			}
			results, err := c.EnqueueMany(t.Context(), []queue.Request{{Type: "t", Payload: row.payload}})
			if err != nil {
				t.Fatal(err)
			}
			if job, err = c.Job(t.Context(), results[0].JobID); err != nil || string(job.Payload) != row.want {
				t.Errorf("in a batch stored as %.100s, want %.100s: %v", job.Payload, row.want, err)
			}
		})
	}

	t.Run("the caller's value is left as it is", func(t *testing.T) {
		raw := json.RawMessage(` {"b" : 1.0, "a":2} `)
		accept(t, c, queue.Request{Type: "t", Payload: raw})
		if diff := cmp.Diff(` {"b" : 1.0, "a":2} `, string(raw)); diff != "" {
			t.Errorf("the raw message was changed (-want +got):\n%s", diff)
		}
	})
}

// Whatever text comes: it is accepted exactly when jsonb takes it, refused
// before PostgreSQL sees it otherwise, and equal exactly when jsonb says so.
func TestPayload_generated(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))

	const rounds = 300
	for range rounds {
		raw := canontest.Near(r)
		var taken bool
		_, err := pool.Exec(t.Context(), `SELECT $1::text::jsonb`, string(raw))
		taken = err == nil
		if _, err := c.EnqueueWithResult(t.Context(), queue.Request{Type: "t", Payload: json.RawMessage(raw)}); (err == nil) != taken || err != nil && !errors.Is(err, queue.ErrInvalidRequest) {
			t.Fatalf("seed %d: jsonb takes %.200q: %t, the queue says %v", seed, raw, taken, err)
		}
	}
	for i := range rounds {
		a, b := canontest.Pair(r)
		equal := pgtest.Scan[bool](t, pool, `SELECT $1::text::jsonb = $2::text::jsonb`, string(a), string(b))
		req := queue.Request{Type: "t", Payload: json.RawMessage(a), Admission: queue.Idempotency{Key: fmt.Sprint("generated-", i)}}
		accept(t, c, req)
		req.Payload = json.RawMessage(b)
		res, err := c.EnqueueWithResult(t.Context(), req)
		if replayed := err == nil && res.Outcome == queue.OutcomeReplayed; replayed != equal {
			t.Fatalf("seed %d: jsonb finds %.200q and %.200q equal: %t, the queue says %v, %v", seed, a, b, equal, res, err)
		}
	}
}
