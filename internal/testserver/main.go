// Command testserver runs another command with a throwaway PostgreSQL:
//
//	go run ./internal/testserver -- go test ./...
//
// It starts one server, names it to the command in ONCEQ_TEST_DATABASE_URL, so
// that the test binaries of all packages share it, and stops it when the
// command has ended. Signals go on to the command and all that it started,
// and its exit code is passed on.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"github.com/onceq/onceq/internal/devpg"
)

const (
	// startLimit bounds the way down devpg's ladder, downloads included.
	startLimit = 10 * time.Minute
	// patience is how long a command may take to end after a signal.
	patience = 20 * time.Second
)

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: testserver [--] command [argument ...]")
		os.Exit(2)
	}
	code, err := run(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testserver:", err)
	}
	os.Exit(code)
}

// run returns the command's exit code, or 1 and why there is none.
func run(args []string) (code int, err error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, endings...)
	defer signal.Stop(signals)

	server, err := start(signals)
	if err != nil {
		return 1, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if stopErr := server.Stop(ctx); stopErr != nil {
			code, err = 1, errors.Join(err, stopErr)
		}
	}()
	say("%s", server.How)

	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), childEnv(server, os.Getenv(devpg.EnvServer))...)
	code, err = supervise(cmd, signals)
	if err != nil {
		return 1, err
	}
	if code != 0 && os.Getenv("ONCEQ_TEST_KEEP") == "1" && onTerminal() {
		say("the server stays up for you to look into what the failed tests kept: %s", server.URL)
		say("press Ctrl-C when you are done")
		<-signals
	}
	return code, nil
}

// start starts the server, unless a signal comes first.
func start(signals <-chan os.Signal) (*devpg.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	type result struct {
		server *devpg.Server
		err    error
	}
	started := make(chan result, 1)
	go func() {
		server, err := devpg.Start(ctx)
		started <- result{server, err}
	}()
	select {
	case r := <-started:
		if r.err == nil {
			for _, why := range r.server.Passed {
				say("passed over %v", why)
			}
		}
		return r.server, r.err
	case got := <-signals:
		cancel()
		if r := <-started; r.err == nil {
			return nil, errors.Join(fmt.Errorf("%v while starting", got), r.server.Stop(ctx))
		}
		return nil, fmt.Errorf("%v while starting", got)
	}
}

// childEnv names the server to the command. A rung that was forced stays
// forced for the tests that start a server of their own.
func childEnv(server *devpg.Server, forced string) []string {
	env := []string{devpg.EnvTestURL + "=" + server.URL}
	if forced != "" {
		env = append(env, devpg.EnvServer+"="+string(devpg.URL)+","+forced)
	}
	return env
}

// supervise runs cmd to its end, passing signals on to it and to all that it
// started. If it does not end in time after one, it is killed.
func supervise(cmd *exec.Cmd, signals <-chan os.Signal) (int, error) {
	group(cmd)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()

	var late <-chan time.Time
	for {
		select {
		case err := <-done:
			if late != nil {
				awaitGroup(cmd, late)
			}
			return exitCode(cmd.ProcessState, err)
		case got := <-signals:
			deliver(cmd, got)
			if late == nil {
				late = time.After(patience)
			}
		case <-late:
			deliver(cmd, os.Kill)
		}
	}
}

// exitCode is what a shell would say: a command ended by signal n gives 128+n.
func exitCode(state *os.ProcessState, err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case !errors.As(err, &exit):
		return 0, err
	case state.ExitCode() >= 0:
		return state.ExitCode(), nil
	default:
		return 128 + signalNumber(state), nil
	}
}

func onTerminal() bool {
	info, err := os.Stdin.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "testserver: "+format+"\n", args...)
}
