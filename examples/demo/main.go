// Demo shows on a throwaway PostgreSQL what onceq is for, and proves it: a
// double click, a webhook delivered three times, a client whose answer was
// lost, and a bug that reuses a key; then a file of deliveries through the
// onceq command; then the jobs are run by workers, one of which is killed.
//
//	go run ./examples/demo
//
// It needs Go and one of Docker, PostgreSQL's server programs or a network, and
// leaves nothing behind. ONCEQ_TEST_DATABASE_URL names a server to use instead;
// the demo then makes a database of its own there and drops it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx, newPage(os.Stdout))
	switch {
	case err == nil:
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "demo: interrupted")
		os.Exit(1)
	default:
		fmt.Fprintf(os.Stderr, "demo: NOT PROVED: %v\n", err)
		os.Exit(1)
	}
}

// run tells the whole story. An error means that something was not as promised
// or could not be shown; nothing is left behind either way.
func run(ctx context.Context, p *page) (err error) {
	p.title("onceq: one job for one key")
	db, err := startDatabase(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.stop(context.WithoutCancel(ctx))) }()

	onceq, err := buildCommand(ctx, db.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, onceq.remove()) }()
	p.say("command     built from ./cmd/onceq")
	p.say("")
	if err := onceq.run(ctx, p, 0, "migrate", "up"); err != nil {
		return err
	}

	if err := db.connect(ctx); err != nil {
		return err
	}
	if err := tellStory(ctx, p, db); err != nil {
		return err
	}
	if err := feedDeliveries(ctx, p, db, onceq); err != nil {
		return err
	}
	if err := workJobs(ctx, p, db, onceq); err != nil {
		return err
	}
	keys, err := oneJobPerKey(ctx, db)
	if err != nil {
		return err
	}
	p.title(fmt.Sprintf("PROVED: one job per key (%d keys, %d jobs in PostgreSQL)", keys, keys))
	return nil
}
