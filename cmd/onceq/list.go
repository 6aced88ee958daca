package main

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/onceq/onceq/pkg/queue"
)

// states are the values of --state.
var states = []string{
	string(queue.StateScheduled), string(queue.StateReady), string(queue.StateRunning),
	string(queue.StateSucceeded), string(queue.StateDead), string(queue.StateCancelled),
}

// listing is what a list of jobs shows.
type listing struct {
	filter queue.JobFilter
	limit  int
	dead   bool // of dead letters
}

// listFlags are the filters that lists of jobs share.
func (a *app) listFlags(cmd *cobra.Command, l *listing) {
	flags := cmd.Flags()
	flags.StringVar(&l.filter.Queue, "queue", "", "`queue` of the jobs")
	flags.StringVar(&l.filter.Type, "type", "", "`type` of the jobs")
	flags.StringVar(&l.filter.Tag, "tag", "", "a `tag` of the jobs")
	flags.Var(&moment{into: &l.filter.Since}, "since", "no earlier than this `time`: 2026-03-01T12:00:00Z,\nor 2h for that long ago")
	flags.Var(&moment{into: &l.filter.Until}, "until", "earlier than this `time`")
	a.completeQueues(cmd)
}

func (a *app) payloadFlag(cmd *cobra.Command, f *queue.JobFilter) {
	cmd.Flags().BoolVar(&f.WithPayload, "payload", false, "with --json: show the payloads, too")
}

func limitFlag(cmd *cobra.Command, l *listing) {
	cmd.Flags().IntVar(&l.limit, "limit", 100, "show at most so many; 0 is all")
}

// moment is a time as a flag: an instant, or how long ago.
type moment struct{ into *time.Time }

func (m *moment) String() string { return "" }
func (m *moment) Type() string   { return "time" }

func (m *moment) Set(text string) error {
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		*m.into = time.Now().Add(-ago)
		return nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return fmt.Errorf("want an instant such as 2026-03-01T12:00:00Z, or a duration such as 90m for that long ago")
	}
	*m.into = at
	return nil
}

// list shows jobs, as programs want them while they come, and to people as one
// table.
func (a *app) list(ctx context.Context, l listing, jobs func(*queue.Client, context.Context, queue.JobFilter) iter.Seq2[queue.JobInfo, error]) error {
	if l.limit < 0 {
		return usagef("--limit: %d; allowed are 1 and more, or 0 for all", l.limit)
	}
	return a.connected(ctx, func(client *queue.Client, _ place) error {
		t, shown, more := a.newList(l.header()...), 0, false
		for job, err := range jobs(client, ctx, l.filter) {
			if err != nil {
				return err
			}
			if l.limit > 0 && shown == l.limit {
				more = true
				break
			}
			shown++
			if a.json {
				if err := a.writeJSON(toJSON(job)); err != nil {
					return err
				}
				continue
			}
			t.AppendRow(l.row(a, job))
		}
		a.render(t)
		if more && !a.json {
			fmt.Fprintf(a.stderr, "onceq: these are the first %d; --limit 0 shows all\n", shown)
		}
		return nil
	})
}

func (l listing) header() []string {
	if l.dead {
		return []string{"job", "queue", "type", "attempts", "died", "error", "redriven_as"}
	}
	return []string{"job", "state", "queue", "type", "attempts", "run_at", "error"}
}

func (l listing) row(a *app, j queue.JobInfo) table.Row {
	attempts := fmt.Sprintf("%d/%d", j.Attempt, j.MaxAttempts)
	if l.dead {
		return table.Row{j.ID, cell(j.Queue), cell(j.Type), attempts, instant(j.FinishedAt), cell(j.LastError), j.RedrivenAs}
	}
	return table.Row{j.ID, a.state(j.State), cell(j.Queue), cell(j.Type), attempts, instant(j.RunAt), cell(j.LastError)}
}
