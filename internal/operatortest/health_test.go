package operatortest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
	"github.com/onceq/onceq/schema"
)

// bad are the checks that are not ok.
func (w *world) bad(limits queue.HealthLimits) map[queue.CheckName]queue.Severity {
	w.t.Helper()
	health, err := w.client.Health(w.ctx, limits)
	if err != nil {
		w.t.Fatal(err)
	}
	bad := map[queue.CheckName]queue.Severity{}
	for _, check := range health.Checks {
		if check.Summary == "" || (check.Advice == "") != (check.Severity == queue.SeverityOK) {
			w.t.Errorf("%+v must have a summary, and an advice unless it is ok", check)
		}
		if check.Severity != queue.SeverityOK {
			bad[check.Name] = check.Severity
		}
	}
	return bad
}

func (w *world) wantBad(limits queue.HealthLimits, want map[queue.CheckName]queue.Severity) {
	w.t.Helper()
	if want == nil {
		want = map[queue.CheckName]queue.Severity{}
	}
	if diff := cmp.Diff(want, w.bad(limits)); diff != "" {
		w.t.Errorf("the checks that are not ok (-want +got):\n%s", diff)
	}
}

func TestHealth_knowsWhatIsMeant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.maintain()
	w.accept(queue.Request{Queue: "later", RunAt: time.Now().Add(time.Hour)})
	if err := w.client.PauseQueue(w.ctx, "later"); err != nil {
		t.Fatal(err)
	}
	// Expired bindings of debounced jobs that wait are kept on purpose.
	w.exec(`INSERT INTO onceq.binding (accepted_at, expires_at, job_id, mode, key_hash, scope, fingerprint)
		SELECT now() - interval '3 hours', now() - interval '2 hours', gen_random_uuid(), 2, sha256(n::text::bytea), 's', '' FROM generate_series(1, 20000) AS n`)
	// A lease that has just expired is not late, nor is a job that has just become ready.
	running := w.accept(queue.Request{Queue: "now"})
	w.start(running)
	w.exec(`UPDATE onceq.running SET lease_until = clock_timestamp()`)
	w.accept(queue.Request{Queue: "idle"})
	w.wantBad(queue.HealthLimits{}, nil)
}

func TestHealth_unclaimed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.maintain()
	w.accept(queue.Request{Queue: "a"})
	w.start(w.accept(queue.Request{Queue: "b"}))
	w.accept(queue.Request{Queue: "b", Priority: 100})
	w.exec(`WITH old AS (UPDATE onceq.job SET run_at = run_at - interval '10 minutes', accepted_at = accepted_at - interval '10 minutes' RETURNING id)
		UPDATE onceq.pending SET ready_at = ready_at - interval '10 minutes' FROM old WHERE id = job_id`)
	w.wantBad(queue.HealthLimits{}, map[queue.CheckName]queue.Severity{queue.CheckUnclaimedWork: queue.SeverityWarning})
	w.wantBad(queue.HealthLimits{Unclaimed: time.Hour}, nil)
	health, err := w.client.Health(w.ctx, queue.HealthLimits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range health.Checks {
		if check.Name == queue.CheckUnclaimedWork && (!strings.Contains(check.Summary, `"a" for 10m`) || strings.Contains(check.Summary, `"b"`)) {
			t.Errorf("only queue a has nobody, got: %s", check.Summary)
		}
	}
	if err := w.client.PauseQueue(w.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	w.wantBad(queue.HealthLimits{}, map[queue.CheckName]queue.Severity{queue.CheckPausedWithWork: queue.SeverityWarning})
}

// A transaction counts when it holds a snapshot or has written, of this database
// alone, and never the one that asks.
func TestHealth_oldTransactions(t *testing.T) {
	t.Parallel()
	w, other := newWorld(t), newWorld(t)
	w.maintain()
	other.maintain()
	limits := queue.HealthLimits{OldTransaction: time.Millisecond}
	tx, err := w.pool.BeginTx(w.ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(w.ctx)
	if _, err := tx.Exec(w.ctx, "SELECT pg_sleep(0.002) FROM onceq.job UNION ALL SELECT pg_sleep(0.002)"); err != nil {
		t.Fatal(err)
	}
	w.wantBad(limits, map[queue.CheckName]queue.Severity{queue.CheckOldSnapshot: queue.SeverityWarning})
	w.wantBad(queue.HealthLimits{OldTransaction: time.Hour}, nil)
	other.wantBad(limits, nil)
}

func TestHealth_elsewhere(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	if err := schema.Migrate(t.Context(), pool, schema.Named("tenant_a")); err != nil {
		t.Fatal(err)
	}
	w := worldOf(t, pool, queue.Config{Schema: "tenant_a"})
	w.maintain()
	w.exec(`UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'onceq.pending_deadline_idx'::regclass`)
	w.exec(`INSERT INTO onceq.running (claimed_at, lease_until, job_id, fence, attempt, queue, worker_id) VALUES (now(), now() - interval '1 hour', gen_random_uuid(), 1, 1, 'q', 'w')`)
	w.wantBad(queue.HealthLimits{}, nil)
	w.exec(`INSERT INTO tenant_a.running (claimed_at, lease_until, job_id, fence, attempt, queue, worker_id) VALUES (now(), now() - interval '1 hour', gen_random_uuid(), 1, 1, 'q', 'w')`)
	w.wantBad(queue.HealthLimits{}, map[queue.CheckName]queue.Severity{queue.CheckExpiredLeases: queue.SeverityWarning})
}

func TestHealth_refuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.client.Health(w.ctx, queue.HealthLimits{OldTransaction: time.Microsecond, Unclaimed: -time.Second})
	if !errors.Is(err, queue.ErrInvalidRequest) || !strings.Contains(err.Error(), "OldTransaction: ") || !strings.Contains(err.Error(), "Unclaimed: ") {
		t.Errorf("both limits are out of bounds, got %v", err)
	}
	ended, cancel := context.WithCancel(w.ctx)
	cancel()
	if _, err := w.client.Health(ended, queue.HealthLimits{}); !errors.Is(err, context.Canceled) {
		t.Errorf("the context has ended, got %v", err)
	}
}

// An older schema lacks what a newer check asks for.
func TestHealth_withoutATable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.maintain()
	w.exec(`DELETE FROM onceq.goose_version WHERE version_id > 4`)
	w.exec(`DROP TABLE onceq.upkeep, onceq.queue`)
	w.wantBad(queue.HealthLimits{}, map[queue.CheckName]queue.Severity{
		queue.CheckSchemaOutdated: queue.SeverityCritical, queue.CheckMaintenanceLate: queue.SeverityUnknown,
		queue.CheckUnclaimedWork: queue.SeverityUnknown, queue.CheckPausedWithWork: queue.SeverityUnknown})
	w.exec(`DROP SCHEMA onceq CASCADE`)
	if bad := w.bad(queue.HealthLimits{}); bad[queue.CheckSchemaOutdated] != queue.SeverityCritical || bad[queue.CheckBloat] != queue.SeverityUnknown {
		t.Errorf("there are no tables, got %v", bad)
	}
}

