package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/onceq/onceq/pkg/queue"
)

// queueJSON is a queue and its settings in JSON.
type queueJSON struct {
	Queue            string `json:"queue"`
	Paused           bool   `json:"paused"`
	MaxRunning       int    `json:"max_running"` // 0: no cap
	MaxRunningPerKey int    `json:"max_running_per_key"`
}

func (a *app) queuesCommand() *cobra.Command {
	return a.group("queues", "List, pause, resume and cap queues",
		"queues shows the queues and their settings, stops and resumes the claiming of\ntheir jobs, and caps how many run at once.",
		&cobra.Command{
			Use:   "list",
			Short: "List the queues and their settings",
			Long: `list shows every queue that was ever set or paused, or has jobs that wait or
run. onceq stats counts their jobs.`,
			Example: "  onceq queues list\n  onceq queues list --json | jq -r 'select(.paused).queue'",
			Args:    cobra.NoArgs,
			RunE:    a.command(a.queuesList),
		},
		a.pauseCommand("pause", "Stop claims from a queue", `pause stops workers from claiming the queue's jobs. What runs goes on, and
requests are accepted as before.`, true),
		a.pauseCommand("resume", "Let claims from a queue go on", "resume lets workers claim the queue's jobs again.", false),
		a.queuesSetCommand(),
	)
}

func (a *app) queuesList(cmd *cobra.Command) error {
	return a.connected(cmd.Context(), func(client *queue.Client, _ place) error {
		queues, err := client.Queues(cmd.Context())
		if err != nil {
			return err
		}
		t := a.newList("queue", "paused", "max_running", "max_running_per_key")
		for _, q := range queues {
			if a.json {
				if err := a.writeJSON(queueJSON{q.Name, q.Paused, q.MaxRunning, q.MaxRunningPerKey}); err != nil {
					return err
				}
				continue
			}
			t.AppendRow(table.Row{clean(q.Name), a.yesNo(q.Paused), capText(q.MaxRunning), q.MaxRunningPerKey})
		}
		a.render(t)
		return nil
	})
}

func capText(n int) string {
	if n == 0 {
		return "no cap"
	}
	return fmt.Sprint(n)
}

// current is a queue as it is now, and whether anything was known of it.
func current(ctx context.Context, client *queue.Client, name string) (queue.QueueInfo, bool, error) {
	queues, err := client.Queues(ctx)
	if err != nil {
		return queue.QueueInfo{}, false, err
	}
	i := slices.IndexFunc(queues, func(q queue.QueueInfo) bool { return q.Name == name })
	if i < 0 {
		return queue.QueueInfo{Name: name, QueueSettings: queue.QueueSettings{MaxRunningPerKey: 1}}, false, nil
	}
	return queues[i], true, nil
}

// changeQueue reads a queue, lets change do its part, and shows what became of
// it. A new queue is told of, since it may be a slip of the pen.
func (a *app) changeQueue(ctx context.Context, what, name string, change func(*queue.Client, *queue.QueueInfo) error) error {
	return a.connected(ctx, func(client *queue.Client, where place) error {
		q, known, err := current(ctx, client, name)
		if err != nil {
			return err
		}
		a.announce(fmt.Sprintf("%s queue %q in", what, name), where)
		if err := change(client, &q); err != nil {
			return err
		}
		if a.json {
			return a.writeJSON(struct {
				place
				queueJSON
				New bool `json:"new"`
			}{where, queueJSON{q.Name, q.Paused, q.MaxRunning, q.MaxRunningPerKey}, !known})
		}
		if !known {
			fmt.Fprintf(a.stderr, "onceq: nothing was known of queue %q before; is its name right?\n", name)
		}
		state := "not paused"
		if q.Paused {
			state = "paused"
		}
		fmt.Fprintf(a.stdout, "queue %q is %s; max_running: %s, max_running_per_key: %d\n", name, state, capText(q.MaxRunning), q.MaxRunningPerKey)
		return nil
	})
}

func (a *app) pauseCommand(verb, short, long string, paused bool) *cobra.Command {
	return &cobra.Command{
		Use:               verb + " QUEUE",
		Short:             short,
		Long:              long,
		Example:           "  onceq queues " + verb + " mail",
		Args:              one("the name of a queue"),
		ValidArgsFunction: a.queueNames,
		RunE: a.commandOn(func(cmd *cobra.Command, args []string) error {
			return a.changeQueue(cmd.Context(), verb, args[0], func(client *queue.Client, q *queue.QueueInfo) error {
				q.Paused = paused
				if paused {
					return client.PauseQueue(cmd.Context(), q.Name)
				}
				return client.ResumeQueue(cmd.Context(), q.Name)
			})
		}),
	}
}

func (a *app) queuesSetCommand() *cobra.Command {
	var settings queue.QueueSettings
	cmd := &cobra.Command{
		Use:   "set QUEUE",
		Short: "Cap how many jobs of a queue run at once",
		Long: `set caps how many jobs of the queue run at once, over all its workers, and how
many with one concurrency key. A flag that is not given leaves its cap as it is.
What runs already goes on.`,
		Example: `  onceq queues set mail --max-running 20
  onceq queues set imports --max-running-per-key 2 --max-running 0`,
		Args:              one("the name of a queue"),
		ValidArgsFunction: a.queueNames,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVar(&settings.MaxRunning, "max-running", 0, "jobs of the queue at once, up to 1000000;\n0 is no cap")
	flags.IntVar(&settings.MaxRunningPerKey, "max-running-per-key", 0, "jobs with one concurrency key at once,\nup to 1000; 0 is 1")
	cmd.MarkFlagsOneRequired("max-running", "max-running-per-key")
	cmd.RunE = a.commandOn(func(cmd *cobra.Command, args []string) error {
		return a.changeQueue(cmd.Context(), "set", args[0], func(client *queue.Client, q *queue.QueueInfo) error {
			if flags.Changed("max-running") {
				q.MaxRunning = settings.MaxRunning
			}
			if flags.Changed("max-running-per-key") {
				q.MaxRunningPerKey = settings.MaxRunningPerKey
			}
			err := client.SetQueue(cmd.Context(), q.Name, q.QueueSettings)
			q.MaxRunningPerKey = max(q.MaxRunningPerKey, 1)
			return err
		})
	})
	return cmd
}
