// Shop is a small service to copy: an HTTP API that takes orders in its own
// transaction together with their jobs, and a worker that confirms them.
//
//	DATABASE_URL=postgres://... go run ./examples/shop
//	curl -H 'Idempotency-Key: ord_1' -d '{"customer":"cus_7","amount":4200}' http://127.0.0.1:8080/orders
//
// Send the request twice: one order, one confirmation, one answer.
package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/pkg/queue"
	"github.com/onceq/onceq/schema"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	address := os.Getenv("SHOP_ADDRESS")
	if address == "" {
		address = "127.0.0.1:8080"
	}
	if err := run(ctx, log, os.Getenv("DATABASE_URL"), address); err != nil {
		log.Error("shop ended", "error", err)
		os.Exit(1)
	}
}

// run serves until ctx ends, then lets requests and handlers finish.
func run(ctx context.Context, log *slog.Logger, databaseURL, address string) error {
	pool, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	// Many processes may do this at once: one migrates, the others wait.
	if err := schema.Migrate(ctx, pool); err != nil {
		return err
	}
	if err := createTables(ctx, pool); err != nil {
		return err
	}
	client, err := queue.New(pool, queue.Config{Logger: log})
	if err != nil {
		return err
	}
	worker, err := newWorker(client, pool, log)
	if err != nil {
		return err
	}

	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: newAPI(pool, client), ReadHeaderTimeout: 5 * time.Second}
	log.Info("shop is open", "address", listener.Addr().String())

	// Whichever of the two ends first, ends the other.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	working := make(chan error, 1)
	go func() {
		defer stop()
		working <- worker.Run(ctx)
	}()
	serving := make(chan error, 1)
	go func() {
		defer stop()
		serving <- server.Serve(listener)
	}()

	<-ctx.Done()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = server.Shutdown(closing)
	if served := <-serving; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return errors.Join(err, <-working)
}
