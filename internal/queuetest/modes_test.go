package queuetest_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

var execModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// route is a way for requests to reach PostgreSQL.
type route struct {
	one  func(ctx context.Context, req queue.Request) (queue.Result, error)
	many func(ctx context.Context, reqs []queue.Request) ([]queue.Result, error)
}

// routes are pgx in all its modes and both database/sql drivers, on one database.
func routes(t testing.TB, pool *pgxpool.Pool, cfg queue.Config) map[string]route {
	t.Helper()
	all := map[string]route{}
	for _, mode := range execModes {
		c := newClient(t, inMode(t, pool, mode), cfg)
		all[mode.String()] = route{c.EnqueueWithResult, c.EnqueueMany}
	}
	c := newClient(t, pool, cfg)
	for name, open := range drivers {
		begin := open(t, pool)
		all[name] = route{
			one: func(ctx context.Context, req queue.Request) (res queue.Result, err error) {
				tx := begin(t, sql.LevelDefault)
				if res, err = c.EnqueueTx(ctx, tx, req); err != nil {
					_ = tx.rollback()
					return res, err
				}
				return res, tx.commit()
			},
			many: func(ctx context.Context, reqs []queue.Request) (res []queue.Result, err error) {
				tx := begin(t, sql.LevelDefault)
				if res, err = c.EnqueueManyTx(ctx, tx, reqs); err != nil {
					_ = tx.rollback()
					return res, err
				}
				return res, tx.commit()
			},
		}
	}
	return all
}

func inMode(t testing.TB, pool *pgxpool.Pool, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	return pgtest.Reconnect(t, pool, func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = mode })
}

// awkward are requests whose text, numbers and times are easily bent on the way.
func awkward(scope string) []queue.Request {
	odd := []string{`a,b`, `{}`, `"quoted"`, `back\slash`, `NULL`, `null`, ` blank `, `'single'`, `$1`, `?`, `:name`, `é🐘`, `\x41`, `%s`}
	reqs := []queue.Request{
		{Payload: nil}, {Payload: true}, {Payload: "text"}, {Payload: []byte{0, 0xff}}, {Payload: json.RawMessage(`{"n":9007199254740993,"f":0.1000000000000000055}`)},
		{Payload: `back\slash 'quote' "double" $1 ? :x \x41 \\`}, {Payload: json.RawMessage(`"\ud83d\ude00\n\u007f"`)}, {Payload: map[string]any{`k'"\`: odd}}, {Payload: "\x01\x02\x1f"},
		{Tags: odd}, {Tags: []string{""}[:0]}, {Tags: []string{"a"}}, {ConcurrencyKey: `'; \x00 "`}, {Queue: `q'"\$1`}, {Priority: 100, MaxAttempts: 1},
		{Retry: queue.Fixed{Delay: 1500 * time.Microsecond}}, {Retry: queue.Exponential{Initial: time.Microsecond, Max: year, Multiplier: 1.5}}, {Retry: queue.DecorrelatedJitter{}},
		{RunAt: firstInstant}, {RunAt: lastInstant}, {RunAt: time.Date(-1, 2, 28, 23, 59, 59, 1000, time.UTC)}, {RunAt: noon, Deadline: noon.Add(time.Microsecond)},
		{Deadline: firstInstant}, {Deadline: lastInstant}, {Deadline: time.Date(1969, 12, 31, 23, 59, 59, 999999000, time.FixedZone("", 20700))},
		{ExecutionTimeout: year}, {ExecutionTimeout: time.Millisecond}, {ExecutionTimeout: 25*time.Hour + time.Microsecond},
		{Admission: queue.Idempotency{TTL: time.Hour}}, {Admission: queue.Idempotency{Release: queue.ReleaseDead}}, {Admission: queue.Throttle{Window: time.Minute}},
		everything(""),
	}
	for i := range reqs {
		req := &reqs[i]
		req.Type = fmt.Sprintf("awkward-%02d", i)
		key := fmt.Sprintf("key-%02d \x00\xc2\xa0'\"\\ 🐘", i)
		switch a := req.Admission.(type) {
		case queue.Throttle:
			a.Key, a.Scope = key, scope
			req.Admission = a
		case queue.Idempotency:
			a.Key, a.Scope = key, scope
			req.Admission = a
		default:
			req.Admission = queue.Idempotency{Key: key, Scope: scope}
		}
	}
	return append(reqs, queue.Request{Type: "plain-" + scope, Payload: `\'"`}, queue.Request{Type: "plain-run-at-" + scope, RunAt: noon})
}

// stored is all that a route stored, without what differs each time.
func stored(t testing.TB, pool *pgxpool.Pool) []string {
	t.Helper()
	return append(
		pgtest.List[string](t, pool, `SELECT jsonb_pretty(to_jsonb(j) - 'id' - 'accepted_at' - CASE WHEN j.run_at = j.accepted_at OR j.run_at > clock_timestamp() - interval '1 hour'
			AND j.run_at < clock_timestamp() + interval '1 hour' THEN 'run_at' ELSE '' END) FROM onceq.job j ORDER BY j.type, j.key_scope`),
		pgtest.List[string](t, pool, `SELECT jsonb_pretty(to_jsonb(b) - 'job_id' - 'accepted_at' - 'expires_at' || jsonb_build_object('lives', b.expires_at - b.accepted_at, 'type', j.type))
			FROM onceq.binding b JOIN onceq.job j ON j.id = b.job_id ORDER BY j.type, b.scope`)...,
	)
}

// Whatever the way, the rows are the same: definitions, hashes, fingerprints.
func TestModes_sameRows(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	cfg := queue.Config{KeySecret: oldSecret}
	all := routes(t, pool, cfg)
	send := func(r route) []string {
		pgtest.Exec(t, pool, `TRUNCATE onceq.job, onceq.pending, onceq.binding`)
		for _, req := range awkward("single") {
			if res, err := r.one(t.Context(), req); err != nil || res.Outcome != queue.OutcomeAccepted {
				t.Errorf("%s: %+v, %v", req.Type, res, err)
			}
		}
		results, err := r.many(t.Context(), awkward("batch"))
		if err != nil {
			t.Errorf("batch: %v", err)
		}
		for i, res := range results {
			if res.Outcome != queue.OutcomeAccepted {
				t.Errorf("request %d of the batch: %+v", i, res)
			}
		}
		return stored(t, pool)
	}
	want := send(all[pgx.QueryExecModeCacheStatement.String()])
	if len(want) < 4*30 {
		t.Fatalf("only %d rows to compare", len(want))
	}
	for name, r := range all {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(want, send(r)); diff != "" {
				t.Errorf("other rows than by pgx's default mode (-default +%s):\n%s", name, diff)
			}
		})
	}
}

