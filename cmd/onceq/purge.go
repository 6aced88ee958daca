package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/pkg/queue"
)

func (a *app) purgeCommand() *cobra.Command {
	var ids []string
	var filter queue.PurgeFilter
	var yes bool
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Delete waiting jobs and free their keys",
		Long: `purge deletes jobs that wait, ready and scheduled ones and those that wait for a
retry, with their keys, checkpoints and events: the keys are free at once. What
is given must all fit. Running and ended jobs stay, and so does what is accepted
while the purge runs.

It asks on a terminal for the name of the database; elsewhere, and with --json,
it wants --yes. It works in steps of up to 500 jobs. What is done when it is
interrupted stays done; to run it again is safe.`,
		Example: `  onceq purge --queue imports --type import.row
  onceq purge --job 0198b6a2-7c1e-7d3a-9f00-2b1f6a7c8d9e --yes
  onceq purge --all --yes --json`,
		Args: cobra.NoArgs,
		RunE: a.command(func(cmd *cobra.Command) error {
			for _, id := range ids {
				filter.JobIDs = append(filter.JobIDs, queue.JobID(id))
			}
			return a.purge(cmd, filter, yes)
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&ids, "job", nil, "`id` of a job; may be given again")
	flags.StringVar(&filter.Queue, "queue", "", "`queue` of the jobs")
	flags.StringVar(&filter.Type, "type", "", "`type` of the jobs")
	flags.BoolVar(&filter.All, "all", false, "every waiting job")
	flags.BoolVar(&yes, "yes", false, "don't ask")
	cmd.MarkFlagsOneRequired("job", "queue", "type", "all")
	for _, narrower := range []string{"job", "queue", "type"} {
		cmd.MarkFlagsMutuallyExclusive("all", narrower)
	}
	a.completeQueues(cmd)
	return cmd
}

// purgeTarget says in words what a filter means.
func purgeTarget(f queue.PurgeFilter) string {
	if f.All {
		return "every waiting job"
	}
	var limits []string
	if f.Queue != "" {
		limits = append(limits, fmt.Sprintf("of queue %q", f.Queue))
	}
	if f.Type != "" {
		limits = append(limits, fmt.Sprintf("of type %q", f.Type))
	}
	if f.JobIDs != nil {
		limits = append(limits, "among the "+count(int64(len(f.JobIDs)), "job")+" given")
	}
	return "the waiting jobs " + strings.Join(limits, ", ")
}

// tellWaiting tells a person how many jobs of the queues in question wait.
func (a *app) tellWaiting(ctx context.Context, client *queue.Client, f queue.PurgeFilter) error {
	if a.json || f.JobIDs != nil {
		return nil
	}
	stats, err := client.Stats(ctx)
	if err != nil {
		return err
	}
	var waiting int64
	var capped bool
	for _, s := range stats {
		if f.Queue == "" || f.Queue == s.Queue {
			waiting, capped = waiting+s.Scheduled+s.Ready, capped || s.Capped
		}
	}
	least := ""
	if capped {
		least = "at least "
	}
	fmt.Fprintf(a.stderr, "onceq will choose among %s%s\n", least, count(waiting, "waiting job"))
	return nil
}

func (a *app) purge(cmd *cobra.Command, f queue.PurgeFilter, yes bool) error {
	ctx := cmd.Context()
	return a.connected(ctx, func(client *queue.Client, where place) error {
		a.announce("purge "+purgeTarget(f)+" in", where)
		if err := a.tellWaiting(ctx, client, f); err != nil {
			return err
		}
		if err := a.confirm(ctx, yes, where); err != nil {
			return err
		}
		bar := a.newBar("jobs", 0)
		f.Progress = func(purged int64) { bar.set(0, purged) }
		purged, err := client.Purge(ctx, f)
		bar.finish(err == nil)
		if err != nil {
			return err
		}
		if a.json {
			return a.writeJSON(struct {
				place
				Purged int64 `json:"purged"`
			}{where, purged})
		}
		fmt.Fprintf(a.stdout, "purged %s\n", count(purged, "job"))
		return nil
	})
}
