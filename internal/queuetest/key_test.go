package queuetest_test

import (
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// Pairs of (scope, key) that must be two owners, however alike they look.
func TestKey_pairsThatAreDifferent(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	long := strings.Repeat("x", 511)
	for _, row := range []struct{ name, why, scope1, key1, scope2, key2 string }{
		{"scope and key are told apart", "the encoding is length-prefixed", "a", "bc", "ab", "c"},
		{"a NUL does not end the key", "control bytes are bytes", "s", "k\x00a", "s", "k\x00b"},
		{"control bytes can't forge the border", "the encoding is length-prefixed", "a\x01", "b", "a", "\x01b"},
		{"a separator in scope or key is no separator", "the encoding is length-prefixed", "a:b", "c", "a", "b:c"},
		{"scopes keep features apart", "B-071: tenants are scopes", "tenant-a", "1", "tenant-b", "1"},
		{"case counts", "bytes as given", "s", "Kase", "s", "kase"},
		{"case counts in the scope", "bytes as given", "Scope", "case", "scope", "case"},
		{"a trailing blank counts", "no trimming", "s", "K", "s", "K "},
		{"a leading blank counts", "no trimming", "s", "T", "s", " T"},
		{"composed and decomposed accents differ", "B-049: no Unicode normalisation", "s", "caf\u00e9", "s", "cafe\u0301"},
		{"the last byte of a key of full length counts", "B-103: never cut off", "s", long + "a", "s", long + "b"},
		{"a line break counts", "bytes as given", "s", "line", "s", "line\n"},
		{"a byte order mark counts", "bytes as given", "s", "bom", "s", "\ufeffbom"},
	} {
		t.Run(row.name, func(t *testing.T) {
			first, second := queue.Request{Type: "a"}, queue.Request{Type: "a"}
			first.Admission = queue.Idempotency{Scope: row.scope1, Key: row.key1}
			second.Admission = queue.Idempotency{Scope: row.scope2, Key: row.key2}
			id1, id2 := accept(t, c, first), accept(t, c, second)
			if id1 == id2 {
				t.Errorf("two keys made one job: %s", row.why)
			}
			replay(t, c, first, id1)
			replay(t, c, second, id2)
		})
	}
}

// Keys of every shape work, twice (B-009, B-073).
func TestKey_shapes(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	pgtest.Exec(t, pool, `CREATE TABLE canary (n int)`)

	for _, key := range []string{
		"x", "01890a5d-ac96-774b-bcce-b302099a8057", strings.Repeat("0f", 32), strings.Repeat("é", 256), strings.Repeat("🐘", 128),
		" ", "\x00", "\x00\x01\x02\x03\x04\x05\x06\x07 eight NULs and more \x00", "\n\r\t", "'", `"`, "'; DROP TABLE canary; --", "$$", `\`, "%", "*", "$1",
		strings.Repeat("\x00", 512), "\u2028\u202e\u200b", "\U0010ffff", "null", "NULL", "{}",
	} {
		t.Run(fmt.Sprintf("%.40q", key), func(t *testing.T) {
			req := queue.Request{Type: "a", Admission: queue.Idempotency{Key: key}}
			id := accept(t, c, req)
			replay(t, c, req, id)
			if results, err := c.EnqueueMany(t.Context(), []queue.Request{req}); err != nil || results[0].JobID != id {
				t.Errorf("in a batch the key has another owner: %+v, %v", results, err)
			}
			wantKeyRef(t, c, "default", key, id)
		})
	}
	pgtest.Scan[int](t, pool, `SELECT count(*) FROM canary`)
}

// Odd text in every other name is data, never SQL.
func TestClient_oddNames(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})
	pgtest.Exec(t, pool, `CREATE TABLE canary (n int)`)

	for i, text := range []string{"'", `"`, ";", "--", "'; DROP TABLE canary; --", "$$", "$1", `\`, `\'`, "%", "*", "NULL", "🐘", "{a,b}", "e\u0301", "\ufffd"} {
		t.Run(text, func(t *testing.T) {
			req := queue.Request{
				Type: text, Queue: text, ConcurrencyKey: text, Tags: []string{text, text + text}, Payload: text,
				Admission: queue.Idempotency{Scope: text, Key: fmt.Sprint(text, i)},
			}
			id := accept(t, c, req)
			replay(t, c, req, id)
			job, err := c.Job(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			got := []any{job.Type, job.Queue, job.ConcurrencyKey, job.Tags, job.Key.Scope}
			if diff := cmp.Diff([]any{text, text, text, []string{text, text + text}, text}, got); diff != "" {
				t.Errorf("a name came back changed (-want +got):\n%s", diff)
			}
			if _, err := c.EnqueueMany(t.Context(), []queue.Request{{Type: text, Queue: text, Tags: []string{text}, ConcurrencyKey: text}}); err != nil {
				t.Errorf("in a batch: %v", err)
			}
		})
	}
	pgtest.Scan[int](t, pool, `SELECT count(*) FROM canary`)
}

// preview is the rule of KeyRef, written out once more. Control characters, which
// PostgreSQL's text can't all hold, are shown as U+FFFD.
func preview(key string) string {
	key = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return utf8.RuneError
		}
		return r
	}, key)
	r := []rune(key)
	n := len(r)
	return string(r[:min(8, n/4)]) + "…" + string(r[n-min(4, n/12):])
}

