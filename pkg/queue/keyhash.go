package queue

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/crypto/blake2b"
)

// KeyRef is how a key is shown to people: in errors, logs, events and reads.
// The key itself never leaves the process that was given it.
type KeyRef struct {
	// Scope is the key's scope, in clear.
	Scope string `json:"scope"`
	// Preview is the first min(8, n/4) and the last min(4, n/12) characters of
	// a key of n characters, with … between: never more than a third of it. A
	// short key shows … alone.
	Preview string `json:"preview"`
	// Digest is the first 12 hex digits of the stored hash.
	Digest string `json:"digest"`
	// Length is the number of characters (Unicode code points) in the key.
	Length int `json:"length"`
}

// String is the one form in which errors and logs show a key. Scope and
// preview are quoted, so that a line break in a key can't forge a log line.
func (r KeyRef) String() string {
	return fmt.Sprintf("key %q (scope %q, digest %s, %d characters)", r.Preview, r.Scope, r.Digest, r.Length)
}

// The domains separate hashes of different things, and these from every other
// use of the same functions and secret. A hash is a stored format: to change
// anything in it is to lose every live binding, so a change needs a new version
// beside the old.
const (
	keyDomain     = "onceq.key.v1"
	redriveDomain = "onceq.redrive.v1"
)

// hashBytes is how long a stored hash is, of either function.
const hashBytes = 32

// keyHasher turns scope and key into the hashBytes that are stored in their
// place. It is a function and not a struct with the secret in it, so that no
// printing of a Client can show the secret.
type keyHasher func(scope, key string) []byte

// newKeyHasher is the hasher of admission keys.
func newKeyHasher(secret []byte) keyHasher { return newHasher(keyDomain, secret) }

// newHasher returns SHA-256 without a secret and keyed BLAKE2b-256 with one. A
// secret of more than BLAKE2b's 64 bytes is replaced by its BLAKE2b-512.
func newHasher(domain string, secret []byte) keyHasher {
	if len(secret) == 0 {
		return func(scope, key string) []byte {
			sum := sha256.Sum256(keyText(domain, scope, key))
			return sum[:]
		}
	}
	if len(secret) > blake2b.Size {
		long := blake2b.Sum512(secret)
		secret = long[:]
	} else {
		secret = append([]byte(nil), secret...)
	}
	return func(scope, key string) []byte {
		h, err := blake2b.New256(secret)
		if err != nil {
			panic("queue: BLAKE2b refused a key of 16 to 64 bytes: " + err.Error())
		}
		h.Write(keyText(domain, scope, key))
		return h.Sum(nil)
	}
}

// keyText is what is hashed: the domain, then scope and key each behind its
// length, so that no two pairs share an encoding whatever bytes they hold.
func keyText(domain, scope, key string) []byte {
	buf := append(make([]byte, 0, 256), domain...) // on the stack for most keys
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(scope)))
	buf = append(buf, scope...)
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(key)))
	return append(buf, key...)
}

// digestDigits is how many hex digits of a stored hash are shown.
const digestDigits = 12

// digest is the part of a stored hash that is shown.
func digest(hash []byte) string { return hex.EncodeToString(hash[:digestDigits/2]) }

func newKeyRef(scope, key string, hash []byte) KeyRef {
	shown, n := preview(key)
	return KeyRef{Scope: scope, Preview: shown, Digest: digest(hash), Length: n}
}

// preview returns the part of a key that may be shown, and its length in
// characters. A control character shows as U+FFFD: terminals would act on it,
// and PostgreSQL's text can't hold NUL.
func preview(key string) (string, int) {
	n := utf8.RuneCountInString(key)
	head, tail := min(8, n/4), min(4, n/12)
	runes := []rune(key)
	shown := string(runes[:head]) + "…" + string(runes[n-tail:])
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return utf8.RuneError
		}
		return r
	}, shown), n
}
