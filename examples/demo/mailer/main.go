// Mailer is the worker process of the demo. It confirms orders by an e-mail (a
// row in demo_mail stands for it) and takes note of everything else.
//
//	ONCEQ_DATABASE_URL=postgres://... mailer -queues shop,webhooks -types order.place,invoice.paid [-hang]
//
// With -hang it never finishes an order after its e-mail has gone out, so that
// the demo can kill it there.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/pkg/queue"
)

func main() {
	queues := flag.String("queues", "", "comma separated")
	types := flag.String("types", "", "comma separated")
	hang := flag.Bool("hang", false, "stop after an e-mail has gone out")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, strings.Split(*queues, ","), strings.Split(*types, ","), *hang); err != nil {
		fmt.Fprintln(os.Stderr, "mailer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, queues, types []string, hang bool) error {
	pool, err := pgxpool.New(ctx, os.Getenv("ONCEQ_DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := queue.New(pool, queue.Config{})
	if err != nil {
		return err
	}
	handlers := map[string]int{}
	for _, name := range queues {
		handlers[name] = 10
	}
	// A shorter lease would be over sooner after the kill, but also where the machine
	// stands still for a moment, which is another story than the one that is told.
	worker, err := queue.NewWorker(client, queue.WorkerConfig{Queues: handlers, Lease: 5 * time.Second, ID: fmt.Sprintf("mailer %d", os.Getpid())})
	if err != nil {
		return err
	}
	for _, jobType := range types {
		queue.Handle(worker, jobType, func(ctx context.Context, job *queue.Job[json.RawMessage]) error {
			if job.Type != "order.place" {
				return nil
			}
			return confirm(ctx, job, pool, hang)
		})
	}
	return worker.Run(ctx)
}

// confirm sends the e-mail as a stage: an attempt that comes after one which has
// sent it does not send it again.
func confirm(ctx context.Context, job *queue.Job[json.RawMessage], pool *pgxpool.Pool, hang bool) error {
	_, err := queue.Checkpoint(ctx, job, "mail", func(ctx context.Context) (int, error) {
		_, err := pool.Exec(ctx, "INSERT INTO demo_mail (job_id, attempt) VALUES ($1, $2)", string(job.ID), job.Attempt)
		return job.Attempt, err
	})
	if err != nil {
		return err
	}
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}
