package queuetest_test

import (
	"strings"
	"testing"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

func TestNew(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)

	secret := func(n int) []byte { return []byte(strings.Repeat("k", n)) }
	for _, row := range []struct {
		name string
		ok   []queue.Config
		bad  []queue.Config
		says []string
	}{
		{
			name: "a schema is a lower-case identifier of at most 63 bytes",
			ok:   []queue.Config{{}, {Schema: "a"}, {Schema: "_"}, {Schema: "a1_"}, {Schema: "order"}, {Schema: strings.Repeat("s", 63)}},
			bad: []queue.Config{
				{Schema: strings.Repeat("s", 64)}, {Schema: "A"}, {Schema: "1a"}, {Schema: "a-b"}, {Schema: "a b"}, {Schema: `a"b`}, {Schema: "a.b"},
				{Schema: "é"}, {Schema: "a\x00"}, {Schema: " a"}, {Schema: "a\n"}, {Schema: "pg_a"}, {Schema: "a;DROP TABLE x"},
			},
			says: []string{"schema"},
		},
		{
			name: "a secret is at least 16 bytes",
			ok:   []queue.Config{{KeySecret: secret(16)}, {KeySecret: secret(32)}, {KeySecret: secret(64)}, {KeySecret: secret(1000)}},
			bad:  []queue.Config{{KeySecret: secret(15)}, {KeySecret: secret(1)}},
			says: []string{"keysecret", "16"},
		},
		{
			name: "a previous secret is at least 16 bytes",
			ok:   []queue.Config{{KeySecret: secret(16), PreviousKeySecrets: [][]byte{secret(17)}}},
			bad:  []queue.Config{{KeySecret: secret(16), PreviousKeySecrets: [][]byte{secret(15)}}, {KeySecret: secret(16), PreviousKeySecrets: [][]byte{secret(20), secret(1)}}},
			says: []string{"previouskeysecrets", "16"},
		},
		{
			name: "a payload bound is at most 16 MiB",
			ok:   []queue.Config{{MaxPayloadBytes: 1}, {MaxPayloadBytes: 16 << 20}},
			bad:  []queue.Config{{MaxPayloadBytes: -1}, {MaxPayloadBytes: 16<<20 + 1}},
			says: []string{"maxpayloadbytes"},
		},
		{
			name: "everything wrong is named at once",
			bad:  []queue.Config{{Schema: "A", KeySecret: secret(1), PreviousKeySecrets: [][]byte{secret(2)}, MaxPayloadBytes: -1}},
			says: []string{"schema", "keysecret", "previouskeysecrets", "maxpayloadbytes"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			for i, cfg := range row.ok {
				if _, err := queue.New(pool, cfg); err != nil {
					t.Errorf("good Config %d is refused: %v", i, err)
				}
			}
			for i, cfg := range row.bad {
				c, err := queue.New(pool, cfg)
				if err == nil || c != nil {
					t.Errorf("bad Config %d is taken", i)
					continue
				}
				for _, word := range row.says {
					if !strings.Contains(plainWords(err.Error()), word) {
						t.Errorf("the refusal of Config %d does not mention %q: %v", i, word, err)
					}
				}
				if strings.Contains(err.Error(), "kk") {
					t.Errorf("the refusal shows a secret: %v", err)
				}
			}
		})
	}

	t.Run("dials nothing", func(t *testing.T) {
		other, _, _ := observed(t, pool)
		newClient(t, other, queue.Config{})
		if n := other.Stat().AcquireCount(); n != 0 {
			t.Errorf("New took a connection %d times", n)
		}
	})

	t.Run("the payload bound is the client's", func(t *testing.T) {
		small := newClient(t, pool, queue.Config{MaxPayloadBytes: 10})
		accept(t, small, queue.Request{Type: "t", Payload: text(8)})
		_, err := small.EnqueueWithResult(t.Context(), queue.Request{Type: "t", Payload: text(9)})
		wantInvalid(t, err, "payload", "10", "11")
		large := newClient(t, pool, queue.Config{MaxPayloadBytes: 16 << 20})
		id := accept(t, large, queue.Request{Type: "t", Payload: text(16<<20 - 2)})
		if job, err := large.Job(t.Context(), id); err != nil || len(job.Payload) != 16<<20 {
			t.Errorf("16 MiB come back as %d bytes, %v", len(job.Payload), err)
		}
		_, err = large.EnqueueWithResult(t.Context(), queue.Request{Type: "t", Payload: text(16<<20 - 1)})
		wantInvalid(t, err, "payload", "16777216", "16777217")
	})

	t.Run("changing the secret afterwards changes nothing", func(t *testing.T) {
		key := secret(16)
		c := newClient(t, pool, queue.Config{KeySecret: key})
		id := accept(t, c, invoice("copied-secret"))
		clear(key)
		replay(t, c, invoice("copied-secret"), id)
	})
}
