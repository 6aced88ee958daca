package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/pkg/queue"
)

func newWorker(client *queue.Client, pool *pgxpool.Pool, log *slog.Logger) (*queue.Worker, error) {
	worker, err := queue.NewWorker(client, queue.WorkerConfig{})
	if err != nil {
		return nil, err
	}
	queue.Handle(worker, "order.confirm", func(ctx context.Context, job *queue.Job[Order]) error {
		return confirm(ctx, job, pool, log)
	})
	return worker, nil
}

// confirm runs at least once for each order. The mail is a stage, so it is not
// sent again by an attempt that comes after it was; and since a crash can fall
// between sending and saving, the mail provider gets the job's id as its own
// idempotency key. The shop's row and the job's end commit together.
func confirm(ctx context.Context, job *queue.Job[Order], pool *pgxpool.Pool, log *slog.Logger) error {
	receipt, err := queue.Checkpoint(ctx, job, "mail", func(ctx context.Context) (string, error) {
		return sendMail(ctx, log, string(job.ID), job.Payload)
	})
	if err != nil {
		return err
	}
	log.Info("order confirmed", "order", job.Payload.ID, "receipt", receipt, "attempt", job.Attempt)
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE shop_order SET confirmed = now() WHERE id = $1", job.Payload.ID); err != nil {
			return err
		}
		return queue.CompleteTx(ctx, tx, job)
	})
}

// sendMail stands for the call of a mail provider.
func sendMail(_ context.Context, log *slog.Logger, idempotencyKey string, order Order) (string, error) {
	log.Info("mail sent", "to", order.Customer, "idempotency_key", idempotencyKey)
	return fmt.Sprintf("mail for %s", order.ID), nil
}
