package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// The exit codes, a contract with scripts.
const (
	exitOK       = 0
	exitFailure  = 1
	exitUsage    = 2
	exitConflict = 3
	exitInvalid  = 4
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
}

// usageError marks an error that is the caller's misuse of the command.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitCode is an end that is no failure of the command itself and that the
// command has already reported.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// run executes the command line and returns the exit code. An error is one
// line on stderr.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	at, err := root.ExecuteContextC(ctx)
	var code exitCode
	var misuse usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case !a.started || errors.As(err, &misuse):
		fmt.Fprintf(a.stderr, "onceq: %s (see %s --help)\n", oneLine(err), at.CommandPath())
		return exitUsage
	}
	fmt.Fprintf(a.stderr, "onceq: %s\n", oneLine(err))
	return exitFailure
}

// oneLine is an error's text without the line breaks that pgx and cobra put in.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// command wraps a command's own code, so that its errors can be told from
// those of the command line.
func (a *app) command(run func(cmd *cobra.Command) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		a.started = true
		return run(cmd)
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

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 some conflicts, 4 some invalid
lines (and perhaps conflicts, too).`

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
	flags.StringVar(&a.databaseURL, "database-url", "", "connection `URL` of the database (default: from the environment)")
	flags.StringVar(&a.schema, "schema", "onceq", "PostgreSQL `schema` of the queue's tables")
	flags.BoolVar(&a.json, "json", false, "write JSON for machines")
	root.AddCommand(a.migrateCommand(), a.enqueueCommand())
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
