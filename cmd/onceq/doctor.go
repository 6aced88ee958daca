package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/onceq/onceq/pkg/queue"
)

// checkUnreachable is the command's own: the library can't be asked without a
// connection.
const checkUnreachable queue.CheckName = "unreachable"

// diagnosis is the answer of doctor in JSON.
type diagnosis struct {
	*place
	Severity      queue.Severity `json:"severity"`
	ServerVersion string         `json:"server_version,omitempty"`
	Role          string         `json:"role,omitempty"`
	SchemaVersion int64          `json:"schema_version"`
	NeededVersion int64          `json:"needed_version,omitempty"`
	Checks        []checkJSON    `json:"checks"`
}

type checkJSON struct {
	Name     queue.CheckName `json:"check"`
	Severity queue.Severity  `json:"severity"`
	Summary  string          `json:"summary"`
	Advice   string          `json:"advice,omitempty"`
}

func (a *app) doctorCommand() *cobra.Command {
	var limits queue.HealthLimits
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find what keeps the queue from working, or will",
		Long: `doctor asks the database whether the queue can work, and looks for what will
hurt it later: expired leases, late maintenance, old transactions, bloat and
more. It says what each finding means and what to do. It changes and locks
nothing.

A check is ok; unknown, when the role has no right to find out; a notice, which
may be meant; a warning; or critical, when the queue can't work.
docs/operations.md explains each check.

Exit codes: 0 nothing worse than a notice, 6 warnings, 7 something critical,
such as a database out of reach; 2 wrong usage.`,
		Example: "  onceq doctor\n  onceq doctor --json | jq '.checks[] | select(.severity != \"ok\")'",
		Args:    cobra.NoArgs,
		RunE:    a.command(func(cmd *cobra.Command) error { return a.doctor(cmd.Context(), limits) }),
	}
	flags := cmd.Flags()
	flags.DurationVar(&limits.OldTransaction, "old-transaction", 5*time.Minute, "how long a transaction may be\nopen")
	flags.DurationVar(&limits.Unclaimed, "unclaimed", 5*time.Minute, "how long a job may be ready while\nnone of its queue runs")
	return cmd
}

func (a *app) doctor(ctx context.Context, limits queue.HealthLimits) error {
	var where *place
	var health queue.Health
	err := a.connected(ctx, func(client *queue.Client, at place) (err error) {
		where = &at
		health, err = client.Health(ctx, limits)
		return err
	})
	switch {
	case err != nil && (a.isMisuse(err) || ctx.Err() != nil):
		return err
	case err != nil:
		health.Checks = []queue.Check{{Name: checkUnreachable, Severity: queue.SeverityCritical, Summary: oneLine(err),
			Advice: "Is the server running, is the URL right, and may this machine and role connect?"}}
	default:
		reached := queue.Check{Name: checkUnreachable, Severity: queue.SeverityOK, Summary: "the database answers"}
		health.Checks = append([]queue.Check{reached}, health.Checks...)
	}
	if err := a.tell(where, health); err != nil {
		return err
	}
	switch health.Severity() {
	case queue.SeverityCritical:
		return exitCode(exitCritical)
	case queue.SeverityWarning:
		return exitCode(exitWarning)
	}
	return nil
}

func (a *app) tell(where *place, h queue.Health) error {
	if a.json {
		d := diagnosis{place: where, Severity: h.Severity(), ServerVersion: h.ServerVersion, Role: h.Role,
			SchemaVersion: h.SchemaVersion, NeededVersion: h.NeededVersion}
		for _, c := range h.Checks {
			d.Checks = append(d.Checks, checkJSON(c))
		}
		return a.writeJSON(d)
	}
	if where != nil {
		fmt.Fprintln(a.stdout, where)
	}
	t := a.newTable()
	a.wrap(t, 3, 40)
	for _, c := range h.Checks {
		t.AppendRow(table.Row{a.severity(c.Severity), c.Name, clean(c.Summary)})
	}
	t.Render()
	a.advise(h.Checks)
	return nil
}

// advise says what to do about the checks, once for those that want the same.
func (a *app) advise(checks []queue.Check) {
	var order []string
	names := map[string][]string{}
	for _, c := range checks {
		if c.Advice == "" {
			continue
		}
		if names[c.Advice] == nil {
			order = append(order, c.Advice)
		}
		names[c.Advice] = append(names[c.Advice], string(c.Name))
	}
	for _, advice := range order {
		fmt.Fprintf(a.stdout, "\n%s\n  %s\n", strings.Join(names[advice], ", "), clean(advice))
	}
}

func (a *app) severity(s queue.Severity) string {
	return a.paint(string(s), map[queue.Severity]text.Color{
		queue.SeverityOK: text.FgGreen, queue.SeverityUnknown: text.Faint, queue.SeverityNotice: text.FgCyan,
		queue.SeverityWarning: text.FgYellow, queue.SeverityCritical: text.FgRed,
	}[s])
}