// What is no matter of rights or of the schema ends the look with an error.
func TestHealth_fails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`ALTER TABLE onceq.running RENAME COLUMN lease_until TO lease_end`)
	w.exec(`ALTER TABLE onceq.running ADD COLUMN lease_until integer`)
	if _, err := w.client.Health(w.ctx, queue.HealthLimits{}); err == nil || !strings.Contains(err.Error(), "queue: health: ") {
		t.Errorf("a lease that is no time can't be compared, got %v", err)
	}
}

func TestHealth_severity(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ one, other, worst queue.Severity }{
		{queue.SeverityOK, queue.SeverityUnknown, queue.SeverityUnknown},
		{queue.SeverityNotice, queue.SeverityUnknown, queue.SeverityNotice},
		{queue.SeverityWarning, queue.SeverityNotice, queue.SeverityWarning},
		{queue.SeverityWarning, queue.SeverityCritical, queue.SeverityCritical},
	} {
		for _, checks := range [][]queue.Check{{{Severity: tt.one}, {Severity: tt.other}}, {{Severity: tt.other}, {Severity: tt.one}}} {
			if got := (queue.Health{Checks: checks}).Severity(); got != tt.worst {
				t.Errorf("the worst of %s and %s is %s, want %s", tt.one, tt.other, got, tt.worst)
			}
		}
	}
	if got := (queue.Health{}).Severity(); got != queue.SeverityOK {
		t.Errorf("no checks are %s", got)
	}
}

// Each role is told what its rights let it know, and nothing fails.
func TestHealth_roles(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	c.maintain()
	noSessions := map[queue.CheckName]queue.Severity{queue.CheckOldSnapshot: queue.SeverityUnknown}
	c.as(queue.Config{}, "worker").wantBad(queue.HealthLimits{}, noSessions)
	c.as(queue.Config{}, "operator").wantBad(queue.HealthLimits{}, noSessions)
	c.as(queue.Config{}, "reader").wantBad(queue.HealthLimits{}, map[queue.CheckName]queue.Severity{
		queue.CheckOldSnapshot: queue.SeverityUnknown, queue.CheckPrivileges: queue.SeverityNotice})
	c.as(queue.Config{}, "producer").wantBad(queue.HealthLimits{}, map[queue.CheckName]queue.Severity{
		queue.CheckOldSnapshot: queue.SeverityUnknown, queue.CheckPrivileges: queue.SeverityNotice,
		queue.CheckExpiredLeases: queue.SeverityUnknown, queue.CheckMaintenanceLate: queue.SeverityUnknown,
		queue.CheckUnclaimedWork: queue.SeverityUnknown, queue.CheckPausedWithWork: queue.SeverityUnknown,
	})
	if _, err := c.as(queue.Config{}, "reader").client.Queues(c.ctx); err != nil {
		t.Errorf("a reader lists the queues: %v", err)
	}
}
