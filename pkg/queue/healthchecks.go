package queue

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// What is late or large enough to be told of.
const (
	oldestServer    = 150000
	leaseGrace      = 15 * time.Second
	urgentGrace     = time.Minute
	slowGrace       = 20 * time.Minute
	deadRowsLimit   = 50_000
	bindingGrace    = time.Hour
	bindingsLimit   = 10_000
	sampledPages    = 200
	maxNamesInCheck = 5
)

func (d *doctor) server(ctx context.Context) error {
	row, err := d.q.DoctorServer(ctx)
	if err != nil {
		return err
	}
	d.facts = row
	d.health.ServerVersion, d.health.Role = row.Version, row.Role
	if row.VersionNum < oldestServer {
		d.add(CheckServerVersion, SeverityCritical, "Upgrade the server.", "PostgreSQL %s; 15 or newer is needed", row.Version)
	} else {
		d.ok(CheckServerVersion, "PostgreSQL %s", row.Version)
	}
	if row.ReadOnly {
		d.add(CheckReadOnly, SeverityCritical, "Connect to the primary. If this is the primary, look at default_transaction_read_only.",
			"the server is a standby or read-only: nothing can be enqueued or worked")
	} else {
		d.ok(CheckReadOnly, "the server takes writes")
	}
	return nil
}

func (d *doctor) version(ctx context.Context) error {
	present, err := d.q.HasVersionTable(ctx)
	var version int64
	if err == nil && present {
		version, err = d.q.SchemaVersion(ctx)
	}
	if err != nil {
		return d.unanswered(err, CheckSchemaOutdated, CheckSchemaNewer)
	}
	d.health.SchemaVersion, d.noTables = version, version == 0
	switch {
	case version == 0:
		d.add(CheckSchemaOutdated, SeverityCritical, "Run `onceq migrate up`, or check --schema and the database's name.", "schema %q has no tables of onceq", d.schema)
	case version < requiredSchema:
		d.add(CheckSchemaOutdated, SeverityCritical, "Run `onceq migrate up`.", "the schema is at version %d, and this program needs %d", version, requiredSchema)
	default:
		d.ok(CheckSchemaOutdated, "the schema is at version %d, as needed", version)
	}
	if version > requiredSchema {
		d.add(CheckSchemaNewer, SeverityNotice, "Nothing breaks: this is how an upgrade begins. Upgrade this program when you can.",
			"the schema is at version %d, and this program knows %d", version, requiredSchema)
	} else {
		d.ok(CheckSchemaNewer, "the schema is no newer than this program")
	}
	return nil
}

func (d *doctor) privileges(ctx context.Context) error {
	if d.missing(CheckPrivileges) {
		return nil
	}
	rows, err := d.q.DoctorPrivileges(ctx, d.schema)
	if err != nil {
		return err
	}
	var unread, unwritten []string
	for _, row := range rows {
		if !row.Reads {
			unread = append(unread, row.Name)
		}
		if !row.Writes {
			unwritten = append(unwritten, row.Name)
		}
	}
	const advice = "This is as it should be for a producer or a reader. docs/operations.md and docs/grants.sql have the rights of each role."
	switch {
	case len(rows) > 0 && len(unread) == len(rows):
		d.add(CheckPrivileges, SeverityCritical, "Grant the role what docs/operations.md lists.", "role %q may not read any of the tables", d.facts.Role)
	case len(unread) > 0:
		d.add(CheckPrivileges, SeverityNotice, advice, "role %q has no right to read %s", d.facts.Role, strings.Join(unread, ", "))
	case len(unwritten) > 0:
		d.add(CheckPrivileges, SeverityNotice, advice, "role %q has rights to read every table and none to write %s", d.facts.Role, strings.Join(unwritten, ", "))
	default:
		d.ok(CheckPrivileges, "role %q has rights to read and write every table", d.facts.Role)
	}
	return nil
}