func wantKeyRef(t testing.TB, c *queue.Client, scope, key string, id queue.JobID) {
	t.Helper()
	binding, err := c.Binding(t.Context(), scope, key)
	if err != nil {
		t.Fatalf("the owner of the key is not found: %v", err)
	}
	job, err := c.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if binding.JobID != id || job.Key == nil {
		t.Fatalf("the key is owned by %q, want %q; the job's key is %v", binding.JobID, id, job.Key)
	}
	if diff := cmp.Diff(binding.Key, *job.Key); diff != "" {
		t.Errorf("binding and job show one key differently (-binding +job):\n%s", diff)
	}
	want := queue.KeyRef{Scope: scope, Preview: preview(key), Digest: binding.Key.Digest, Length: utf8.RuneCountInString(key)}
	if diff := cmp.Diff(want, binding.Key); diff != "" {
		t.Errorf("the key is not shown by the rule of min(8, n/4) and min(4, n/12) characters (-want +got):\n%s", diff)
	}
}

func TestKeyRef(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	t.Run("shows at most a third, counted in characters", func(t *testing.T) {
		for _, letter := range []string{"abcdefghij", "éàüößçñøåæ", "🐘🐙🐚🐛🐜🐝🐞🐟🐠🐡"} {
			letters := []rune(letter)
			for _, n := range []int{1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 23, 24, 31, 32, 33, 47, 48, 49, 100, 128} {
				key := ""
				for i := range n {
					key += string(letters[i%len(letters)])
				}
				id := accept(t, c, queue.Request{Type: "a", Admission: queue.Idempotency{Key: key}})
				wantKeyRef(t, c, "default", key, id)
				if binding, _ := c.Binding(t.Context(), "", key); 3*(utf8.RuneCountInString(binding.Key.Preview)-1) > n {
					t.Errorf("the preview %q shows more than a third of %d characters", binding.Key.Preview, n)
				}
			}
		}
	})

	t.Run("digest is the start of the stored hash", func(t *testing.T) {
		id := accept(t, c, invoice("digest-of-a-key"))
		binding, err := c.Binding(t.Context(), "default", "digest-of-a-key")
		if err != nil {
			t.Fatal(err)
		}
		stored := pgtest.Scan[[]byte](t, pool, `SELECT key_hash FROM onceq.binding WHERE job_id = $1`, string(id))
		if got := hex.EncodeToString(stored); len(stored) != 32 || got[:12] != binding.Key.Digest {
			t.Errorf("the digest is %q, the stored hash of %d bytes begins with %.12s", binding.Key.Digest, len(stored), got)
		}
	})

	t.Run("a line break in a key can't forge a log line", func(t *testing.T) {
		ref := queue.KeyRef{Scope: "a\nb", Preview: "c\nd…", Digest: "0123456789ab", Length: 20}
		if text := ref.String(); strings.ContainsAny(text, "\n\r") {
			t.Errorf("KeyRef prints a raw line break: %q", text)
		}
	})
}

// B-048: keys that a 32-bit hash can't tell apart neither meet nor wait.
func TestKey_weakHashCollisions(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	fnv32 := func(s string) uint32 { h := fnv.New32a(); h.Write([]byte(s)); return h.Sum32() }
	crc := func(s string) uint32 { return crc32.ChecksumIEEE([]byte(s)) }
	var pair [2]string
	err := pool.QueryRow(t.Context(), `SELECT min('order-' || n), max('order-' || n) FROM generate_series(1, 300000) n
		GROUP BY hashtext('order-' || n) HAVING count(*) > 1 LIMIT 1`).Scan(&pair[0], &pair[1])
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]string{"FNV": collision(t, fnv32), "CRC": collision(t, crc), "hashtext": pair} {
		t.Run(name, func(t *testing.T) {
			tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(t.Context()) }()
			held, err := c.EnqueueTx(t.Context(), tx, invoice(pair[0]))
			if err != nil {
				t.Fatal(err)
			}
			if id := accept(t, c, invoice(pair[1])); id == held.JobID { // would hang if it waited
				t.Errorf("%q and %q share an owner", pair[0], pair[1])
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// collision finds two keys with the same 32-bit hash.
func collision(t testing.TB, hash func(string) uint32) [2]string {
	t.Helper()
	seen := map[uint32]string{}
	for i := range 2_000_000 {
		key := fmt.Sprintf("%x-order-%d", i*2654435761, i)
		h := hash(key)
		if other, ok := seen[h]; ok {
			return [2]string{other, key}
		}
		seen[h] = key
	}
	t.Fatal("no collision among two million keys")
	return [2]string{}
}
