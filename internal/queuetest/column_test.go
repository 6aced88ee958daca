package queuetest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// storedFor is all that the tables hold for a job, but its id and the clock's
// readings, of which only the distances count.
const storedFor = `SELECT jsonb_pretty(
	to_jsonb(j) - '{id,accepted_at,run_at}'::text[] || to_jsonb(p) - '{job_id,ready_at}'::text[] || jsonb_build_object(
		'run_at', CASE WHEN j.run_at <> j.accepted_at THEN extract(epoch FROM j.run_at) END,
		'ready_at', CASE WHEN p.ready_at <> j.accepted_at THEN extract(epoch FROM p.ready_at) END,
		'bindings', (SELECT jsonb_agg(to_jsonb(b) - '{job_id,accepted_at,expires_at}'::text[]
			|| jsonb_build_object('kept_for', b.expires_at - b.accepted_at) ORDER BY b.key_hash) FROM onceq.binding AS b WHERE b.job_id = j.id)))
	FROM onceq.job AS j JOIN onceq.pending AS p ON p.job_id = j.id WHERE j.id = $1`

// A batch sends what is alike in all of its requests once. Whatever the others
// have, each request is stored as if it had come alone.
func TestClient_EnqueueManyColumns(t *testing.T) {
	t.Parallel()
	alone, together := pgtest.New(t), pgtest.New(t)
	for _, cfg := range []queue.Config{{}, {KeySecret: newSecret, PreviousKeySecrets: [][]byte{oldSecret, nil}}} {
		one, many := newClient(t, alone, cfg), newClient(t, together, cfg)
		serial := 0
		same := func(t *testing.T, reqs ...queue.Request) {
			t.Helper()
			for i := range reqs {
				serial++
				reqs[i] = withKey(reqs[i], fmt.Sprintf("%d of %d secrets", serial, len(cfg.PreviousKeySecrets)))
			}
			for i, res := range enqueueMany(t, many, reqs) {
				want := storedAs(t, alone, accept(t, one, reqs[i]))
				if diff := cmp.Diff(want, storedAs(t, together, res.JobID)); diff != "" {
					t.Errorf("request %d of %d is stored otherwise than alone (-alone +in the batch):\n%s", i, len(reqs), diff)
				}
			}
		}
		keyless := queue.Request{Type: "t"}
		empty := queue.Request{Type: "t", Payload: "", Admission: queue.Idempotency{}}
		throttled := queue.Request{Type: "t", Admission: queue.Throttle{Window: time.Hour, Scope: "s"}}

		t.Run(fmt.Sprintf("%d previous secrets", len(cfg.PreviousKeySecrets)), func(t *testing.T) {
			for _, row := range differences {
				a, b := completed(row.one, ""), completed(row.other, "")
				same(t, a, a, b)
				same(t, b, a)
			}
			for _, req := range []queue.Request{keyless, empty, throttled, everything("")} {
				same(t, req)
				same(t, req, req, req)
			}
			same(t, keyless, everything(""), throttled, keyless, empty)
			same(t, everything(""), keyless, keyless)
			same(t, throttled, empty, everything(""), everything(""))
		})
		t.Run(fmt.Sprintf("%d previous secrets: a job knows the hashes of all its bindings", len(cfg.PreviousKeySecrets)), func(t *testing.T) {
			key := fmt.Sprintf("beside a debounced one, %d", len(cfg.PreviousKeySecrets))
			debounced := queue.Request{Type: "t", Admission: queue.Debounce{Key: "debounced " + key, Window: day}}
			results := enqueueMany(t, many, []queue.Request{keyless, debounced, withKey(throttled, key)})
			wantOutcomes(t, together, results, queue.OutcomeAccepted, queue.OutcomeAccepted, queue.OutcomeAccepted)
			if n := pgtest.Scan[int](t, together, `SELECT count(*) FROM onceq.job AS j WHERE j.key_hash IS NOT NULL
				AND (SELECT array_agg(b.key_hash ORDER BY b.key_hash) FROM onceq.binding AS b WHERE b.job_id = j.id) IS DISTINCT FROM
					(SELECT array_agg(h ORDER BY h) FROM unnest(j.key_hash || coalesce(j.key_aliases, '{}')) AS h)`); n > 0 {
				t.Errorf("%d jobs name other hashes than those of their bindings", n)
			}
		})
	}
}

func storedAs(t testing.TB, pool *pgxpool.Pool, id queue.JobID) string {
	t.Helper()
	return pgtest.Scan[string](t, pool, storedFor, string(id))
}