func (d *doctor) leases(ctx context.Context) error {
	if d.missing(CheckExpiredLeases) {
		return nil
	}
	row, err := d.q.DoctorLeases(ctx, leaseGrace.Microseconds())
	switch {
	case err != nil:
		return d.unanswered(err, CheckExpiredLeases)
	case row.Expired > 0:
		d.add(CheckExpiredLeases, SeverityWarning, "Their workers are gone and nobody takes the jobs back. Start a worker, or run `onceq maintain`.",
			"%d running jobs have an expired lease, the oldest for %s", row.Expired, lasting(row.OldestUs))
	default:
		d.ok(CheckExpiredLeases, "no running job has an expired lease")
	}
	return nil
}

func (d *doctor) upkeep(ctx context.Context) error {
	if d.missing(CheckMaintenanceLate) {
		return nil
	}
	rows, err := d.q.DoctorUpkeep(ctx)
	if err != nil {
		return d.unanswered(err, CheckMaintenanceLate)
	}
	late := map[string]int64{}
	for _, row := range rows {
		late[row.Name] = row.LateUs
	}
	_, begun := late[urgentTurn]
	const advice = "Workers do it by themselves: start one, or run `onceq maintain` regularly. If workers run, read their logs for \"maintenance\"."
	switch {
	case !begun:
		d.add(CheckMaintenanceLate, SeverityNotice, advice, "no maintenance has run here yet")
	case late[urgentTurn] > urgentGrace.Microseconds():
		d.add(CheckMaintenanceLate, SeverityWarning, advice, "nobody has looked for expired leases and deadlines for %s", lasting(late[urgentTurn]))
	case late[slowTurn] > slowGrace.Microseconds():
		d.add(CheckMaintenanceLate, SeverityWarning, advice, "the removal of expired bindings and old jobs is %s late", lasting(late[slowTurn]))
	default:
		d.ok(CheckMaintenanceLate, "maintenance runs when it is due")
	}
	return nil
}

func (d *doctor) queues(ctx context.Context) error {
	if d.missing(CheckUnclaimedWork, CheckPausedWithWork) {
		return nil
	}
	rows, err := d.q.DoctorQueues(ctx)
	if err != nil {
		return d.unanswered(err, CheckUnclaimedWork, CheckPausedWithWork)
	}
	var unclaimed, paused []string
	for _, row := range rows {
		waits := fmt.Sprintf("%q for %s", row.Name, lasting(row.OldestUs))
		if row.Paused {
			paused = append(paused, waits)
		} else if !row.Runs && row.OldestUs > d.limits.Unclaimed.Microseconds() {
			unclaimed = append(unclaimed, waits)
		}
	}
	if len(unclaimed) > 0 {
		d.add(CheckUnclaimedWork, SeverityWarning, "Start a worker for the queue, and see that it handles the types of the jobs (`onceq jobs list --state ready`).",
			"jobs are ready and none of their queue is running: %s", some(unclaimed))
	} else {
		d.ok(CheckUnclaimedWork, "no queue has jobs that nobody claims")
	}
	if len(paused) > 0 {
		d.add(CheckPausedWithWork, SeverityWarning, "If the pause is no longer meant: `onceq queues resume NAME`.", "jobs are ready in paused queues: %s", some(paused))
	} else {
		d.ok(CheckPausedWithWork, "no paused queue has ready jobs")
	}
	return nil
}

