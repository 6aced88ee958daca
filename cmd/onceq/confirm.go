package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/onceq/onceq/cmd/onceq/internal/handover"
)

var errNotConfirmed = errors.New("not confirmed; nothing was changed")

// announce tells a person what is about to be changed, and where. Programs that
// asked for JSON find the same in what they get.
func (a *app) announce(what string, where place) {
	if !a.json {
		fmt.Fprintf(a.stderr, "onceq will %s %s\n", what, where)
	}
}

// canAsk tells whether there is a person to answer a question.
func (a *app) canAsk() bool { return !a.json && isTerminal(a.stdin) && isTerminal(a.stderr) }

// confirm makes sure that what was announced is meant: by --yes, or by the name
// of the database, typed on a terminal.
func (a *app) confirm(ctx context.Context, yes bool, where place) error {
	if yes {
		return nil
	}
	if !a.canAsk() {
		return usagef("nobody can be asked here whether %s is meant: --yes says that it is", where)
	}
	fmt.Fprintf(a.stderr, "type the name of the database, %s, to go on: ", clean(where.Database))
	answer, err := a.readLine(ctx)
	if err != nil {
		fmt.Fprintln(a.stderr)
		return err
	}
	if strings.TrimSpace(answer) != where.Database {
		return errNotConfirmed
	}
	return nil
}

// readLine reads what a person types. It is left behind when ctx ends first.
func (a *app) readLine(ctx context.Context) (string, error) {
	type answer struct {
		line string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(io.LimitReader(a.stdin, 4<<10)).ReadString('\n')
		answered <- answer{line, err}
	}()
	select {
	case got := <-answered:
		if got.err != nil && got.line == "" {
			return "", errNotConfirmed
		}
		return got.line, nil
	case <-ctx.Done():
		return "", handover.ErrInterrupted
	}
}
