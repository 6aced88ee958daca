package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Age moves everything that a queue's tables know about time into the past,
// which is the same to the queue as if that time had passed.
func Age(t testing.TB, pool *pgxpool.Pool, by time.Duration) {
	t.Helper()
	ctx := context.Background()
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for _, sql := range []string{
			"UPDATE onceq.binding SET accepted_at = accepted_at - $1::interval, expires_at = expires_at - $1::interval",
			"UPDATE onceq.job SET accepted_at = accepted_at - $1::interval, run_at = run_at - $1::interval, deadline = deadline - $1::interval",
			"UPDATE onceq.pending SET ready_at = ready_at - $1::interval, deadline = deadline - $1::interval",
			"UPDATE onceq.running SET claimed_at = claimed_at - $1::interval, lease_until = lease_until - $1::interval, deadline = deadline - $1::interval",
			"UPDATE onceq.finished SET finished_at = finished_at - $1::interval, claimed_at = claimed_at - $1::interval",
			"UPDATE onceq.event SET at = at - $1::interval",
			"UPDATE onceq.redrive SET at = at - $1::interval",
		} {
			if _, err := tx.Exec(ctx, sql, by); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
