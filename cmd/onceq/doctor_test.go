package main

import (
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// diagnose runs doctor with --json and returns what it says of each check.
func (s *transcript) diagnose(code int, url string, args ...string) map[queue.CheckName]checkJSON {
	s.t.Helper()
	c := newCommand(s.t, url, append([]string{"doctor", "--json"}, args...)...).ends(s.t, code)
	var d struct{ Checks []checkJSON }
	if err := json.Unmarshal(c.stdout.Bytes(), &d); err != nil {
		s.t.Fatalf("no JSON: %v\n%s", err, c.stdout.String())
	}
	checks := map[queue.CheckName]checkJSON{}
	for _, check := range d.Checks {
		checks[check.Name] = check
		if (check.Severity == queue.SeverityOK) != (check.Advice == "") {
			s.t.Errorf("%s is %s and advises %q", check.Name, check.Severity, check.Advice)
		}
	}
	return checks
}

// expect holds a diagnosis to the checks that are not ok.
func expect(t *testing.T, got map[queue.CheckName]checkJSON, want map[queue.CheckName]queue.Severity) {
	t.Helper()
	for name, check := range got {
		severity := queue.SeverityOK
		if s, ok := want[name]; ok {
			severity = s
		}
		if check.Severity != severity {
			t.Errorf("%s is %s, want %s: %s", name, check.Severity, severity, check.Summary)
		}
	}
	for name := range want {
		if _, ok := got[name]; !ok {
			t.Errorf("there is no check %s", name)
		}
	}
}

func TestDoctorOfAHealthyQueue(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	s.open()
	s.run(exitOK, "maintain")
	s.text.Reset()
	s.run(exitOK, "doctor")
	s.run(exitOK, "doctor", "--json")
	s.golden("doctor_healthy.txt")
}

func TestDoctorFindings(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	shop := s.open()
	s.run(exitOK, "maintain")
	s.text.Reset()
	s.exec(`INSERT INTO onceq.running (claimed_at, lease_until, job_id, fence, attempt, queue, worker_id)
		SELECT clock_timestamp() - interval '3 h', clock_timestamp() - interval '2 h', gen_random_uuid(), 1, 1, 'imports', 'gone' FROM generate_series(1, 3)`)
	s.exec("UPDATE onceq.upkeep SET due_at = clock_timestamp() - interval '2 h'")
	s.wait("%", "2 h")
	s.run(exitOK, "queues", "pause", "mail")
	s.text.Reset()
	s.exec("ALTER TABLE onceq.binding SET (autovacuum_enabled = off)")
	// A look in the middle of this may not meet a half-made state, so it is done
	// before anything is asked: old rows that died, and old bindings that are left.
	s.exec(`INSERT INTO onceq.binding (accepted_at, expires_at, job_id, mode, key_hash, scope, fingerprint)
		SELECT clock_timestamp() - interval '3 h', clock_timestamp() - interval '2 h', gen_random_uuid(), 1, sha256(n::text::bytea), 's', ''
		FROM generate_series(1, 90000) AS n`)
	s.exec("DELETE FROM onceq.binding WHERE key_hash IN (SELECT key_hash FROM onceq.binding WHERE mode = 1 LIMIT 60000)")
	s.pool.Reset() // sessions tell their statistics when they end
	await(t, s.pool, "SELECT n_dead_tup >= 60000 FROM pg_stat_user_tables WHERE schemaname = 'onceq' AND relname = 'binding'")
	s.exec("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'onceq.pending_deadline_idx'::regclass")
	tx, err := s.pool.BeginTx(t.Context(), pgx.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), "SET LOCAL application_name = 'report'; SELECT pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	s.run(exitWarning, "doctor", "--old-transaction", "1ms")
	expect(t, s.diagnose(exitWarning, s.url(), "--old-transaction", "1ms"), map[queue.CheckName]queue.Severity{
		queue.CheckExpiredLeases: queue.SeverityWarning, queue.CheckMaintenanceLate: queue.SeverityWarning,
		queue.CheckUnclaimedWork: queue.SeverityWarning, queue.CheckPausedWithWork: queue.SeverityWarning,
		queue.CheckOldSnapshot: queue.SeverityWarning, queue.CheckBloat: queue.SeverityWarning,
		queue.CheckExpiredBindings: queue.SeverityWarning, queue.CheckInvalidIndex: queue.SeverityWarning,
	})
	text := regexp.MustCompile(`pid \d+`).ReplaceAllString(s.text.String(), "pid 4711")
	text = regexp.MustCompile(`about \d{5} bindings`).ReplaceAllString(text, "about 30000 bindings")
	text = regexp.MustCompile(`2h0m\d+s`).ReplaceAllString(text, "2h0m0s")
	text = regexp.MustCompile(`transaction for [^\s;]+`).ReplaceAllString(text, "transaction for 9m0s")
	text = regexp.MustCompile(`has 6\d{4} dead rows and \d+ live ones`).ReplaceAllString(text, "has 60000 dead rows and 30000 live ones")
	s.text.Reset()
	s.text.WriteString(text)
	s.golden("doctor_findings.txt")

	// What can be mended by the advice, is.
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.exec("UPDATE pg_index SET indisvalid = true WHERE indexrelid = 'onceq.pending_deadline_idx'::regclass")
	s.exec("DELETE FROM onceq.running")
	newCommand(t, s.url(), "maintain").ends(t, exitOK)
	newCommand(t, s.url(), "queues", "resume", "mail").ends(t, exitOK)
	newCommand(t, s.url(), "purge", "--job", string(shop.ready), "--all", "--yes").ends(t, exitUsage)
	newCommand(t, s.url(), "purge", "--queue", "mail", "--yes").ends(t, exitOK)
	s.exec("DELETE FROM onceq.pending")
	s.exec("VACUUM onceq.binding")
	await(t, s.pool, "SELECT n_dead_tup < 1000 FROM pg_stat_user_tables WHERE schemaname = 'onceq' AND relname = 'binding'")
	expect(t, s.diagnose(exitOK, s.url(), "--old-transaction", "1h"), nil)
}

func TestDoctorWithoutATable(t *testing.T) {
	t.Parallel()
	s := &transcript{t: t, pool: pgtest.NewEmpty(t)}
	s.run(exitCritical, "doctor")
	s.run(exitOK, "migrate", "up")
	s.text.Reset()
	s.run(exitCritical, "doctor", "--schema", "elsewhere")
	s.golden("doctor_no_tables.txt")
	s.exec("DELETE FROM onceq.goose_version WHERE version_id = (SELECT max(version_id) FROM onceq.goose_version)")
	expect(t, s.diagnose(exitCritical, s.url()), map[queue.CheckName]queue.Severity{
		queue.CheckSchemaOutdated: queue.SeverityCritical, queue.CheckMaintenanceLate: queue.SeverityNotice})
	s.exec("INSERT INTO onceq.goose_version (version_id, is_applied) VALUES (9999, true)")
	expect(t, s.diagnose(exitOK, s.url()), map[queue.CheckName]queue.Severity{
		queue.CheckSchemaNewer: queue.SeverityNotice, queue.CheckMaintenanceLate: queue.SeverityNotice})
	s.exec("ALTER DATABASE " + s.pool.Config().ConnConfig.Database + " SET default_transaction_read_only = on")
	expect(t, s.diagnose(exitCritical, s.url()), map[queue.CheckName]queue.Severity{
		queue.CheckReadOnly: queue.SeverityCritical, queue.CheckSchemaNewer: queue.SeverityNotice, queue.CheckMaintenanceLate: queue.SeverityNotice})
}

func TestDoctorUnreachable(t *testing.T) {
	t.Parallel()
	c := newCommand(t, nowhere, "doctor").ends(t, exitCritical)
	if text := c.stdout.String(); !strings.HasPrefix(text, "critical unreachable ") || !strings.Contains(text, "\n\nunreachable\n  Is the server running") || c.stderr.Len() > 0 {
		t.Errorf("stdout says:\n%s\nstderr says:\n%s", text, c.stderr.String())
	}
	s := &transcript{t: t}
	if got := s.diagnose(exitCritical, nowhere); got[checkUnreachable].Severity != queue.SeverityCritical || len(got) != 1 {
		t.Errorf("the checks are %+v", got)
	}
	newCommand(t, "", "doctor").ends(t, exitUsage)
	newCommand(t, nowhere, "doctor", "--old-transaction", "soon").ends(t, exitUsage)
	newCommand(t, pgtest.URL(t), "doctor", "--old-transaction", "1us").ends(t, exitUsage).oneError(t, "OldTransaction: 1µs; allowed are 1ms to 365 days")
}

// A role with few rights learns what it can't be told, and nothing fails.
func TestDoctorWithoutRights(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	role := s.pool.Config().ConnConfig.Database + "_reader"
	s.exec("CREATE ROLE " + role + " LOGIN PASSWORD 'hunter2-password'")
	t.Cleanup(func() { dropRole(t, s.pool, role) })
	address, err := url.Parse(s.url())
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword(role, "hunter2-password")
	late := queue.SeverityNotice // nothing has run here

	all := []queue.CheckName{queue.CheckExpiredLeases, queue.CheckMaintenanceLate, queue.CheckUnclaimedWork, queue.CheckPausedWithWork, queue.CheckExpiredBindings}
	none := map[queue.CheckName]queue.Severity{queue.CheckSchemaOutdated: queue.SeverityUnknown, queue.CheckSchemaNewer: queue.SeverityUnknown,
		queue.CheckPrivileges: queue.SeverityCritical, queue.CheckOldSnapshot: queue.SeverityUnknown}
	for _, name := range all {
		none[name] = queue.SeverityUnknown
	}
	expect(t, s.diagnose(exitCritical, address.String()), none)

	s.exec("GRANT USAGE ON SCHEMA onceq TO " + role + "; GRANT SELECT ON ALL TABLES IN SCHEMA onceq TO " + role)
	got := s.diagnose(exitOK, address.String())
	expect(t, got, map[queue.CheckName]queue.Severity{
		queue.CheckPrivileges: queue.SeverityNotice, queue.CheckOldSnapshot: queue.SeverityUnknown, queue.CheckMaintenanceLate: late})

	s.exec("REVOKE SELECT ON onceq.upkeep, onceq.running FROM " + role)
	some := map[queue.CheckName]queue.Severity{queue.CheckPrivileges: queue.SeverityNotice, queue.CheckOldSnapshot: queue.SeverityUnknown}
	for _, name := range slices.DeleteFunc(slices.Clone(all), func(n queue.CheckName) bool { return n == queue.CheckExpiredBindings }) {
		some[name] = queue.SeverityUnknown
	}
	got = s.diagnose(exitOK, address.String())
	expect(t, got, some)
	if summary := got[queue.CheckPrivileges].Summary; !strings.HasSuffix(summary, "has no right to read running, upkeep") {
		t.Errorf("privileges says %q", summary)
	}
	s.exec("GRANT SELECT ON ALL TABLES IN SCHEMA onceq TO " + role + "; GRANT pg_read_all_stats TO " + role)
	expect(t, s.diagnose(exitOK, address.String()), map[queue.CheckName]queue.Severity{queue.CheckPrivileges: queue.SeverityNotice, queue.CheckMaintenanceLate: late})
}
