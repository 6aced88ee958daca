package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onceq/onceq/db"
)

// Severity grades a check; they are declared from the best to the worst.
type Severity string

const (
	SeverityOK Severity = "ok"
	// SeverityUnknown tells that the role has no right to find out.
	SeverityUnknown Severity = "unknown"
	// SeverityNotice is worth knowing and may be meant.
	SeverityNotice Severity = "notice"
	// SeverityWarning needs a person soon: something is late or grows.
	SeverityWarning Severity = "warning"
	// SeverityCritical tells that the queue can't work.
	SeverityCritical Severity = "critical"
)

var severities = []Severity{SeverityOK, SeverityUnknown, SeverityNotice, SeverityWarning, SeverityCritical}

// CheckName names a check for good: docs/operations.md explains each.
type CheckName string

// The checks in the order in which they are made.
const (
	CheckServerVersion   CheckName = "server_version"
	CheckReadOnly        CheckName = "read_only"
	CheckSchemaOutdated  CheckName = "schema_outdated"
	CheckSchemaNewer     CheckName = "schema_newer"
	CheckPrivileges      CheckName = "privileges"
	CheckExpiredLeases   CheckName = "expired_leases"
	CheckMaintenanceLate CheckName = "maintenance_late"
	CheckUnclaimedWork   CheckName = "unclaimed_work"
	CheckPausedWithWork  CheckName = "paused_with_work"
	CheckOldSnapshot     CheckName = "old_snapshot"
	CheckAutovacuumOff   CheckName = "autovacuum_off"
	CheckBloat           CheckName = "bloat"
	CheckExpiredBindings CheckName = "expired_bindings"
	CheckInvalidIndex    CheckName = "invalid_index"
)

// Check is one question about the queue's health and its answer.
type Check struct {
	Name     CheckName
	Severity Severity
	// Summary says what was found: numbers, ages, names of queues, tables and
	// sessions; never a key, a payload or a session's query.
	Summary string
	// Advice says what to do about it; empty when all is well.
	Advice string
}

// Health is the answer to every check.
type Health struct {
	ServerVersion string
	// Role is whom PostgreSQL takes this client for.
	Role string
	// SchemaVersion is the newest migration applied, 0 for none, and NeededVersion
	// the one that this version of the library needs.
	SchemaVersion, NeededVersion int64
	Checks                       []Check
}

// Severity is the worst of the checks'.
func (h Health) Severity() Severity {
	worst := 0
	for _, check := range h.Checks {
		worst = max(worst, slices.Index(severities, check.Severity))
	}
	return severities[worst]
}

// HealthLimits says from when on Health warns of what may be meant. The zero value
// is useful.
type HealthLimits struct {
	// OldTransaction is for how long a transaction may be open: 1 ms to 365 days.
	// Zero is 5 minutes.
	OldTransaction time.Duration
	// Unclaimed is for how long a job may be ready while none of its queue runs: 1
	// ms to 365 days. Zero is 5 minutes.
	Unclaimed time.Duration
}

const defaultHealthLimit = 5 * time.Minute

// Health looks whether the queue can work, and for what will hurt it later. It
// changes and locks nothing, and is cheap with millions of rows. A role that may
// read all tables gets every answer but old_snapshot, for which PostgreSQL wants
// pg_read_all_stats (a part of pg_monitor); what a role has no right to find out
// is SeverityUnknown. An error tells that the database could not be asked, or
// wraps ErrInvalidRequest.
func (c *Client) Health(ctx context.Context, limits HealthLimits) (Health, error) {
	limits.OldTransaction = orDefault(limits.OldTransaction, defaultHealthLimit)
	limits.Unclaimed = orDefault(limits.Unclaimed, defaultHealthLimit)
	var wrong problems
	wrong.duration("OldTransaction", limits.OldTransaction)
	wrong.duration("Unclaimed", limits.Unclaimed)
	if err := wrong.err(); err != nil {
		return Health{}, fmt.Errorf("queue: health: %w", err)
	}
	d := doctor{q: c.fresh, schema: c.schema, limits: limits, health: Health{NeededVersion: requiredSchema}}
	for _, step := range []func(context.Context) error{
		d.server, d.version, d.privileges, d.leases, d.upkeep, d.queues, d.snapshots, d.tables, d.bindings, d.indexes,
	} {
		if err := again(ctx, func() error { return step(ctx) }); err != nil {
			return Health{}, fmt.Errorf("queue: health: %w", classify(err))
		}
	}
	return d.health, nil
}

// doctor is one examination under way.
type doctor struct {
	q        *db.Queries
	schema   string
	limits   HealthLimits
	health   Health
	noTables bool // there is nothing to ask about
	facts    db.DoctorServerRow
}

func (d *doctor) add(name CheckName, severity Severity, advice, format string, args ...any) {
	d.health.Checks = append(d.health.Checks, Check{Name: name, Severity: severity, Summary: fmt.Sprintf(format, args...), Advice: advice})
}

func (d *doctor) ok(name CheckName, format string, args ...any) {
	d.add(name, SeverityOK, "", format, args...)
}

const (
	adviceSchema = "Look at schema_outdated first."
	adviceRights = "Run this as a role that may read all tables of the schema; docs/operations.md lists the rights of each role."
)

// unanswered notes that a question could not be answered, for want of tables or
// of rights, or passes on an error that ends the examination.
func (d *doctor) unanswered(err error, names ...CheckName) error {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return err
	}
	advice := ""
	switch refused.Code {
	case "42501": // insufficient_privilege
		advice = adviceRights
	case "42P01", "42703": // undefined_table, undefined_column
		advice = adviceSchema
	default:
		return err
	}
	for _, name := range names {
		d.add(name, SeverityUnknown, advice, "can't be told: %s", refused.Message)
	}
	return nil
}

// missing notes checks of tables that are not there.
func (d *doctor) missing(names ...CheckName) bool {
	if d.noTables {
		for _, name := range names {
			d.add(name, SeverityUnknown, adviceSchema, "there are no tables to look at")
		}
	}
	return d.noTables
}
