package main

import (
	"github.com/spf13/cobra"

	"github.com/onceq/onceq/pkg/queue"
)

func (a *app) deadCommand() *cobra.Command {
	return a.group("dead", "List dead letters and run them again",
		"dead shows jobs that ended without success, and makes new jobs of them.",
		a.deadListCommand(), a.deadRedriveCommand())
}

func (a *app) deadListCommand() *cobra.Command {
	l := listing{dead: true}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, the newest death first",
		Long: `list shows the dead jobs that pass every filter given, the newest death first:
--since and --until are about when they died. With --json it writes an object a
line, as soon as it has read it.`,
		Example: `  onceq dead list --queue mail --since 24h
  onceq dead list --error timeout --limit 0 --json | jq -r .id`,
		Args: cobra.NoArgs,
		RunE: a.command(func(cmd *cobra.Command) error {
			return a.list(cmd.Context(), l, (*queue.Client).DeadLetters)
		}),
	}
	cmd.Flags().SortFlags = false
	a.listFlags(cmd, &l)
	errorFlag(cmd, &l)
	a.payloadFlag(cmd, &l.filter)
	limitFlag(cmd, &l)
	return cmd
}

func errorFlag(cmd *cobra.Command, l *listing) {
	cmd.Flags().StringVar(&l.filter.Error, "error", "", "`text` that the error holds")
}
