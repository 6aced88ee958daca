package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/db"
)

// Retention says how long what has ended is kept: 1 ms to 10 years each.
type Retention struct {
	// Succeeded is how long succeeded jobs are kept. Zero is 7 days.
	Succeeded time.Duration
	// Dead is how long dead jobs are kept. Zero is 30 days.
	Dead time.Duration
	// Cancelled is how long cancelled jobs are kept. Zero is 30 days.
	Cancelled time.Duration
	// Events is how long events are kept. Zero is 30 days.
	Events time.Duration
}

const (
	day          = 24 * time.Hour
	maxRetention = 3650 * day
)

func (r Retention) withDefaults() Retention {
	return Retention{
		Succeeded: orDefault(r.Succeeded, 7*day), Dead: orDefault(r.Dead, 30*day),
		Cancelled: orDefault(r.Cancelled, 30*day), Events: orDefault(r.Events, 30*day),
	}
}

// shortest is the time for which every ended job is kept.
func (r Retention) shortest() time.Duration { return min(r.Succeeded, r.Dead, r.Cancelled) }

func (p *problems) retention(r Retention) {
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"Succeeded", r.Succeeded}, {"Dead", r.Dead}, {"Cancelled", r.Cancelled}, {"Events", r.Events}} {
		if f.value < minDuration || f.value > maxRetention {
			p.add("Retention."+f.name, "%s; allowed are 1ms to 3650 days", f.value)
		}
	}
}

// MaintenanceReport tells what each task of a maintenance pass did.
type MaintenanceReport struct{ Tasks []TaskReport }

// TaskReport is one task's part of a pass.
type TaskReport struct {
	// Name is expired_leases, deadlines, expired_bindings, finished_jobs, events or
	// redrives.
	Name string
	// Rows is how many rows it changed, also when it failed later.
	Rows int64
	Took time.Duration
	// Err is why it ended early. The other tasks are not affected by it.
	Err error
}

// task is one piece of upkeep, done in bounded steps.
type task struct {
	name string
	run  func(context.Context, *db.Queries) (int64, error)
}

// urgentTasks are those that jobs wait for; the others only give room back.
func (c *Client) urgentTasks() []task {
	return []task{
		{"expired_leases", func(ctx context.Context, q *db.Queries) (int64, error) { return whileFull(ctx, q.EndExpiredLeases) }},
		{"deadlines", func(ctx context.Context, q *db.Queries) (int64, error) { return whileFull(ctx, q.EndPassedDeadlines) }},
	}
}

func (c *Client) slowTasks() []task {
	return []task{
		{"expired_bindings", func(ctx context.Context, q *db.Queries) (int64, error) {
			return walk(ctx, func(after string) (string, int64, int64, error) {
				s, err := q.DeleteExpiredBindings(ctx, db.DeleteExpiredBindingsParams{After: after, Rows: walkStep})
				return s.Reached, s.LookedAt, s.Deleted, err
			})
		}},
		{"finished_jobs", func(ctx context.Context, q *db.Queries) (int64, error) {
			return walk(ctx, func(after string) (string, int64, int64, error) {
				s, err := q.DeleteOldFinished(ctx, db.DeleteOldFinishedParams{After: after, Rows: walkStep,
					SucceededUs: c.retention.Succeeded.Microseconds(), DeadUs: c.retention.Dead.Microseconds(), CancelledUs: c.retention.Cancelled.Microseconds()})
				return s.Reached, s.LookedAt, s.Deleted, err
			})
		}},
		{"events", func(ctx context.Context, q *db.Queries) (int64, error) {
			return walk(ctx, func(after string) (string, int64, int64, error) {
				s, err := q.DeleteOldEvents(ctx, db.DeleteOldEventsParams{After: after, Rows: walkStep, RetentionUs: c.retention.Events.Microseconds()})
				return s.Reached, s.LookedAt, s.Deleted, err
			})
		}},
		{"redrives", func(ctx context.Context, q *db.Queries) (int64, error) {
			return walk(ctx, func(after string) (string, int64, int64, error) {
				s, err := q.DeleteOldRedrives(ctx, db.DeleteOldRedrivesParams{After: after, Rows: walkStep, RetentionUs: c.retention.shortest().Microseconds()})
				return s.Reached, s.LookedAt, s.Deleted, err
			})
		}},
	}
}

