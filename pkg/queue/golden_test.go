package queue

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// The files in testdata pin what is stored: a change in any of them would lose
// every live binding, so there is no way to write them anew. They were computed
// apart from this package, from the documentation of the formats alone, with
// Python's hashlib: sha256(x), blake2b(x, key=secret, digest_size=32).

// golden reads a file of vectors.
func golden[T any](t *testing.T, name string) []T {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []T
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if len(vectors) == 0 {
		t.Fatalf("%s has no vectors", name)
	}
	return vectors
}

func TestKeyHash_golden(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, v := range golden[struct{ Why, Scope, Key, Secret, Hash string }](t, "keyhash.json") {
		t.Run(v.Why, func(t *testing.T) {
			secret, err := hex.DecodeString(v.Secret)
			if err != nil {
				t.Fatal(err)
			}
			hash := newKeyHasher(secret)
			got := hash(v.Scope, v.Key)
			if hex.EncodeToString(got) != v.Hash {
				t.Errorf("the hash of a key is a stored format, and it has changed: got %x, want %s", got, v.Hash)
			}
			if again := hash(v.Scope, v.Key); string(again) != string(got) {
				t.Error("a hasher gives one key two hashes")
			}
			if ref := newKeyRef(v.Scope, v.Key, got); ref.Digest != v.Hash[:12] || ref.Scope != v.Scope {
				t.Errorf("the digest is the first 12 digits of the hash %s: got %+v", v.Hash, ref)
			}
			if other, ok := seen[v.Hash]; ok {
				t.Errorf("two keys have one hash: %q and %q", v.Why, other)
			}
			seen[v.Hash] = v.Why
		})
	}
}

// A redrive's request id is hashed like a key, in a domain of its own: a key that
// happens to be equal has another hash.
func TestRedriveHash_golden(t *testing.T) {
	t.Parallel()
	for _, v := range golden[struct{ Why, Request, Secret, Hash string }](t, "redrivehash.json") {
		t.Run(v.Why, func(t *testing.T) {
			secret, err := hex.DecodeString(v.Secret)
			if err != nil {
				t.Fatal(err)
			}
			got := newHasher(redriveDomain, secret)(redriveScope, v.Request)
			if hex.EncodeToString(got) != v.Hash {
				t.Errorf("the hash of a request id is a stored format, and it has changed: got %x, want %s", got, v.Hash)
			}
			if string(newKeyHasher(secret)(redriveScope, v.Request)) == string(got) {
				t.Error("a key in the scope of redrives has the hash of a request id")
			}
		})
	}
}

func TestKeyHash_theSecretIsCopied(t *testing.T) {
	t.Parallel()
	secret := []byte("sixteen bytes or more")
	hash := newKeyHasher(secret)
	before := hash("s", "k")
	clear(secret)
	if string(hash("s", "k")) != string(before) {
		t.Error("a caller that wipes its secret changes the hashes of a client that has it")
	}
}

func TestPreview_golden(t *testing.T) {
	t.Parallel()
	type vector struct {
		Why, Key, Preview, Digest string
		Length                    int
	}
	for _, v := range golden[vector](t, "preview.json") {
		t.Run(v.Why, func(t *testing.T) {
			want := KeyRef{Scope: "default", Preview: v.Preview, Digest: v.Digest, Length: v.Length}
			if got := newKeyRef("default", v.Key, newKeyHasher(nil)("default", v.Key)); got != want {
				t.Errorf("preview, digest and length of a key are a stored format, and it has changed: got %+v, want %+v", got, want)
			}
		})
	}
}

// goldenRequest is a request as testdata writes it. Payload is JSON text, an
// instant is seconds and nanoseconds since 1970.
type goldenRequest struct {
	Type               string
	Queue              string
	Payload            *string
	Priority           int
	ConcurrencyKey     string `json:"concurrency_key"`
	Tags               []string
	MaxAttempts        int `json:"max_attempts"`
	Retry              *storedRetry
	RunAt              *[2]int64 `json:"run_at"`
	Deadline           *[2]int64
	ExecutionTimeoutUS int64 `json:"execution_timeout_us"`
	Admission          string
	TTLUS              int64 `json:"ttl_us"`
	Release            Release
	WindowUS           int64 `json:"window_us"`
}

