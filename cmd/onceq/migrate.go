package main

import (
	"fmt"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/onceq/onceq/schema"
)

// migration is a migration in JSON.
type migration struct {
	Version int64  `json:"version"`
	Name    string `json:"name"`
	Applied bool   `json:"applied"`
}

func (a *app) migrateCommand() *cobra.Command {
	return a.group("migrate", "Make the schema and bring it up to date",
		"migrate makes the queue's tables, tells which migrations they have, or prints\nthe SQL for those who apply it by other means.",
		&cobra.Command{
			Use:   "up",
			Short: "Apply the migrations that the database lacks",
			Long: `up makes the schema if it is missing and applies the migrations that it lacks.
Several programs may do so at once: one works, the others wait. It needs a
direct connection, or a pooler in session mode.`,
			Example: "  onceq migrate up\n  onceq migrate up --schema tenant_a --json",
			Args:    cobra.NoArgs,
			RunE:    a.command(a.migrateUp),
		},
		&cobra.Command{
			Use:     "status",
			Short:   "List the migrations, applied and missing",
			Long:    "status lists every migration and whether the database has it. It changes\nnothing.",
			Example: "  onceq migrate status\n  onceq migrate status --json | jq '.migrations[] | select(.applied | not)'",
			Args:    cobra.NoArgs,
			RunE:    a.command(a.migrateStatus),
		},
		&cobra.Command{
			Use:     "print",
			Short:   "Print the SQL of every migration",
			Long:    "print writes the SQL that makes the schema as up would: one transaction, which\nchanges nothing where some of it is there already. It needs no database.",
			Example: "  onceq migrate print > onceq.sql\n  onceq migrate print --schema tenant_a",
			Args:    cobra.NoArgs,
			RunE:    a.command(a.migratePrint),
		},
	)
}

// checkSchemaName finds a name that can't be a schema before a database is asked.
func (a *app) checkSchemaName() error {
	if _, err := schema.Print(schema.Named(a.schema)); err != nil {
		return usageError{err}
	}
	return nil
}

func (a *app) migrateUp(cmd *cobra.Command) error {
	ctx := cmd.Context()
	if err := a.checkSchemaName(); err != nil {
		return err
	}
	db, err := a.open(ctx, 2)
	if err != nil {
		return err
	}
	defer db.pool.Close()
	before, err := schema.Statuses(ctx, db.pool, schema.Named(a.schema))
	if err != nil {
		return err
	}
	a.announce("migrate", db.place)
	if err := schema.Migrate(ctx, db.pool, schema.Named(a.schema)); err != nil {
		return err
	}
	applied := []migration{}
	for _, s := range before {
		if !s.Applied {
			applied = append(applied, migration{s.Version, s.Name, true})
		}
	}
	version := before[len(before)-1].Version
	if a.json {
		return a.writeJSON(struct {
			place
			Version int64       `json:"version"`
			Applied []migration `json:"applied"`
		}{db.place, version, applied})
	}
	for _, m := range applied {
		fmt.Fprintf(a.stdout, "applied %s\n", m.Name)
	}
	if len(applied) == 0 {
		fmt.Fprintln(a.stdout, "nothing to apply")
	}
	fmt.Fprintf(a.stdout, "%s is at version %d\n", db.place, version)
	return nil
}

func (a *app) migrateStatus(cmd *cobra.Command) error {
	ctx := cmd.Context()
	if err := a.checkSchemaName(); err != nil {
		return err
	}
	db, err := a.open(ctx, 1)
	if err != nil {
		return err
	}
	defer db.pool.Close()
	statuses, err := schema.Statuses(ctx, db.pool, schema.Named(a.schema))
	if err != nil {
		return err
	}
	migrations := make([]migration, len(statuses))
	for i, s := range statuses {
		migrations[i] = migration(s)
	}
	if a.json {
		return a.writeJSON(struct {
			place
			Migrations []migration `json:"migrations"`
		}{db.place, migrations})
	}
	fmt.Fprintln(a.stdout, db.place)
	t := a.newList("version", "migration", "applied")
	for _, m := range migrations {
		applied := "no"
		if m.Applied {
			applied = "yes"
		}
		t.AppendRow(table.Row{m.Version, m.Name, applied})
	}
	t.Render()
	if slices.ContainsFunc(migrations, func(m migration) bool { return !m.Applied }) {
		fmt.Fprintln(a.stdout, "run `onceq migrate up` to apply what is missing")
	}
	return nil
}

func (a *app) migratePrint(*cobra.Command) error {
	text, err := schema.Print(schema.Named(a.schema))
	if err != nil {
		return usageError{err}
	}
	if a.json {
		return a.writeJSON(struct {
			Schema string `json:"schema"`
			SQL    string `json:"sql"`
		}{a.schema, text})
	}
	_, err = fmt.Fprint(a.stdout, text)
	return err
}