// Maintain runs one pass of maintenance by hand: expired leases, passed
// deadlines, expired bindings, ended jobs and events past their retention, and
// records of redrives whose jobs are gone.
// Workers do the same by themselves. Scheduled jobs need no task: they are ready
// when PostgreSQL's clock says so. Every task works in bounded steps and fails
// alone, in its report; the error returned is for a pass that could not begin.
// A turn of the workers that is due counts as taken.
func (c *Client) Maintain(ctx context.Context) (MaintenanceReport, error) {
	if err := c.checkSchema(ctx, c.own); err != nil {
		return MaintenanceReport{}, fmt.Errorf("queue: maintain: %w", err)
	}
	for name, cadence := range map[string]time.Duration{urgentTurn: urgentCadence, slowTurn: slowCadence} {
		_, err := c.own.TakeUpkeep(ctx, db.TakeUpkeepParams{Name: name, CadenceUs: cadence.Microseconds()})
		if err != nil && !errors.Is(err, pgx.ErrNoRows) && ctx.Err() == nil {
			c.log.Warn("maintenance turn not taken", "turn", name, "error", err)
		}
	}
	return c.perform(ctx, c.own, append(c.urgentTasks(), c.slowTasks()...)), nil
}

func (c *Client) perform(ctx context.Context, q *db.Queries, tasks []task) MaintenanceReport {
	var report MaintenanceReport
	for _, t := range tasks {
		began := time.Now()
		rows, err := t.run(ctx, q)
		report.Tasks = append(report.Tasks, TaskReport{Name: t.name, Rows: rows, Took: time.Since(began), Err: classify(err)})
	}
	return report
}

const (
	// walkStep is how many rows one step of a walk looks at, and fullStep how many
	// jobs one step ends: a few milliseconds each, with no lock others wait for.
	walkStep = 2000
	fullStep = 200
)

// whileFull repeats a step for as long as it comes back full.
func whileFull(ctx context.Context, step func(context.Context, int64) (int64, error)) (int64, error) {
	var rows int64
	for {
		var n int64
		err := again(ctx, func() (err error) {
			n, err = step(ctx, fullStep)
			return err
		})
		rows += n
		if err != nil || n < fullStep {
			return rows, err
		}
	}
}

// walk goes once over a table, step by step, in the order of row addresses.
func walk(ctx context.Context, step func(after string) (reached string, lookedAt, deleted int64, err error)) (int64, error) {
	var rows int64
	for after := "(0,0)"; ; {
		var reached string
		var lookedAt, deleted int64
		err := again(ctx, func() (err error) {
			reached, lookedAt, deleted, err = step(after)
			return err
		})
		rows += deleted
		if err != nil || lookedAt == 0 {
			return rows, err
		}
		after = reached
	}
}

const (
	urgentCadence = time.Second
	slowCadence   = 10 * time.Minute

	urgentTurn = "urgent"
	slowTurn   = "slow"
)

// upkeep is a worker's part in one kind of maintenance, until ctx ends. Workers
// take turns: whoever finds a turn due takes it and moves its time.
func (w *Worker) upkeep(ctx context.Context, turn string, cadence time.Duration, tasks []task) {
	tick := time.NewTicker(urgentCadence / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.takeTurn(ctx, turn, cadence, tasks)
		}
	}
}

func (w *Worker) takeTurn(ctx context.Context, name string, cadence time.Duration, tasks []task) {
	_, err := w.q.TakeUpkeep(ctx, db.TakeUpkeepParams{Name: name, CadenceUs: cadence.Microseconds()})
	if errors.Is(err, pgx.ErrNoRows) {
		return
	}
	if err != nil {
		if ctx.Err() == nil {
			w.log.Warn("maintenance turn not taken", "turn", name, "error", err)
		}
		return
	}
	for _, t := range w.c.perform(ctx, w.q, tasks).Tasks {
		if t.Err != nil && ctx.Err() == nil {
			w.log.Warn("maintenance task failed", "task", t.Name, "error", t.Err)
		} else if t.Rows > 0 {
			w.log.Debug("maintenance", "task", t.Name, "rows", t.Rows, "took", t.Took)
			w.nudgeAll()
		}
	}
}

func (w *Worker) nudgeAll() {
	for _, s := range w.queues {
		s.nudge()
	}
}
