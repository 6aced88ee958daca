package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/onceq/onceq/pkg/queue"
)

// The exit codes, a contract with scripts: docs/command.md.
const (
	exitOK       = 0
	exitFailure  = 1
	exitUsage    = 2
	exitConflict = 3
	exitInvalid  = 4
	exitRefused  = 5 // what was asked for is not there, or not so that it can be done
	exitWarning  = 6 // of doctor
	exitCritical = 7 // of doctor
)

// usageError marks an error that is the caller's misuse of the command.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitCode is an end that is no failure of the command itself and that the
// command has already reported.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// isMisuse tells that nothing was begun, since the caller asked for what can't be.
func (a *app) isMisuse(err error) bool {
	var misuse usageError
	return !a.started || errors.As(err, &misuse) || errors.Is(err, queue.ErrInvalidRequest)
}

// codeOf is the exit code of an error that is no misuse.
func codeOf(err error) int {
	if _, ok := errors.AsType[*queue.RedriveConflictError](err); ok {
		return exitConflict
	}
	for _, refusal := range []error{queue.ErrJobNotFound, queue.ErrBindingNotFound, queue.ErrNotScheduled} {
		if errors.Is(err, refusal) {
			return exitRefused
		}
	}
	return exitFailure
}

// reason is what an error of the library says about a request, without the
// words that every such error begins with.
func reason(err error) string {
	if wrapped, ok := errors.AsType[*queue.RequestError](err); ok {
		err = wrapped.Err
	}
	_, text, found := strings.Cut(err.Error(), queue.ErrInvalidRequest.Error()+": ")
	if !found {
		return err.Error()
	}
	return text
}

// oneLine is an error's text without the line breaks that pgx and cobra put in,
// and without what a terminal would act on.
func oneLine(err error) string { return clean(strings.Join(strings.Fields(err.Error()), " ")) }
