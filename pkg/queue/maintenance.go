package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/onceq/onceq/db"
)

// MaintenanceReport tells what each task of a maintenance pass did.
type MaintenanceReport struct{ Tasks []TaskReport }

// TaskReport is one task's part of a pass.
type TaskReport struct {
	Name string
	// Rows is how many rows it changed, also when it failed later.
	Rows int64
	Took time.Duration
	// Err is why it ended early. The other tasks are not affected by it.
	Err error
}

// expiredBindingsStep is how many bindings one statement of the clean-up looks
// at: a few milliseconds of work, with no lock that anybody waits for.
const expiredBindingsStep = 2000

// Maintain runs one pass of maintenance by hand: expired bindings are removed.
// Nothing depends on it but disk space, since an expired binding owns nothing.
// Every task works in bounded steps and fails alone, in its report; the error
// returned is for a pass that could not begin.
func (c *Client) Maintain(ctx context.Context) (MaintenanceReport, error) {
	if err := c.checkSchema(ctx, c.own); err != nil {
		return MaintenanceReport{}, fmt.Errorf("queue: maintain: %w", err)
	}
	var report MaintenanceReport
	for _, task := range []struct {
		name string
		run  func(context.Context) (int64, error)
	}{
		{"expired_bindings", c.deleteExpiredBindings},
	} {
		began := time.Now()
		rows, err := task.run(ctx)
		report.Tasks = append(report.Tasks, TaskReport{Name: task.name, Rows: rows, Took: time.Since(began), Err: err})
	}
	return report, nil
}

// deleteExpiredBindings walks once over the table of bindings, step by step.
func (c *Client) deleteExpiredBindings(ctx context.Context) (int64, error) {
	var deleted int64
	for after := "(0,0)"; ; {
		step, err := c.own.DeleteExpiredBindings(ctx, db.DeleteExpiredBindingsParams{After: after, Rows: expiredBindingsStep})
		if err != nil {
			return deleted, classify(err)
		}
		deleted += step.Deleted
		if step.LookedAt == 0 {
			return deleted, nil
		}
		after = step.Reached
	}
}
