package main

import (
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/onceq/onceq/pkg/queue"
)

// taskJSON is a task of maintenance in JSON.
type taskJSON struct {
	Task  string  `json:"task"`
	Rows  int64   `json:"rows"`
	Took  float64 `json:"took_seconds"`
	Error string  `json:"error,omitempty"`
}

func (a *app) maintainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "maintain",
		Short: "Run one pass of maintenance",
		Long: `maintain takes back jobs whose worker is gone, ends those whose deadline has
passed, and removes expired keys and what is past its retention. Workers do the
same by themselves; run this where none runs all the time. Every task works in
small steps and fails alone.

Exit codes: 0 every task is done, 1 some task failed.`,
		Example: "  onceq maintain\n  onceq maintain --json | jq '.tasks[] | select(.error)'",
		Args:    cobra.NoArgs,
		RunE:    a.command(a.maintain),
	}
}

func (a *app) maintain(cmd *cobra.Command) error {
	return a.connected(cmd.Context(), func(client *queue.Client, where place) error {
		a.announce("run a pass of maintenance in", where)
		report, err := client.Maintain(cmd.Context())
		if err != nil {
			return err
		}
		tasks, failed := make([]taskJSON, len(report.Tasks)), false
		t := a.newList("task", "rows", "took", "result")
		for i, task := range report.Tasks {
			tasks[i] = taskJSON{Task: task.Name, Rows: task.Rows, Took: task.Took.Seconds()}
			result := a.paint("done", text.FgGreen)
			if task.Err != nil {
				failed, tasks[i].Error = true, oneLine(task.Err)
				result = a.paint("failed", text.FgRed) + ": " + tasks[i].Error
			}
			t.AppendRow(table.Row{task.Name, task.Rows, task.Took.Round(time.Millisecond), result})
		}
		if a.json {
			err = a.writeJSON(struct {
				place
				Tasks []taskJSON `json:"tasks"`
			}{where, tasks})
		} else {
			t.Render()
		}
		if err == nil && failed {
			err = fmt.Errorf("a task of maintenance failed")
		}
		return err
	})
}
