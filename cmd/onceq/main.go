// Command onceq migrates the schema of a queue and hands over requests to it
// from files and pipes. It is a thin layer of flags and output around
// pkg/queue and schema: every decision is theirs.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for an orderly end; the second one ends at once.
	context.AfterFunc(ctx, stop)
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}
	os.Exit(a.run(ctx, os.Args[1:]))
}
