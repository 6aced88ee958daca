package modeltest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// holding is what the database holds, in the words of state.String.
func (w *world) holding() (string, error) {
	var lines []string
	var batch pgx.Batch
	batch.Queue(`
		SELECT
		  j.id::text, coalesce(f.state, CASE WHEN r.job_id IS NULL THEN -1 ELSE 0 END), coalesce(f.attempt, r.attempt, p.attempt),
		  j.queue, j.type, j.payload::text, j.priority, j.tags, j.max_attempts, j.deadline IS NOT NULL, coalesce(p.ready_at, 'epoch'),
		  num_nonnulls(p.job_id, r.job_id, f.job_id)
		FROM onceq.job AS j
		FULL JOIN onceq.pending AS p ON p.job_id = j.id AND p.queue = j.queue AND p.type = j.type AND p.priority = j.priority
		  AND p.ready_at = greatest(j.run_at, j.accepted_at) AND p.deadline IS NOT DISTINCT FROM j.deadline
		FULL JOIN onceq.running AS r ON r.job_id = j.id
		FULL JOIN onceq.finished AS f ON f.job_id = j.id`).Query(func(rows pgx.Rows) error {
		var id *string // NULL: a place without its job
		var state, attempts, priority, budget, places *int
		var name, kind, payload *string
		var tags []string
		var due *bool
		var readyAt *time.Time
		_, err := pgx.ForEachRow(rows, []any{&id, &state, &attempts, &name, &kind, &payload, &priority, &tags, &budget, &due, &readyAt, &places}, func() error {
			if id == nil || *places != 1 {
				return fmt.Errorf("a job and its place do not belong together: job %v", id)
			}
			at := place(*state + 1)
			line := fmt.Sprintf("%s %s attempts=%d: %s", *id, at, *attempts, describe(*name, *kind, *payload, *priority, tags, *budget, *due))
			if at == waiting {
				line += fmt.Sprintf(" at %d", w.tickOf(*readyAt))
			}
			lines = append(lines, line)
			return nil
		})
		return err
	})
	batch.Queue("SELECT scope, mode, job_id::text, expires_at, dead FROM onceq.binding").Query(func(rows pgx.Rows) error {
		var scope, id string
		var m mode
		var expires time.Time
		var dead bool
		_, err := pgx.ForEachRow(rows, []any{&scope, &m, &id, &expires, &dead}, func() error {
			lines = append(lines, fmt.Sprintf("%s %s of %s until %d dead=%t", scope, m, id, w.tickOf(expires), dead))
			return nil
		})
		return err
	})
	if err := w.pool.SendBatch(w.ctx, &batch).Close(); err != nil {
		return "", err
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}