func (g goldenRequest) request(t *testing.T) (Request, mode) {
	t.Helper()
	micros := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	instant := func(p *[2]int64) time.Time {
		if p == nil {
			return time.Time{}
		}
		return time.Unix(p[0], p[1])
	}
	r := Request{
		Type: g.Type, Queue: g.Queue, Priority: g.Priority, ConcurrencyKey: g.ConcurrencyKey, Tags: g.Tags, MaxAttempts: g.MaxAttempts,
		RunAt: instant(g.RunAt), Deadline: instant(g.Deadline), ExecutionTimeout: micros(g.ExecutionTimeoutUS),
	}
	if g.Payload != nil {
		r.Payload = json.RawMessage(*g.Payload)
	}
	if p := g.Retry; p != nil {
		switch p.Policy {
		case "fixed":
			r.Retry = Fixed{Delay: micros(p.DelayUS)}
		case "exponential":
			r.Retry = Exponential{Initial: micros(p.DelayUS), Max: micros(p.MaxUS), Multiplier: p.Multiplier}
		case "decorrelated_jitter":
			r.Retry = DecorrelatedJitter{Base: micros(p.DelayUS), Max: micros(p.MaxUS)}
		default:
			t.Fatalf("unknown policy %q", p.Policy)
		}
	}
	switch g.Admission {
	case "idempotency":
		r.Admission = Idempotency{Key: "k", TTL: micros(g.TTLUS), Release: g.Release}
		return r, modeIdempotency
	case "throttle":
		r.Admission = Throttle{Key: "k", Window: micros(g.WindowUS)}
		return r, modeThrottle
	case "none":
		return r, modeNone
	}
	t.Fatalf("unknown admission %q", g.Admission)
	return r, modeNone
}

func TestFingerprint_golden(t *testing.T) {
	t.Parallel()
	type vector struct {
		Why     string
		Request goldenRequest
		Stored  string
	}
	tried := map[Field]bool{}
	for _, v := range golden[vector](t, "fingerprint.json") {
		t.Run(v.Why, func(t *testing.T) {
			req, m := v.Request.request(t)
			f, err := req.Fingerprint()
			if err != nil {
				t.Fatal(err)
			}
			if got := hex.EncodeToString(f.stored()); got != v.Stored {
				t.Errorf("a fingerprint is a stored format, and it has changed:\n got %s\nwant %s", got, v.Stored)
			}
			stored, err := hex.DecodeString(v.Stored)
			if err != nil {
				t.Fatal(err)
			}
			read, err := parseFingerprint(m, hex.EncodeToString(stored))
			if err != nil || read != f {
				t.Errorf("what is stored reads back as another fingerprint, which differs in %v: %v", read.Diff(f), err)
			}
			for i, member := range f.members {
				if member != [memberBytes]byte{} {
					tried[fields[i]] = true
				}
			}
		})
	}
	for _, field := range fields {
		if !tried[field] {
			t.Errorf("no vector has the member %s: whoever adds a member adds vectors for it", field)
		}
	}
}

func TestParseFingerprint(t *testing.T) {
	t.Parallel()
	f, err := Request{Type: "t", Queue: "q"}.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	stored := f.stored()

	t.Run("a member of a later version is passed over", func(t *testing.T) {
		later := append(append([]byte{}, stored...), byte(len(fields)+1), 1, 2, 3, 4, 5, 6, 7, 8)
		read, err := parseFingerprint(modeNone, hex.EncodeToString(later))
		if err != nil || read != f {
			t.Errorf("an unknown member changes those that are known: %v, %v", read.Diff(f), err)
		}
	})

	for name, text := range map[string][]byte{
		"nothing":                 {},
		"another version":         append([]byte{2}, stored[1:]...),
		"half of the whole":       stored[:20],
		"half of a member":        stored[:len(stored)-1],
		"one byte after the last": append(append([]byte{}, stored...), 0),
	} {
		t.Run("is refused: "+name, func(t *testing.T) {
			if _, err := parseFingerprint(modeNone, hex.EncodeToString(text)); err == nil {
				t.Error("bytes that are no fingerprint of version 1 are read as one")
			} else if strings.Contains(err.Error(), fmt.Sprintf("%x", stored[1:5])) {
				t.Errorf("the error shows what is stored: %v", err)
			}
		})
	}
}
