package main

import (
	"context"
	"fmt"
	"os"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"golang.org/x/term"

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
	return &cobra.Command{
		Use:   "doctor",
		Short: "Find what keeps the queue from working, or will",
		Long: `doctor asks the database whether the queue can work, and looks for what will hurt
it later: expired leases, late maintenance, old transactions, bloat and more. It
says what each finding means and what to do. It changes and locks nothing.

A check is ok; unknown, when the role has no right to find out; a notice, which
may be meant; a warning; or critical, when the queue can't work.
docs/operations.md explains each check.

Exit codes: 0 nothing worse than a notice, 6 warnings, 7 something critical, such
as a database out of reach; 2 wrong usage.`,
		Example: "  onceq doctor\n  onceq doctor --json | jq '.checks[] | select(.severity != \"ok\")'",
		Args:    cobra.NoArgs,
		RunE:    a.command(func(cmd *cobra.Command) error { return a.doctor(cmd.Context()) }),
	}
}

func (a *app) doctor(ctx context.Context) error {
	var where *place
	var health queue.Health
	err := a.connected(ctx, func(client *queue.Client, at place) (err error) {
		where = &at
		health, err = client.Health(ctx)
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
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 3, WidthMax: a.widthBeside(40), WidthMaxEnforcer: text.WrapSoft}})
	for _, c := range h.Checks {
		t.AppendRow(table.Row{a.severity(c.Severity), c.Name, clean(c.Summary)})
	}
	t.Render()
	for _, c := range h.Checks {
		if c.Advice != "" {
			fmt.Fprintf(a.stdout, "%s: %s\n", c.Name, clean(c.Advice))
		}
	}
	return nil
}

func (a *app) severity(s queue.Severity) string {
	return a.paint(string(s), map[queue.Severity]text.Color{
		queue.SeverityOK: text.FgGreen, queue.SeverityUnknown: text.Faint, queue.SeverityNotice: text.FgCyan,
		queue.SeverityWarning: text.FgYellow, queue.SeverityCritical: text.FgRed,
	}[s])
}

// widthBeside is how wide a column may be that stands beside others: as the
// terminal allows, and without a bound in a pipe.
func (a *app) widthBeside(others int) int {
	if !isTerminal(a.stdout) {
		return 0
	}
	width, _, err := term.GetSize(int(a.stdout.(*os.File).Fd()))
	if err != nil {
		return 0
	}
	return max(width-others, 20)
}
