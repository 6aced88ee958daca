package queuetest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

var (
	oldSecret = []byte("the old secret of the keys")
	newSecret = []byte("the new secret of the keys")
)

// rollouts are pairs of configurations that processes have side by side while a
// secret is rotated, in either order of the roll-out.
var rollouts = []struct {
	name       string
	one, other queue.Config
	from, to   queue.Config // before and after
}{
	{
		name: "new processes know the old secret",
		one:  queue.Config{KeySecret: oldSecret}, other: queue.Config{KeySecret: newSecret, PreviousKeySecrets: [][]byte{oldSecret}},
		from: queue.Config{KeySecret: oldSecret}, to: queue.Config{KeySecret: newSecret, PreviousKeySecrets: [][]byte{oldSecret}},
	},
	{
		name: "old processes learn the new secret first",
		one:  queue.Config{KeySecret: oldSecret, PreviousKeySecrets: [][]byte{newSecret}}, other: queue.Config{KeySecret: newSecret, PreviousKeySecrets: [][]byte{oldSecret}},
		from: queue.Config{KeySecret: oldSecret, PreviousKeySecrets: [][]byte{newSecret}}, to: queue.Config{KeySecret: newSecret, PreviousKeySecrets: [][]byte{oldSecret}},
	},
	{
		name: "the old secret stays the newest for some",
		one:  queue.Config{KeySecret: oldSecret}, other: queue.Config{KeySecret: oldSecret, PreviousKeySecrets: [][]byte{newSecret}},
		from: queue.Config{KeySecret: oldSecret}, to: queue.Config{KeySecret: oldSecret, PreviousKeySecrets: [][]byte{newSecret}},
	},
	{
		name: "some have forgotten the old secret",
		one:  queue.Config{KeySecret: newSecret, PreviousKeySecrets: [][]byte{oldSecret}}, other: queue.Config{KeySecret: newSecret},
		from: queue.Config{KeySecret: newSecret, PreviousKeySecrets: [][]byte{oldSecret}}, to: queue.Config{KeySecret: newSecret},
	},
	{
		name: "from no secret to the first one",
		one:  queue.Config{}, other: queue.Config{KeySecret: newSecret, PreviousKeySecrets: [][]byte{nil}},
		from: queue.Config{}, to: queue.Config{KeySecret: newSecret, PreviousKeySecrets: [][]byte{{}}},
	},
}

