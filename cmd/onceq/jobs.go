package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/pkg/queue"
)

func (a *app) jobsCommand() *cobra.Command {
	return a.group("jobs", "List, show, cancel and hasten jobs",
		"jobs shows jobs and what became of them, cancels them, and lets scheduled ones\nrun now.",
		a.jobsListCommand(), a.jobsShowCommand(), a.jobsCancelCommand(), a.jobsRunNowCommand())
}

func (a *app) jobsListCommand() *cobra.Command {
	var l listing
	var state string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List jobs, newest first",
		Long: `list shows the jobs that pass every filter given, the newest first. With --json
it writes an object a line, as soon as it has read it.`,
		Example: `  onceq jobs list --state running
  onceq jobs list --queue mail --type mail.send --since 2h --limit 0 --json | jq -r .id`,
		Args: cobra.NoArgs,
		RunE: a.command(func(cmd *cobra.Command) error {
			l.filter.State = queue.State(state)
			return a.list(cmd.Context(), l, (*queue.Client).Jobs)
		}),
	}
	cmd.Flags().SortFlags = false
	a.listFlags(cmd, &l)
	cmd.Flags().StringVar(&state, "state", "", "`state` of the jobs:\n"+strings.Join(states, ", "))
	must(cmd.RegisterFlagCompletionFunc("state", oneOf(states...)))
	a.payloadFlag(cmd, &l.filter)
	limitFlag(cmd, &l)
	return cmd
}

func (a *app) jobsShowCommand() *cobra.Command {
	var payload bool
	cmd := &cobra.Command{
		Use:   "show JOB",
		Short: "Show a job and its timeline",
		Long: `show tells where a job stands and what happened to it, oldest first. A payload
may hold what not everybody should read, so it is shown only when asked for.

Exit codes: 0 done, 1 failed, 2 wrong usage, 5 there is no such job.`,
		Example: `  onceq jobs show 0198b6a2-7c1e-7d3a-9f00-2b1f6a7c8d9e
  onceq jobs show 0198b6a2-7c1e-7d3a-9f00-2b1f6a7c8d9e --payload --json | jq .job.payload`,
		Args:              one("the id of a job"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.commandOn(func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.connected(ctx, func(client *queue.Client, _ place) error {
				job, err := client.Job(ctx, queue.JobID(args[0]))
				if err != nil {
					return err
				}
				events, err := client.Events(ctx, job.ID)
				if err != nil {
					return err
				}
				switch {
				case !payload:
					job.Payload = nil
				case job.Payload == nil:
					fmt.Fprintln(a.stderr, "onceq: this role may not read payloads")
				}
				return a.showJob(job, events)
			})
		}),
	}
	cmd.Flags().BoolVar(&payload, "payload", false, "show the payload, too")
	return cmd
}

func (a *app) jobsCancelCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "cancel JOB",
		Short: "Cancel a job",
		Long: `cancel ends a job that waits, and asks the worker of a running one to stop it.
The job's key goes on answering for it until it expires; onceq purge deletes a
waiting job with its key.

Exit codes: 0 cancelled, or its worker was asked; 1 failed; 2 wrong usage; 5
there is no such job, or it has ended.`,
		Example:           `  onceq jobs cancel 0198b6a2-7c1e-7d3a-9f00-2b1f6a7c8d9e --reason "ordered twice"`,
		Args:              one("the id of a job"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.commandOn(func(cmd *cobra.Command, args []string) error {
			return a.cancelJob(cmd, queue.JobID(args[0]), reason)
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the job's timeline: 1 to 2000 characters")
	must(cmd.MarkFlagRequired("reason"))
	return cmd
}

func (a *app) cancelJob(cmd *cobra.Command, id queue.JobID, reason string) error {
	return a.connected(cmd.Context(), func(client *queue.Client, where place) error {
		a.announce(fmt.Sprintf("cancel job %s in", clean(string(id))), where)
		status, err := client.Cancel(cmd.Context(), id, reason)
		if err != nil {
			return err
		}
		says := map[queue.CancelStatus]string{
			queue.CancelledNow:    "cancelled",
			queue.CancelRequested: "its worker is asked to stop it",
			queue.CancelTooLate:   "the job has already ended",
			queue.CancelNotFound:  "there is no such job",
		}
		done := status == queue.CancelledNow || status == queue.CancelRequested
		return a.answer(where, id, string(status), says[status], done)
	})
}

func (a *app) jobsRunNowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run-now JOB",
		Short: "Let a scheduled job run now",
		Long: `run-now makes a scheduled job ready: one that was asked for later, is debounced,
or waits for a retry. The window of a debounced job ends, so that the next
request of its key is a new one.

Exit codes: 0 done, 1 failed, 2 wrong usage, 5 there is no such job, or it does
not wait for its time.`,
		Example:           "  onceq jobs run-now 0198b6a2-7c1e-7d3a-9f00-2b1f6a7c8d9e",
		Args:              one("the id of a job"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.commandOn(func(cmd *cobra.Command, args []string) error {
			ctx, id := cmd.Context(), queue.JobID(args[0])
			return a.connected(ctx, func(client *queue.Client, where place) error {
				a.announce(fmt.Sprintf("run job %s now in", clean(args[0])), where)
				err := client.RunNow(ctx, id)
				switch {
				case errors.Is(err, queue.ErrJobNotFound):
					return a.answer(where, id, "not_found", "there is no such job", false)
				case errors.Is(err, queue.ErrNotScheduled):
					return a.answer(where, id, "not_scheduled", "it does not wait for its time", false)
				case err != nil:
					return err
				}
				return a.answer(where, id, "ready", "ready to run", true)
			})
		}),
	}
}

// answer reports what was decided about one job.
func (a *app) answer(where place, id queue.JobID, status, says string, done bool) error {
	var err error
	if a.json {
		err = a.writeJSON(struct {
			place
			JobID  queue.JobID `json:"job_id"`
			Status string      `json:"status"`
		}{where, id, status})
	} else {
		_, err = fmt.Fprintf(a.stdout, "job %s: %s\n", clean(string(id)), says)
	}
	if err == nil && !done {
		return exitCode(exitRefused)
	}
	return err
}
