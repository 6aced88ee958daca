package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/onceq/onceq/pkg/queue"
)

const redriveLong = `redrive makes a new job of a dead letter, or of every one that passes the
filters, oldest death first. The new job has the old one's queue, type, payload,
priority and budget, and no deadline, checkpoints or key. The dead letter stays.

--request-id names the order, so that it can be given again safely, after a lost
connection or Ctrl-C: what it has made is not made twice, and the rest is. It is
stored hashed and never shown. The same id with another --actor or --reason is a
conflict. A dead letter that another order has redriven is left alone, unless
--again is given.

With filters, --limit bounds how many jobs the order makes in all, as long as
their dead letters are there: those that retention has deleted don't count.
--dry-run tells how many and writes nothing. The order asks on a terminal for
the name of the database; elsewhere, and with --json, it wants --yes.

Exit codes: 0 redriven, or replayed; 1 failed; 2 wrong usage; 3 the request id
stands for another order; 5 of one job: it is not dead, not there, or redriven
already.`

// redriveFlags are the flags of onceq dead redrive.
type redriveFlags struct {
	listing
	requestID, actor, reason string
	again, dryRun, all, yes  bool
}

func (a *app) deadRedriveCommand() *cobra.Command {
	f := redriveFlags{listing: listing{dead: true}}
	cmd := &cobra.Command{
		Use:   "redrive [JOB]",
		Short: "Run one dead letter again, or many",
		Long:  redriveLong,
		Example: `  onceq dead redrive 0198b6a2-7c1e-7d3a-9f00-2b1f6a7c8d9e --request-id INC-42 --actor oncall --reason "mail server is back"
  onceq dead redrive --queue mail --error timeout --dry-run --request-id INC-42 --actor oncall --reason "mail server is back"
  onceq dead redrive --queue mail --error timeout --limit 5000 --request-id INC-42 --actor oncall --reason "mail server is back"`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.commandOn(func(cmd *cobra.Command, args []string) error {
			bulk := []string{"queue", "type", "tag", "since", "until", "error", "all", "limit", "dry-run", "yes"}
			if len(args) == 0 {
				return a.redriveMany(cmd.Context(), f)
			}
			for _, flag := range bulk {
				if cmd.Flags().Changed(flag) {
					return usagef("--%s is for many dead letters, and a job was named", flag)
				}
			}
			return a.redriveOne(cmd.Context(), queue.JobID(args[0]), f)
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.requestID, "request-id", "", "`name` of this order, 1 to 512 bytes")
	flags.StringVar(&f.actor, "actor", "", "`who` gives the order, 1 to 200 characters")
	flags.StringVar(&f.reason, "reason", "", "why, 1 to 2000 characters")
	flags.BoolVar(&f.again, "again", false, "also what another order has redriven already")
	a.listFlags(cmd, &f.listing)
	errorFlag(cmd, &f.listing)
	flags.BoolVar(&f.all, "all", false, "every dead letter")
	flags.IntVar(&f.limit, "limit", 1000, "make at most so many jobs, 1 to 1000000")
	flags.BoolVar(&f.dryRun, "dry-run", false, "tell what would be done, and write nothing")
	flags.BoolVar(&f.yes, "yes", false, "don't ask")
	for _, flag := range []string{"request-id", "actor", "reason"} {
		must(cmd.MarkFlagRequired(flag))
	}
	return cmd
}

func (a *app) redriveOne(ctx context.Context, id queue.JobID, f redriveFlags) error {
	return a.connected(ctx, func(client *queue.Client, where place) error {
		a.announce(fmt.Sprintf("redrive job %s in", clean(string(id))), where)
		res, err := client.Redrive(ctx, queue.RedriveRequest{JobID: id, RequestID: f.requestID, Actor: f.actor, Reason: f.reason, Again: f.again})
		if err != nil {
			return err
		}
		if a.json {
			err = a.writeJSON(struct {
				place
				JobID  queue.JobID         `json:"job_id"`
				Status queue.RedriveStatus `json:"status"`
				Target queue.JobID         `json:"target,omitempty"`
			}{where, id, res.Status, res.Target})
		} else {
			says := map[queue.RedriveStatus]string{
				queue.Redriven:        "redriven as job " + string(res.Target),
				queue.RedriveReplayed: "this order had redriven it as job " + string(res.Target),
				queue.RedriveAlready:  "another order has redriven it as job " + string(res.Target) + "; --again makes one more",
				queue.RedriveNotDead:  "it is not dead",
				queue.RedriveNotFound: "there is no such job",
			}
			_, err = fmt.Fprintf(a.stdout, "job %s: %s\n", clean(string(id)), says[res.Status])
		}
		if err == nil && res.Status != queue.Redriven && res.Status != queue.RedriveReplayed {
			return exitCode(exitRefused)
		}
		return err
	})
}

// target says in words what the filters mean.
func (f redriveFlags) target() string {
	if f.all {
		return "every dead letter"
	}
	var limits []string
	for _, l := range []struct{ words, value string }{
		{"of queue", f.filter.Queue}, {"of type", f.filter.Type}, {"with tag", f.filter.Tag}, {"whose error holds", f.filter.Error},
	} {
		if l.value != "" {
			limits = append(limits, fmt.Sprintf("%s %q", l.words, l.value))
		}
	}
	if !f.filter.Since.IsZero() {
		limits = append(limits, "since "+instant(f.filter.Since))
	}
	if !f.filter.Until.IsZero() {
		limits = append(limits, "until "+instant(f.filter.Until))
	}
	return "the dead letters " + strings.Join(limits, ", ")
}

// checkFilters wants it said what is meant.
func (f redriveFlags) checkFilters() error {
	filter := f.filter
	given := filter.Queue+filter.Type+filter.Tag+filter.Error != "" || !filter.Since.IsZero() || !filter.Until.IsZero()
	switch {
	case !given && !f.all:
		return usagef("which dead letters? name one, give a filter, or --all")
	case given && f.all:
		return usagef("--all leaves no room for a filter")
	}
	return nil
}

// redriveJSON is the result of a redrive of many in JSON.
type redriveJSON struct {
	place
	Redriven int64 `json:"redriven"`
	Replayed int64 `json:"replayed"`
	Skipped  int64 `json:"skipped"`
	LookedAt int64 `json:"looked_at"`
	AtLimit  bool  `json:"at_limit"`
	DryRun   bool  `json:"dry_run"`
}

func (a *app) redriveMany(ctx context.Context, f redriveFlags) error {
	if err := f.checkFilters(); err != nil {
		return err
	}
	return a.connected(ctx, func(client *queue.Client, where place) error {
		what := "redrive " + f.target()
		if f.dryRun {
			what = "count, and change nothing of, " + f.target()
		}
		a.announce(fmt.Sprintf("%s, at most %d, in", what, f.limit), where)
		if !f.dryRun {
			if err := a.confirm(ctx, f.yes, where); err != nil {
				return err
			}
		}
		bar := a.newBar("jobs", 0)
		res, err := client.RedriveMany(ctx, queue.RedriveManyRequest{
			Filter: f.filter, RequestID: f.requestID, Actor: f.actor, Reason: f.reason, Again: f.again, Limit: f.limit, DryRun: f.dryRun,
			Progress: func(r queue.RedriveManyResult) { bar.set(0, r.Redriven+r.Replayed) },
		})
		bar.finish(err == nil)
		if err != nil && !a.isMisuse(err) && codeOf(err) == exitFailure && !f.dryRun {
			err = fmt.Errorf("%w; to give the same order again is safe, and goes on", err)
		}
		if err != nil {
			return err
		}
		return a.showRedriven(where, f, res)
	})
}

func (a *app) showRedriven(where place, f redriveFlags, r queue.RedriveManyResult) error {
	if a.json {
		return a.writeJSON(redriveJSON{where, r.Redriven, r.Replayed, r.Skipped, r.LookedAt, r.AtLimit, f.dryRun})
	}
	redriven := "redriven"
	if f.dryRun {
		redriven = "would be redriven"
	}
	t := a.newTable()
	t.AppendRows([]table.Row{
		{redriven, r.Redriven},
		{"replayed", r.Replayed},
		{"skipped", r.Skipped},
		{"looked at", r.LookedAt},
	})
	t.Render()
	if r.AtLimit {
		fmt.Fprintf(a.stderr, "onceq: stopped at the limit of %d; there may be more\n", f.limit)
	}
	return nil
}