func TestRotation_atOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.NewWith(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 32 })
	const callers, keys, takeovers = 16, 50, 15

	for i, row := range rollouts {
		clients := []*queue.Client{newClient(t, pool, row.one), newClient(t, pool, row.other)}
		key := func(n int) string { return fmt.Sprintf("rollout-%d-key-%d", i, n) }

		t.Run(row.name+": one job a key", func(t *testing.T) {
			for n := range keys {
				race(t, clients, 2*callers, invoice(key(n)), queue.OutcomeReplayed)
			}
			wantOneOwner(t, clients, key, keys)
		})
		t.Run(row.name+": one job an expired key", func(t *testing.T) {
			pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp()`)
			for n := range takeovers {
				race(t, clients, callers, invoice(key(n)), queue.OutcomeReplayed)
			}
			wantOneOwner(t, clients, key, takeovers)
		})
		t.Run(row.name+": overlapping batches in opposite order", func(t *testing.T) {
			reqs := batch(fmt.Sprintf("rollout-%d-batch-", i), 0, 50)
			var mu sync.Mutex
			owners := map[any]queue.JobID{}
			together(8, func(n int) {
				mine := slices.Clone(reqs)
				if n%4 >= 2 {
					slices.Reverse(mine)
				}
				results, err := clients[n%2].EnqueueMany(context.Background(), mine)
				if err != nil {
					t.Errorf("a batch among others: %v", err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				for k, res := range results {
					payload := mine[k].Payload
					if owner, ok := owners[payload]; ok && owner != res.JobID {
						t.Errorf("request %v is answered with job %s and job %s", payload, owner, res.JobID)
					}
					owners[payload] = res.JobID
				}
			})
		})
	}
	jobs := len(rollouts) * (keys + takeovers + 50)
	if got := pgtest.Scan[int](t, pool, `SELECT count(*) FROM onceq.job`); got != jobs {
		t.Errorf("%d jobs were made, want %d", got, jobs)
	}
}

// wantOneOwner fails the test unless both clients find the same owner.
func wantOneOwner(t testing.TB, clients []*queue.Client, key func(int) string, keys int) {
	t.Helper()
	for n := range keys {
		one, err := clients[0].Binding(t.Context(), "", key(n))
		if err != nil {
			t.Fatalf("the first client does not find the owner: %v", err)
		}
		other, err := clients[1].Binding(t.Context(), "", key(n))
		if err != nil {
			t.Fatalf("the second client does not find the owner: %v", err)
		}
		if one.JobID != other.JobID || !one.ExpiresAt.Equal(other.ExpiresAt) {
			t.Errorf("the clients find two owners of one key: %+v and %+v", one, other)
		}
	}
}

func TestRotation_oneAfterTheOther(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)

	for i, row := range rollouts {
		t.Run(row.name, func(t *testing.T) {
			before, after := newClient(t, pool, row.from), newClient(t, pool, row.to)
			for name, pair := range map[string][2]*queue.Client{"forward": {before, after}, "roll-back": {after, before}} {
				req := invoice(fmt.Sprint("after-", i, name))
				id := accept(t, pair[0], req)
				replay(t, pair[1], req, id)
				if res := enqueueMany(t, pair[1], []queue.Request{{Type: "t"}, req}); res[1].JobID != id || res[1].Outcome != queue.OutcomeReplayed {
					t.Errorf("%s: in a batch the repeat is %+v, want replayed with %s", name, res[1], id)
				}
				other := req
				other.Priority = 1
				_, err := pair[1].EnqueueWithResult(t.Context(), other)
				wantConflict(t, err, id, queue.FieldPriority)
				throttled := req
				throttled.Admission = queue.Throttle{Key: keyOf(req), Window: day}
				_, err = pair[1].EnqueueWithResult(t.Context(), throttled)
				wantConflict(t, err, id, queue.FieldAdmission)

				pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp() WHERE job_id = $1`, string(id))
				if _, err := pair[1].Binding(t.Context(), "", keyOf(req)); !errors.Is(err, queue.ErrBindingNotFound) {
					t.Errorf("%s: the expired key has an owner: %v", name, err)
				}
				fresh := accept(t, pair[1], other)
				replay(t, pair[0], other, fresh)
				if binding, err := pair[0].Binding(t.Context(), "", keyOf(req)); err != nil || binding.JobID != fresh {
					t.Errorf("%s: the key is owned by %+v, want %s: %v", name, binding, fresh, err)
				}
			}
		})
		t.Run(row.name+": one waits for the other's transaction", func(t *testing.T) {
			for n, pair := range [][2]queue.Config{{row.from, row.to}, {row.to, row.from}} {
				first, second := newClient(t, pool, pair[0]), newClient(t, pool, pair[1])
				req := invoice(fmt.Sprint("wait-", i, n))
				tx, id := held(t, first, pool, req)
				done := sendBehind(t, pool, func() (queue.Result, error) { return second.EnqueueWithResult(context.Background(), req) })
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := <-done; got.err != nil || got.Outcome != queue.OutcomeReplayed || got.JobID != id {
					t.Errorf("behind a commit: %+v, want replayed with %s", got, id)
				}
			}
		})
	}

	t.Run("a single request's conflict speaks of no batch", func(t *testing.T) {
		c := newClient(t, pool, queue.Config{KeySecret: newSecret, PreviousKeySecrets: [][]byte{oldSecret}})
		other := invoice("text")
		id := accept(t, c, other)
		other.Priority = 1
		_, alone := c.EnqueueWithResult(t.Context(), other)
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		_, inside := c.EnqueueTx(t.Context(), tx, other)
		_, batch := c.EnqueueMany(t.Context(), []queue.Request{other})
		for _, row := range []struct {
			err  error
			want string
		}{{alone, "the request differs"}, {inside, "the request differs"}, {batch, "request 0 differs"}} {
			if text := wantConflict(t, row.err, id, queue.FieldPriority).Error(); !strings.Contains(text, row.want) {
				t.Errorf("the conflict should say %q: %s", row.want, text)
			}
		}
	})
	t.Run("a repeat during a rotation writes nothing", func(t *testing.T) {
		c := newClient(t, pool, queue.Config{KeySecret: newSecret, PreviousKeySecrets: [][]byte{oldSecret}})
		old := newClient(t, pool, queue.Config{KeySecret: oldSecret})
		accept(t, c, invoice("quiet-new"))
		accept(t, old, invoice("quiet-old"))
		before := allRows(t, pool, "onceq")
		for range 3 {
			enqueue(t, c, invoice("quiet-new"))
			enqueue(t, c, invoice("quiet-old"))
			enqueueMany(t, c, []queue.Request{invoice("quiet-new"), invoice("quiet-old")})
		}
		wantSameRows(t, pool, before)
	})
}

func TestKeySecret(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	hash := func(id queue.JobID) []byte {
		return pgtest.Scan[[]byte](t, pool, `SELECT key_hash FROM onceq.job WHERE id = $1`, string(id))
	}

	t.Run("changes the stored hash, so that guesses can't be tried", func(t *testing.T) {
		hashes := [][]byte{}
		for _, cfg := range []queue.Config{{}, {KeySecret: oldSecret}, {KeySecret: newSecret}, {KeySecret: bytes.Repeat([]byte{0}, 16)}, {KeySecret: bytes.Repeat([]byte{0}, 17)}, {KeySecret: bytes.Repeat([]byte{1}, 200)}} {
			c := newClient(t, pool, cfg)
			id := accept(t, c, invoice("order-123"))
			got := hash(id)
			if len(got) != 32 || slices.ContainsFunc(hashes, func(h []byte) bool { return bytes.Equal(h, got) }) {
				t.Errorf("hash %x of %d bytes is not one of its own", got, len(got))
			}
			hashes = append(hashes, got)
			replay(t, c, invoice("order-123"), id)
			binding, err := c.Binding(t.Context(), "", "order-123")
			if err != nil || binding.Key.Digest != fmt.Sprintf("%x", got)[:12] {
				t.Errorf("the digest %q is not the start of the stored hash %x: %v", binding.Key.Digest, got, err)
			}
		}
	})

	t.Run("the newest secret's hash is the one that is stored", func(t *testing.T) {
		plain := newClient(t, pool, queue.Config{KeySecret: newSecret})
		rotating := newClient(t, pool, queue.Config{KeySecret: newSecret, PreviousKeySecrets: [][]byte{oldSecret, []byte("an even older secret")}})
		id := accept(t, plain, invoice("newest-1"))
		other := accept(t, rotating, invoice("newest-2"))
		one, err := plain.Binding(t.Context(), "", "newest-2")
		if err != nil || one.JobID != other {
			t.Errorf("what a rotating client accepts stands under the newest secret: %+v, %v", one, err)
		}
		if two, err := rotating.Binding(t.Context(), "", "newest-1"); err != nil || two.JobID != id {
			t.Errorf("a rotating client looks under the newest secret: %+v, %v", two, err)
		}
	})
}
