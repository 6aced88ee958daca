package operatortest

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/devpg"
	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// big is a database with so many jobs, three quarters of them ended, one in a
// thousand of those dead and one cancelled, the rest waiting in three queues; the
// oldest jobs of all stand alone in a queue, one in each state.
func big(t *testing.T, jobs int) *world {
	t.Helper()
	server := pgtest.Quiet(t, devpg.Setting("max_wal_size", "8GB"))
	w := worldOf(t, server.NewWith(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 1 }), queue.Config{})
	began := time.Now()
	// A job a second, from September 2024 on: the first six bytes of a UUIDv7 are milliseconds.
	const ms = `(1726000000000 + n::bigint * 1000)`
	const id = `(overlay(lpad(to_hex(` + ms + `), 12, '0') placing '-' FROM 9 FOR 0) || '-7000-8000-000000000000')::uuid`
	w.exec(`INSERT INTO onceq.job (id, accepted_at, run_at, priority, max_attempts, queue, type, payload, tags)
		SELECT `+id+`, to_timestamp(`+ms+` / 1000.0),
			now() + CASE WHEN n % 8 = 0 THEN interval '1 day' ELSE interval '-1 day' END, n % 2, 25,
			CASE WHEN n <= 6 THEN 'rare' ELSE 'queue ' || n % 3 END, 'work', '{"n": 1}', CASE WHEN n <= 6 THEN ARRAY['rare'] END
		FROM generate_series(1, $1::int) AS n`, jobs)
	w.exec(`INSERT INTO onceq.finished (finished_at, claimed_at, job_id, state, attempt, error)
		SELECT accepted_at + interval '1 second', accepted_at, id, CASE WHEN n % 1000 = 1 THEN 2 WHEN n % 1000 = 3 THEN 3 ELSE 1 END, 1, CASE WHEN n % 1000 = 1 THEN 'error ' || n END
		FROM (SELECT *, row_number() OVER (ORDER BY id) AS n FROM onceq.job) AS j WHERE n % 4 <> 0 AND n <> 6`)
	w.exec(`INSERT INTO onceq.pending (ready_at, job_id, priority, queue, type)
		SELECT greatest(run_at, accepted_at), id, priority, queue, type FROM onceq.job AS j WHERE NOT EXISTS (SELECT FROM onceq.finished AS f WHERE f.job_id = j.id)`)
	w.exec(`WITH six AS (DELETE FROM onceq.pending WHERE job_id = (SELECT id FROM onceq.job ORDER BY id OFFSET 5 LIMIT 1) RETURNING *)
		INSERT INTO onceq.running (claimed_at, lease_until, job_id, fence, attempt, queue, worker_id) SELECT now(), now() + interval '1 hour', job_id, 1, 1, queue, 'w' FROM six`)
	w.exec(`UPDATE onceq.pending SET ready_at = now() + interval '1 day' WHERE queue = 'rare'`)
	w.exec(`UPDATE onceq.job SET run_at = p.ready_at FROM onceq.pending AS p WHERE p.job_id = job.id AND p.queue = 'rare'`)
	w.burst(5000)
	w.exec(`VACUUM ANALYZE`)
	w.exec(`DELETE FROM onceq.pending WHERE queue = 'burst'`)
	t.Logf("%d jobs made in %s", jobs, time.Since(began).Round(time.Millisecond))
	return w
}

// burst adds ready jobs, or what lists and counts see of them, to a queue.
func (w *world) burst(jobs int) {
	w.t.Helper()
	w.exec(`INSERT INTO onceq.pending (ready_at, job_id, priority, queue, type)
		SELECT now() - interval '1 hour' + n * interval '1 millisecond', gen_random_uuid(), 0, 'burst', 'work' FROM generate_series(1, $1::int) AS n`, jobs)
}

// work is what a call makes PostgreSQL do.
type work struct {
	pages   int // of tables and indexes that are looked at
	entries int // of indexes that are read
	scanned int // rows that are read without an index
}

func (w *world) work(do func()) work {
	w.t.Helper()
	read := func() work {
		w.exec(`SELECT pg_stat_force_next_flush()`)
		return work{
			scan[int](w, `SELECT sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0))::bigint FROM pg_statio_user_tables WHERE schemaname = 'onceq'`),
			scan[int](w, `SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE schemaname = 'onceq'`),
			scan[int](w, `SELECT sum(seq_tup_read)::bigint FROM pg_stat_user_tables WHERE schemaname = 'onceq' AND relname IN ('job', 'pending', 'finished', 'event')`),
		}
	}
	before := read()
	do()
	after := read()
	return work{after.pages - before.pages, after.entries - before.entries, after.scanned - before.scanned}
}

