package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/onceq/onceq/pkg/queue"
)

// workLimit bounds how long the demo waits for its workers.
const workLimit = time.Minute

// workJobs runs the jobs in real worker processes. The first one is killed right
// after the order's e-mail has gone out, in the middle of its attempt; another
// finishes the job without sending a second one.
func workJobs(ctx context.Context, p *page, db *database, onceq *command) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, workLimit, errors.New("the workers took too long"))
	defer cancel()
	p.title("The jobs are run, and a worker is killed")
	types, err := db.prepareWork(ctx)
	if err != nil {
		return err
	}
	order, err := db.client.Binding(ctx, scopeOrders, orderKey)
	if err != nil {
		return err
	}
	mailer, err := onceq.buildMailer(ctx)
	if err != nil {
		return err
	}

	first, err := mailer.begin(types, "-hang")
	if err != nil {
		return err
	}
	sent := until(ctx, func() (bool, error) { return db.happened(ctx, order.JobID, queue.EventCheckpointSaved) })
	if err := errors.Join(sent, first.kill()); err != nil {
		return err
	}
	p.say(fmt.Sprintf("One worker has sent the e-mail of %s, and was killed (SIGKILL) before it could finish.", short(order.JobID)))

	second, err := mailer.begin(types)
	if err != nil {
		return err
	}
	done := until(ctx, func() (bool, error) { return db.allSucceeded(ctx) })
	if err := errors.Join(done, second.stop()); err != nil {
		return err
	}
	p.say("Another one finished it when the lease had run out, and all the other jobs.")
	p.say("")
	return proveWork(ctx, p, db, order.JobID)
}

// prepareWork makes the table that stands for the mail provider, and lists the
// types of the jobs there are.
func (db *database) prepareWork(ctx context.Context) ([]string, error) {
	if _, err := db.pool.Exec(ctx, "CREATE TABLE demo_mail (job_id uuid NOT NULL, attempt int NOT NULL)"); err != nil {
		return nil, err
	}
	rows, err := db.pool.Query(ctx, "SELECT DISTINCT type FROM onceq.job ORDER BY type")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func (db *database) happened(ctx context.Context, id queue.JobID, kind queue.EventKind) (bool, error) {
	events, err := db.client.Events(ctx, id)
	for _, e := range events {
		if e.Kind == kind {
			return true, err
		}
	}
	return false, err
}

func (db *database) allSucceeded(ctx context.Context) (all bool, err error) {
	err = db.pool.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM onceq.job) = (SELECT count(*) FROM onceq.finished WHERE state = 1)`).Scan(&all)
	return all, err
}

// until looks again and again until what is asked is true.
func until(ctx context.Context, ask func() (bool, error)) error {
	for {
		yes, err := ask()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if yes || err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// proveWork shows the order's life and holds it against what was promised.
func proveWork(ctx context.Context, p *page, db *database, order queue.JobID) error {
	events, err := db.client.Events(ctx, order)
	if err != nil {
		return err
	}
	var rows []table.Row
	var kinds []string
	for _, e := range events {
		rows = append(rows, table.Row{e.At.Format("15:04:05.000"), e.Attempt, e.Kind})
		kinds = append(kinds, string(e.Kind))
	}
	p.table(table.Row{"time", "attempt", "what happened to the order's job"}, rows)
	p.say("")
	if got, want := strings.Join(kinds, " "), "accepted claimed checkpoint_saved lease_expired claimed succeeded"; got != want {
		return fmt.Errorf("the order's job went through %q, want %q", got, want)
	}
	var mails, jobs int
	if err := db.pool.QueryRow(ctx, "SELECT (SELECT count(*) FROM demo_mail), (SELECT count(*) FROM onceq.finished)").Scan(&mails, &jobs); err != nil {
		return err
	}
	if mails != 1 {
		return fmt.Errorf("the order's e-mail was sent %d times", mails)
	}
	p.say(fmt.Sprintf("Checked: %d jobs succeeded; the order was attempted twice and its e-mail sent once.", jobs))
	return nil
}

// mailer is the worker program, built for the demo.
type mailer struct {
	path string
	env  []string
}

func (c *command) buildMailer(ctx context.Context) (mailer, error) {
	m := mailer{path: c.folder + string(os.PathSeparator) + "mailer", env: c.env}
	_, err := goTool(ctx, "build", "-o", m.path, module+"/examples/demo/mailer")
	return m, err
}

// process is a worker that runs.
type process struct{ cmd *exec.Cmd }

func (m mailer) begin(types []string, flags ...string) (process, error) {
	cmd := exec.Command(m.path, append([]string{"-queues", "shop,webhooks", "-types", strings.Join(types, ",")}, flags...)...)
	cmd.Env = m.env
	cmd.Stderr = os.Stderr
	return process{cmd}, cmd.Start()
}

// kill ends the worker as a crash would: it can say and save nothing more.
func (p process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	var exit *exec.ExitError
	if err := p.cmd.Wait(); !errors.As(err, &exit) {
		return fmt.Errorf("a killed worker ended with %v", err)
	}
	return nil
}

// stop lets the worker drain.
func (p process) stop() error {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	return p.cmd.Wait()
}
