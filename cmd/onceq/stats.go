package main

import (
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/onceq/onceq/pkg/queue"
)

// statsJSON counts the jobs of a queue in JSON.
type statsJSON struct {
	Queue       string  `json:"queue"`
	Scheduled   int64   `json:"scheduled"`
	Ready       int64   `json:"ready"`
	Running     int64   `json:"running"`
	Succeeded   int64   `json:"succeeded"`
	Dead        int64   `json:"dead"`
	Cancelled   int64   `json:"cancelled"`
	OldestReady float64 `json:"oldest_ready_seconds"`
	Paused      bool    `json:"paused"`
	Capped      bool    `json:"capped"` // some count stopped at its bound
}

func (a *app) statsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stats",
		Short: "Count jobs by queue and state",
		Long: `stats counts the jobs of each queue by state and tells how long the oldest ready
one has waited. It is cheap with millions of jobs: it stops counting at a bound,
and says so in the column capped.`,
		Example: "  onceq stats\n  onceq stats --json | jq 'select(.ready > 1000)'",
		Args:    cobra.NoArgs,
		RunE: a.command(func(cmd *cobra.Command) error {
			return a.connected(cmd.Context(), func(client *queue.Client, _ place) error {
				stats, err := client.Stats(cmd.Context())
				if err != nil {
					return err
				}
				return a.showStats(stats)
			})
		}),
	}
}

func (a *app) showStats(stats []queue.QueueStats) error {
	t := a.newList("queue", "scheduled", "ready", "running", "succeeded", "dead", "cancelled", "oldest_ready", "paused", "capped")
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 6, Align: text.AlignRight}})
	for _, s := range stats {
		if a.json {
			if err := a.writeJSON(statsJSON{s.Queue, s.Scheduled, s.Ready, s.Running, s.Succeeded, s.Dead, s.Cancelled,
				s.OldestReady.Seconds(), s.Paused, s.Capped}); err != nil {
				return err
			}
			continue
		}
		oldest, dead := "", fmt.Sprint(s.Dead)
		if s.Ready > 0 {
			oldest = age(s.OldestReady)
		}
		if s.Dead > 0 {
			dead = a.paint(dead, text.FgRed)
		}
		t.AppendRow(table.Row{cell(s.Queue), s.Scheduled, s.Ready, s.Running, s.Succeeded, dead, s.Cancelled, oldest, a.yesNo(s.Paused), a.yesNo(s.Capped)})
	}
	a.render(t)
	return nil
}