// What an operator asks for costs about the same, in pages touched, whether there
// are ten thousand jobs or a million.
func TestCosts(t *testing.T) {
	t.Parallel()
	jobs := 1_000_000
	if pgtest.Rounds(5) == 1 {
		jobs = 400_000
	}
	w := big(t, jobs)
	first := func(f queue.JobFilter) func() {
		return func() {
			n := 0
			for _, err := range w.client.Jobs(w.ctx, f) {
				if err != nil {
					t.Fatal(err)
				}
				if n++; n == jobPage {
					break
				}
			}
		}
	}
	dead := func(f queue.JobFilter) func() {
		return func() {
			n := 0
			for _, err := range w.client.DeadLetters(w.ctx, f) {
				if err != nil {
					t.Fatal(err)
				}
				if n++; n == jobPage {
					break
				}
			}
		}
	}
	oldest := ids(t, w.client.Jobs(w.ctx, queue.JobFilter{Queue: "rare", State: queue.StateDead}))[0]
	when := w.job(oldest).AcceptedAt
	middle := when.Add(time.Duration(jobs/2) * time.Second)
	for _, c := range []struct {
		name string
		do   func()
		most int // pages
	}{
		// 100 jobs: each a page of the job, and the way through five indexes.
		{"the newest", first(queue.JobFilter{}), 5000},
		{"the newest of a queue", first(queue.JobFilter{Queue: "queue 1"}), 6000},
		{"the newest succeeded", first(queue.JobFilter{State: queue.StateSucceeded}), 6000},
		{"the newest dead", first(queue.JobFilter{State: queue.StateDead}), 5000},
		{"the newest cancelled", first(queue.JobFilter{State: queue.StateCancelled}), 5000},
		{"the only dead one of a queue", first(queue.JobFilter{State: queue.StateDead, Queue: "rare"}), 12000},
		{"the only cancelled one of a queue", first(queue.JobFilter{State: queue.StateCancelled, Queue: "rare"}), 12000},
		{"the only running one", first(queue.JobFilter{State: queue.StateRunning}), 100},
		{"the only scheduled one of a queue", first(queue.JobFilter{State: queue.StateScheduled, Queue: "rare"}), 100},
		{"nothing ready in a queue", first(queue.JobFilter{State: queue.StateReady, Queue: "rare"}), 100},
		{"a queue that is not there", first(queue.JobFilter{State: queue.StateReady, Queue: "nowhere"}), 100},
		{"the newest of many ready", first(queue.JobFilter{State: queue.StateReady}), 35000},
		{"the newest of many scheduled", first(queue.JobFilter{State: queue.StateScheduled, Queue: "queue 2"}), 50000},
		{"the oldest, by time", first(queue.JobFilter{Until: when.Add(time.Second)}), 10_000},
		{"some from the middle", first(queue.JobFilter{Since: middle, Until: middle.Add(time.Minute), Queue: "queue 0"}), 10_000},
		{"nothing of a queue in the last hour", first(queue.JobFilter{Since: when.Add(time.Duration(jobs-3600) * time.Second), Queue: "rare"}), 10_000},
		{"the newest dead letters", dead(queue.JobFilter{}), 5000},
		{"the only dead letter of a queue", dead(queue.JobFilter{Queue: "rare"}), 12000},
		{"dead letters by error", dead(queue.JobFilter{Error: "error 1"}), 12000},
		{"one job", func() { w.job(oldest) }, 40},
		{"the counts", func() {
			stats, err := w.client.Stats(w.ctx)
			if err != nil || len(stats) != 4 || !stats[0].Capped || stats[0].Ready != 10_000 || stats[3].Scheduled != 1 || stats[3].Running != 1 {
				t.Errorf("%+v, %v", stats, err)
			}
		}, 200_000},
		{"the queues", func() {
			if queues, err := w.client.Queues(w.ctx); err != nil || len(queues) != 4 {
				t.Errorf("%+v, %v", queues, err)
			}
		}, 500},
		{"the health", func() {
			if _, err := w.client.Health(w.ctx, queue.HealthLimits{}); err != nil {
				t.Error(err)
			}
		}, 8000},
		{"a step of a redrive", func() { w.many(queue.RedriveManyRequest{Limit: 50}) }, 8000},
		{"a dry run over all dead letters", func() { w.many(queue.RedriveManyRequest{Limit: 1_000_000, DryRun: true, RequestID: "dry"}) }, 40 * jobs / 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.do() // the plan is made, and catalogues are read
			began := time.Now()
			got := w.work(c.do)
			t.Logf("%d pages, %d entries, %d rows without an index, %s", got.pages, got.entries, got.scanned, time.Since(began).Round(time.Microsecond))
			if got.pages > c.most || got.entries > c.most {
				t.Errorf("%d pages were touched and %d entries read, want at most %d", got.pages, got.entries, c.most)
			}
			if got.scanned > 0 {
				t.Errorf("%d rows were read without an index", got.scanned)
			}
		})
	}

	// A queue that had few jobs when the statistics were made, and has many now.
	w.burst(jobs / 4)
	for name, do := range map[string]func(){
		"counts": func() {
			if stats, err := w.client.Stats(w.ctx); err != nil || len(stats) != 5 || stats[0].Ready != 10_000 {
				t.Errorf("%+v, %v", stats, err)
			}
		},
		"a list": func() { first(queue.JobFilter{State: queue.StateReady, Queue: "burst", Since: time.Now()})() },
	} {
		if got := w.work(do); got.entries > 150_000 || got.scanned > 0 {
			t.Errorf("%s beside a burst: %+v", name, got)
		} else {
			t.Logf("%s beside a burst: %+v", name, got)
		}
	}
	fmt.Fprintln(t.Output(), "the table is big:", scan[string](w, `SELECT pg_size_pretty(pg_total_relation_size('onceq.job'))`))
}

// jobPage is how many jobs a page has.
const jobPage = 100
