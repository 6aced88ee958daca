package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/cmd/onceq/internal/handover"
)

// app is one run of the command: its streams, its environment, and the flags
// that all commands share.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string

	databaseURL string
	schema      string
	json        bool

	// started tells that cobra has handed over to a command's own code: what
	// fails from then on is no misuse, unless it says so.
	started bool
	// unwritten is why a table did not reach stdout.
	unwritten error
}

// run executes the command line and returns the exit code. An error is one
// line on stderr.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	at, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = a.unwritten
	}
	var code exitCode
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case a.isMisuse(err):
		fmt.Fprintf(a.stderr, "onceq: %s (see %s --help)\n", oneLine(errors.New(reason(err))), at.CommandPath())
		return exitUsage
	case ctx.Err() != nil && !errors.Is(err, handover.ErrInterrupted):
		err = fmt.Errorf("%w: %w", handover.ErrInterrupted, err)
	}
	fmt.Fprintf(a.stderr, "onceq: %s\n", oneLine(err))
	return codeOf(err)
}

// command wraps a command's own code, so that its errors can be told from
// those of the command line.
func (a *app) command(run func(cmd *cobra.Command) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		a.started = true
		return run(cmd)
	}
}

// commandOn is command for those that take arguments.
func (a *app) commandOn(run func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		return run(cmd, args)
	}
}

// group is a command that only holds others.
func (a *app) group(name, short, long string, members ...*cobra.Command) *cobra.Command {
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.Name()
	}
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Long:  long,
		Args:  cobra.NoArgs,
		RunE: a.command(func(*cobra.Command) error {
			return usagef("%s needs one of: %s", name, strings.Join(names, ", "))
		}),
	}
	cmd.AddCommand(members...)
	return cmd
}

// one wants exactly one argument and says what it is.
func one(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("%s is needed, and nothing else; %d arguments were given", what, len(args))
		}
		return nil
	}
}

const rootLong = `onceq works on a queue in PostgreSQL that makes one job for one key, however
often the request is repeated.

The database is the one of --database-url, else of ONCEQ_DATABASE_URL, else of
DATABASE_URL. A password is safer in the environment: other users of a machine
can read the flags of a running program.

ONCEQ_KEY_SECRET, where the programs that share the queue use a key secret, is
that secret; it needs at least 16 bytes. ONCEQ_PREVIOUS_KEY_SECRETS lists those
that live keys may still stand under, separated by commas; none stands for the
time without a secret. Both are read from the environment alone.

A command that changes something first says on stderr what and where. Tables are
framed and coloured on a terminal, unless NO_COLOR is set, and plain in a pipe.
With --json stdout has one JSON document, or for lists one object a line.

Exit codes: 0 done; 1 failed or interrupted; 2 wrong usage; 3 some conflicts; 4
some invalid lines (and perhaps conflicts, too); 5 no such job or key, or not in
a state for it; 6 and 7, from doctor alone, warnings and worse.`

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "onceq",
		Short: "One job for one key, in PostgreSQL",
		Long:  rootLong,
		Example: `  export ONCEQ_DATABASE_URL=postgres://app@db.example/shop
  onceq migrate up
  onceq enqueue --type webhook --key-field id --file deliveries.ndjson`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.databaseURL, "database-url", "", "connection `URL` (default: from the environment)")
	flags.StringVar(&a.schema, "schema", "onceq", "`schema` of the queue's tables")
	flags.BoolVar(&a.json, "json", false, "write JSON for machines")
	root.AddCommand(a.migrateCommand(), a.enqueueCommand(), a.jobsCommand(), a.keysCommand(), a.deadCommand(),
		a.purgeCommand(), a.queuesCommand(), a.statsCommand(), a.maintainCommand(), a.doctorCommand())
	return root
}

// version is the module's version as the Go tool recorded it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