// What one way accepted, every other recognises.
func TestModes_recogniseEachOther(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	all := routes(t, pool, queue.Config{})
	reqs := awkward("shared")
	reqs = reqs[:len(reqs)-2] // the plain ones are never recognised
	var names []string
	for name := range all {
		names = append(names, name)
	}
	ids := make([]queue.JobID, len(reqs))
	for i, req := range reqs { // each way accepts its share
		res, err := all[names[i%len(names)]].one(t.Context(), req)
		if err != nil || res.Outcome != queue.OutcomeAccepted {
			t.Fatalf("%s, request %d: %+v, %v", names[i%len(names)], i, res, err)
		}
		ids[i] = res.JobID
	}
	for name, r := range all {
		t.Run(name, func(t *testing.T) {
			batch, err := r.many(t.Context(), reqs)
			if err != nil {
				t.Fatal(err)
			}
			for i, req := range reqs {
				want := queue.Result{JobID: ids[i], Outcome: queue.OutcomeReplayed}
				if _, ok := req.Admission.(queue.Throttle); ok {
					want.Outcome = queue.OutcomeCoalesced
				}
				got, err := r.one(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				wantResult(t, got, want)
				wantResult(t, batch[i], want)
				other := req
				other.Priority = 50
				_, err = r.one(t.Context(), other)
				wantConflict(t, err, ids[i], queue.FieldPriority)
				_, err = r.many(t.Context(), []queue.Request{other})
				wantConflict(t, err, ids[i], queue.FieldPriority)
			}
		})
	}
}

// No session setting bends what is stored or read, in any mode.
func TestModes_sessionSettings(t *testing.T) {
	t.Parallel()
	origin := pgtest.New(t)
	pgtest.Exec(t, origin, `CREATE TABLE public.job (decoy int); CREATE TABLE public.binding (decoy int); CREATE TABLE public.pending (decoy int)`)

	for _, mode := range execModes {
		for name, settings := range map[string]map[string]string{
			"far away": {"timezone": "Pacific/Chatham", "datestyle": "SQL, DMY", "intervalstyle": "sql_standard", "bytea_output": "escape", "extra_float_digits": "-5", "search_path": ""},
			"elsewhere": {"timezone": "America/St_Johns", "datestyle": "German, YMD", "intervalstyle": "iso_8601", "search_path": "public", "enable_seqscan": "off", "enable_indexscan": "off",
				"plan_cache_mode": "force_generic_plan", "jit": "on", "jit_above_cost": "0", "quote_all_identifiers": "on", "transform_null_equals": "on", "default_toast_compression": "pglz"},
		} {
			t.Run(mode.String()+" "+name, func(t *testing.T) {
				pgtest.Exec(t, origin, `TRUNCATE onceq.job, onceq.pending, onceq.binding`)
				pool := pgtest.Reconnect(t, origin, func(cfg *pgxpool.Config) {
					cfg.ConnConfig.DefaultQueryExecMode = mode
					for k, v := range settings {
						cfg.ConnConfig.RuntimeParams[k] = v
					}
				})
				c, plain := newClient(t, pool, queue.Config{}), newClient(t, origin, queue.Config{})
				req := everything("settings")
				id := accept(t, c, req)
				replay(t, c, req, id)
				replay(t, plain, req, id)
				if res := enqueueMany(t, c, []queue.Request{req, {Type: "t"}}); res[0].JobID != id {
					t.Errorf("in a batch: %+v", res)
				}
				other := req
				other.RunAt = req.RunAt.Add(time.Microsecond)
				_, err := c.EnqueueWithResult(t.Context(), other)
				conflict := wantConflict(t, err, id, queue.FieldRunAt)
				want, err := plain.Binding(t.Context(), "", "settings")
				if err != nil {
					t.Fatal(err)
				}
				got, err := c.Binding(t.Context(), "", "settings")
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" || !conflict.ExpiresAt.Equal(want.ExpiresAt) {
					t.Errorf("the conflict says %s; the binding reads as another one (-plain +settings):\n%s", conflict.ExpiresAt, diff)
				}
				wantJob, err := plain.Job(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				gotJob, err := c.Job(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(wantJob, gotJob); diff != "" {
					t.Errorf("the job reads as another one (-plain +settings):\n%s", diff)
				}
				events, err := c.Events(t.Context(), id)
				if err != nil || len(events) != 1 || !events[0].At.Equal(wantJob.AcceptedAt) {
					t.Errorf("the timeline reads as another one: %+v, %v", events, err)
				}
			})
		}
	}
}

// Neither do settings of the caller's transaction.
func TestModes_settingsOfTheTransaction(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	for name, open := range drivers {
		for _, settings := range []string{
			`SET LOCAL datestyle = 'SQL, DMY'`, `SET LOCAL datestyle = 'German'`, `SET LOCAL timezone = 'Pacific/Chatham'`, `SET LOCAL intervalstyle = 'sql_standard'`,
			`SET LOCAL bytea_output = 'escape'`, `SET LOCAL search_path = ''`, `SET LOCAL extra_float_digits = -10`,
		} {
			t.Run(name+" with "+settings, func(t *testing.T) {
				scope := t.Name()
				id := accept(t, c, scoped(everything("kept"), scope))
				tx := open(t, pool)(t, sql.LevelDefault)
				tx.do(t, settings)
				enqueueTx(t, c, tx, scoped(everything("fresh"), scope), queue.OutcomeAccepted)
				if again := enqueueTx(t, c, tx, scoped(everything("kept"), scope), queue.OutcomeReplayed); again != id {
					t.Errorf("the repeat names %s, want %s", again, id)
				}
				other := scoped(everything("kept"), scope)
				other.RunAt = other.RunAt.Add(time.Microsecond)
				_, err := c.EnqueueTx(t.Context(), tx, other)
				conflict := wantConflict(t, err, id, queue.FieldRunAt)
				if binding, err := c.Binding(t.Context(), scope, "kept"); err != nil || !conflict.ExpiresAt.Equal(binding.ExpiresAt) {
					t.Errorf("the conflict says the key is free at %s, it is at %s: %v", conflict.ExpiresAt, binding.ExpiresAt, err)
				}
				_, err = c.EnqueueManyTx(t.Context(), tx, []queue.Request{{Type: "t"}, other})
				wantConflict(t, err, id, queue.FieldRunAt)
				results, err := c.EnqueueManyTx(t.Context(), tx, []queue.Request{scoped(everything("kept"), scope), scoped(everything("batch"), scope)})
				if err != nil || results[0].JobID != id {
					t.Fatalf("a batch: %+v, %v", results, err)
				}
				tx.mustCommit(t)
				for _, key := range []string{"fresh", "batch"} {
					if _, err := c.Binding(t.Context(), scope, key); err != nil {
						t.Errorf("what the transaction accepted under %q: %v", key, err)
					}
				}
			})
		}
	}
}
