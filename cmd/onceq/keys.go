package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/onceq/onceq/cmd/onceq/internal/handover"
	"github.com/onceq/onceq/pkg/queue"
)

// bindingJSON tells who owns a key; of a free key it shows the key alone.
type bindingJSON struct {
	Owned bool         `json:"owned"`
	Key   queue.KeyRef `json:"key"`
	*ownerJSON
}

type ownerJSON struct {
	Mode       string      `json:"mode"`
	JobID      queue.JobID `json:"job_id"`
	AcceptedAt utc         `json:"accepted_at"`
	ExpiresAt  utc         `json:"expires_at"`
	Dead       bool        `json:"dead"`
}

func (a *app) keysCommand() *cobra.Command {
	cmd := a.group("keys", "Show who owns a key", "keys answers questions about single keys. A key is hashed here; neither the\ndatabase nor any output gets to see it.", a.keysShowCommand())
	cmd.Args = noKey
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if strings.HasPrefix(err.Error(), "unknown ") { // a key may begin with a dash
			return usagef("an unknown flag; it isn't shown, since it may be a key: --key-file or --key gives one")
		}
		return err
	})
	return cmd
}

// noKey refuses arguments without showing them: a slip makes a key one.
func noKey(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("an argument that isn't wanted; it isn't shown, since it may be a key: --key-file or --key gives one")
	}
	return nil
}

func (a *app) keysShowCommand() *cobra.Command {
	var scope, key, keyFile string
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show which job owns a key, in which mode, until when",
		Long: `show hashes the key under every secret of the environment and tells which job
owns it. The answer names the key by its preview, digest and length.

A key on the command line stands in the shell's history, and other users of the
machine can read it while the command runs. --key-file reads it from a file, or
from stdin with -; one line break at its end is no part of it. On a terminal,
with neither flag, it is asked for and not shown.

Exit codes: 0 the key is owned, 1 failed, 2 wrong usage, 5 the key is free.`,
		Example: `  onceq keys show --scope orders --key ord_1001
  onceq keys show --scope orders
  printf %s "$KEY" | onceq keys show --scope orders --key-file - --json`,
		Args: noKey,
		RunE: a.command(func(cmd *cobra.Command) error {
			if !cmd.Flags().Changed("key") {
				var err error
				if key, err = a.readKey(cmd.Context(), keyFile); err != nil {
					return err
				}
			}
			return a.keysShow(cmd.Context(), scope, key)
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&scope, "scope", "", "`scope` of the key (default \"default\")")
	flags.StringVar(&key, "key", "", "the `key` itself")
	flags.StringVar(&keyFile, "key-file", "", "`file` that holds the key; - is stdin")
	cmd.MarkFlagsMutuallyExclusive("key", "key-file")
	must(cmd.RegisterFlagCompletionFunc("key", cobra.NoFileCompletions))
	return cmd
}

// maxKeyFile is more than the longest key, so that a longer one is refused by
// the library in its own words.
const maxKeyFile = 4 << 10

// readKey reads a key that is not on the command line. No error shows any of it.
func (a *app) readKey(ctx context.Context, path string) (string, error) {
	in := a.stdin
	switch {
	case path == "" && a.canAsk():
		return a.askKey(ctx)
	case path == "":
		return "", usagef("a key is needed: --key, or --key-file with - for stdin")
	case path != "-":
		file, err := os.Open(path)
		if err != nil {
			return "", usageError{err}
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxKeyFile))
	if err != nil {
		return "", fmt.Errorf("read the key: %w", err)
	}
	key, _ := strings.CutSuffix(string(text), "\n")
	key, _ = strings.CutSuffix(key, "\r")
	return key, nil
}

// askKey asks for a key on a terminal without showing it there. The terminal
// shows nothing from before the question on, and is set right again at the end.
func (a *app) askKey(ctx context.Context) (key string, err error) {
	fd := int(a.stdin.(*os.File).Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return "", fmt.Errorf("read the key: %w", err)
	}
	defer func() { err = errors.Join(err, term.Restore(fd, before)) }()
	type answer struct {
		key string
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		var got answer
		got.key, got.err = term.NewTerminal(struct {
			io.Reader
			io.Writer
		}{a.stdin, a.stderr}, "").ReadPassword("key: ")
		answered <- got
	}()
	select {
	case got := <-answered:
		if errors.Is(got.err, io.EOF) { // Ctrl-C or Ctrl-D
			fmt.Fprint(a.stderr, "\r\n")
			return "", handover.ErrInterrupted
		}
		return got.key, got.err
	case <-ctx.Done():
		fmt.Fprint(a.stderr, "\r\n")
		return "", handover.ErrInterrupted
	}
}

func (a *app) keysShow(ctx context.Context, scope, key string) error {
	return a.connected(ctx, func(client *queue.Client, _ place) error {
		b, err := client.Binding(ctx, scope, key)
		free := errors.Is(err, queue.ErrBindingNotFound)
		switch {
		case err != nil && !free:
			return err
		case a.json && free:
			err = a.writeJSON(bindingJSON{Key: b.Key})
		case a.json:
			err = a.writeJSON(bindingJSON{true, b.Key, &ownerJSON{b.Mode, b.JobID, utc{b.AcceptedAt}, utc{b.ExpiresAt}, b.Dead}})
		case free:
			_, err = fmt.Fprintf(a.stdout, "free: %s\n", b.Key)
		default:
			t := a.newTable()
			t.AppendRows([]table.Row{
				{"key", keyText(b.Key)},
				{"mode", b.Mode},
				{"job", b.JobID},
				{"accepted", instant(b.AcceptedAt)},
				{"expires", instant(b.ExpiresAt)},
				{"dead", a.yesNo(b.Dead)},
			})
			t.Render()
		}
		if err == nil && free {
			return exitCode(exitRefused)
		}
		return err
	})
}
