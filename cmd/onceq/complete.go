package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/pkg/queue"
)

// completionLimit bounds how long a shell waits for names out of the database.
const completionLimit = 2 * time.Second

// oneOf completes to one of some words.
func oneOf(words ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
}

// completeQueues completes the flag --queue to the queues of the database.
func (a *app) completeQueues(cmd *cobra.Command) {
	must(cmd.RegisterFlagCompletionFunc("queue", a.queueNames))
}

// queueNames completes to the queues of the database, or to nothing when it
// can't be asked.
func (a *app) queueNames(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
	defer cancel()
	var names []string
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	err := a.connected(ctx, func(client *queue.Client, _ place) error {
		queues, err := client.Queues(ctx)
		for _, q := range queues {
			if strings.HasPrefix(q.Name, typed) && clean(q.Name) == q.Name {
				names = append(names, q.Name)
			}
		}
		return err
	})
	if err != nil {
		cobra.CompDebugln(oneLine(err), false)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
