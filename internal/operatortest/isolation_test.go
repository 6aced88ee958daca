package operatortest

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// Where a role's transactions are stricter than usual PostgreSQL may refuse to
// fit any statement between others. It is asked again, and operators hear nothing
// of it.
func TestOperators_isolated(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			w := worldOf(t, pgtest.NewWith(t, func(cfg *pgxpool.Config) {
				cfg.MaxConns = 8
				cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
			}), queue.Config{Retention: queue.Retention{Dead: time.Millisecond, Events: time.Millisecond}})
			passed := time.Now().Add(-time.Hour)
			together(8, func(i int) {
				for n := range pgtest.Rounds(40) {
					id, err := w.client.Enqueue(w.ctx, queue.Request{Type: "t", Queue: fmt.Sprint(n % 3), Deadline: passed,
						Admission: queue.Idempotency{Key: fmt.Sprint(i, n), TTL: time.Millisecond}})
					if err != nil {
						t.Errorf("Enqueue: %v", err)
						return
					}
					switch i % 4 {
					case 0:
						report, err := w.client.Maintain(w.ctx)
						for _, task := range report.Tasks {
							if task.Err != nil {
								t.Errorf("maintenance, %s: %v", task.Name, task.Err)
							}
						}
						if err != nil {
							t.Errorf("Maintain: %v", err)
						}
					case 1:
						if _, err := w.client.Purge(w.ctx, queue.PurgeFilter{Queue: fmt.Sprint(n % 3)}); err != nil {
							t.Errorf("Purge: %v", err)
						}
					case 2:
						for _, err := range w.client.Jobs(w.ctx, queue.JobFilter{}) {
							if err != nil {
								t.Errorf("Jobs: %v", err)
							}
						}
					case 3:
						if err := w.client.SetQueue(w.ctx, "0", queue.QueueSettings{MaxRunning: n}); err != nil {
							t.Errorf("SetQueue: %v", err)
						}
						if _, err := w.client.Cancel(w.ctx, id, "no longer wanted"); err != nil {
							t.Errorf("Cancel: %v", err)
						}
					}
				}
			})
		})
	}
}
