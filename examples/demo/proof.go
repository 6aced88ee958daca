package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/onceq/onceq/pkg/queue"
)

// proveStory shows the story's rows and holds them against the answers.
func proveStory(ctx context.Context, p *page, db *database, story []*request) error {
	if err := checkAnswers(story); err != nil {
		return err
	}
	p.say("")
	p.say("The rows in PostgreSQL:")
	p.say("")
	rows, err := storedJobs(ctx, db, "shop")
	if err != nil {
		return err
	}
	var shown []table.Row
	for _, r := range rows {
		shown = append(shown, table.Row{r.Scope, r.Preview, r.Type, short(queue.JobID(r.ID)), r.Payload})
	}
	p.table(table.Row{"scope", "key, as it is shown", "type", "job", "payload"}, shown)
	p.say("")

	named := map[queue.JobID]bool{}
	for _, key := range [][2]string{{scopeOrders, orderKey}, {scopeWebhooks, eventKey}, {scopePayments, paymentKey}} {
		binding, err := db.client.Binding(ctx, key[0], key[1])
		if err != nil {
			return fmt.Errorf("the key of %s: %w", key[0], err)
		}
		named[binding.JobID] = true
	}
	for _, r := range story {
		if r.status != 0 && !named[r.answer.Job] {
			return fmt.Errorf("the answer to %q names job %s, which owns no key", r.what, r.answer.Job)
		}
	}
	if len(rows) != len(named) {
		return fmt.Errorf("%d keys have %d jobs", len(named), len(rows))
	}
	for _, r := range rows {
		if !named[queue.JobID(r.ID)] {
			return fmt.Errorf("job %s was made and no answer names it", r.ID)
		}
	}
	p.say(fmt.Sprintf("Checked: %d requests, %d keys, %d jobs; every answer names the one job of its key.", len(story), len(named), len(rows)))
	return nil
}

// checkAnswers holds the answers against what was promised.
func checkAnswers(story []*request) error {
	want := []expected{
		{}, {}, // the double click: either order, see below
		{202, "accepted"}, {200, "replayed"}, {200, "replayed"},
		{0, "?"}, {200, "replayed"},
		{409, "conflict in payload"},
	}
	clicks := []string{story[0].outcome(), story[1].outcome()}
	slices.Sort(clicks)
	if !slices.Equal(clicks, []string{"accepted", "replayed"}) {
		return fmt.Errorf("the double click was decided as %v", clicks)
	}
	for i, w := range want[2:] {
		if r := story[i+2]; r.status != w.status || r.outcome() != w.outcome {
			return fmt.Errorf("%q got %s and %s, want %d and %s", r.what, r.statusText(), r.outcome(), w.status, w.outcome)
		}
	}
	if job := story[0].answer.Job; story[1].answer.Job != job || story[7].answer.Job != job {
		return errors.New("the requests for one order name several jobs")
	}
	return nil
}

// storedJob is a job as it stands in PostgreSQL.
type storedJob struct{ ID, Scope, Preview, Type, Payload string }

func storedJobs(ctx context.Context, db *database, queueName string) ([]storedJob, error) {
	rows, err := db.pool.Query(ctx, `
		SELECT id::text, key_scope, key_preview, type, payload::text
		FROM onceq.job
		WHERE queue = $1
		ORDER BY id`, queueName)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[storedJob])
}

// oneJobPerKey asks PostgreSQL, of all that the demo has made: does every key
// have exactly one job, every job exactly one key, and does the key's binding
// name that job? It returns the number of keys.
func oneJobPerKey(ctx context.Context, db *database) (int, error) {
	var keys, jobs, bindings, wrong int
	err := db.pool.QueryRow(ctx, `
		SELECT
			(SELECT count(DISTINCT key_hash) FROM onceq.job),
			(SELECT count(*) FROM onceq.job),
			(SELECT count(*) FROM onceq.binding),
			(SELECT count(*)
			 FROM onceq.job AS j
			 FULL JOIN onceq.binding AS b ON b.key_hash = j.key_hash
			 WHERE j.id IS DISTINCT FROM b.job_id)`).Scan(&keys, &jobs, &bindings, &wrong)
	switch {
	case err != nil:
		return 0, err
	case jobs != keys || bindings != keys || wrong != 0:
		return 0, fmt.Errorf("%d keys, %d jobs, %d bindings, %d of them at odds", keys, jobs, bindings, wrong)
	}
	return keys, nil
}