func (d *doctor) snapshots(ctx context.Context) error {
	rows, err := d.q.DoctorSnapshots(ctx, d.limits.OldTransaction.Microseconds())
	if err != nil {
		return d.unanswered(err, CheckOldSnapshot)
	}
	var names []string
	for _, row := range rows {
		name := row.Name
		if row.AgeUs > 0 {
			name += " for " + lasting(row.AgeUs)
		}
		names = append(names, map[string]string{"session": "", "prepared": "prepared transaction ", "slot": "idle replication slot "}[row.Kind]+name)
	}
	switch {
	case len(rows) > 0:
		d.add(CheckOldSnapshot, SeverityWarning, "Vacuum can't remove what was deleted since, and the tables grow. End the session (SELECT pg_terminate_backend(pid)), the prepared transaction (ROLLBACK PREPARED) or the slot, and consider idle_in_transaction_session_timeout.",
			"open transactions hold back vacuum: %s", some(names))
	case !d.facts.SeesSessions:
		d.add(CheckOldSnapshot, SeverityUnknown, fmt.Sprintf("GRANT pg_read_all_stats TO %q shows them.", d.facts.Role), "can't be told: role %q may not look at the sessions of others", d.facts.Role)
	default:
		d.ok(CheckOldSnapshot, "no transaction has been open for more than %s", lasting(d.limits.OldTransaction.Microseconds()))
	}
	return nil
}

func (d *doctor) tables(ctx context.Context) error {
	if d.facts.Autovacuum {
		d.ok(CheckAutovacuumOff, "autovacuum is on")
	} else {
		d.add(CheckAutovacuumOff, SeverityWarning, "Set autovacuum and track_counts to on, and reload the server.", "autovacuum is off: tables whose rows come and go grow without end")
	}
	if d.missing(CheckBloat) {
		return nil
	}
	rows, err := d.q.DoctorTables(ctx, d.schema)
	if err != nil {
		return err
	}
	var bloated []string
	for _, row := range rows {
		if row.Dead < deadRowsLimit || row.Dead < row.Live {
			continue
		}
		text := fmt.Sprintf("%s has %d dead rows and %d live ones, and was never vacuumed", row.Name, row.Dead, row.Live)
		if row.VacuumedUs >= 0 {
			text = fmt.Sprintf("%s has %d dead rows and %d live ones, and was vacuumed %s ago", row.Name, row.Dead, row.Live, lasting(row.VacuumedUs))
		}
		bloated = append(bloated, text)
	}
	if len(bloated) > 0 {
		d.add(CheckBloat, SeverityWarning, fmt.Sprintf("Look at old_snapshot and autovacuum_off first; then run VACUUM on the table in schema %q.", d.schema), "%s", some(bloated))
	} else {
		d.ok(CheckBloat, "pending, running and binding have few dead rows")
	}
	return nil
}

func (d *doctor) bindings(ctx context.Context) error {
	if d.missing(CheckExpiredBindings) {
		return nil
	}
	row, err := d.q.DoctorBindings(ctx, bindingGrace.Microseconds())
	if err != nil {
		return d.unanswered(err, CheckExpiredBindings)
	}
	expired := row.Expired * row.Pages / min(row.Pages, sampledPages)
	if expired >= bindingsLimit {
		d.add(CheckExpiredBindings, SeverityWarning, "Maintenance doesn't keep up: look at maintenance_late; `onceq maintain` removes them.",
			"about %d bindings expired more than %s ago and are still there; their keys are free all the same", expired, lasting(bindingGrace.Microseconds()))
	} else {
		d.ok(CheckExpiredBindings, "expired bindings are removed")
	}
	return nil
}

func (d *doctor) indexes(ctx context.Context) error {
	names, err := d.q.DoctorIndexes(ctx, d.schema)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		d.add(CheckInvalidIndex, SeverityWarning, fmt.Sprintf("Run REINDEX INDEX CONCURRENTLY on each in schema %q.", d.schema), "indexes are invalid and not used: %s", some(names))
	} else {
		d.ok(CheckInvalidIndex, "every index is valid")
	}
	return nil
}

// lasting is microseconds as people say them.
func lasting(us int64) string {
	d := time.Duration(us) * time.Microsecond
	if d >= 48*time.Hour {
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
	if d < time.Second {
		return d.String()
	}
	return d.Round(time.Second).String()
}

// some are the first names of a list, and how many more there are.
func some(names []string) string {
	if len(names) <= maxNamesInCheck {
		return strings.Join(names, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(names[:maxNamesInCheck], "; "), len(names)-maxNamesInCheck)
}
