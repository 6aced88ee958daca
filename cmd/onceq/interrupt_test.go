//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/cmd/onceq/internal/handover"
	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// feed starts onceq enqueue with a pipe as its input. Waiting for the command
// closes the pipe.
func feed(t *testing.T, pool *pgxpool.Pool, args ...string) (*command, io.Writer) {
	t.Helper()
	c := newCommand(t, pool.Config().ConnString(), append([]string{"enqueue", "--type", "t", "--key-field", "id"}, args...)...)
	pipe, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c, pipe
}

func send(t *testing.T, pipe io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(pipe, text); err != nil {
		t.Fatal(err)
	}
}

// await asks until the statement answers true.
func await(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !queryRow[bool](t, pool, sql, args...) {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("%s never came true", sql)
		}
	}
}

const jobsAre = "SELECT count(*) = $1 FROM onceq.job"

// Lines of a slow pipe don't wait for a batch to fill, and Ctrl-C tells how far
// it came.
func TestEnqueueInterrupted(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c, pipe := feed(t, pool)
	send(t, pipe, "{\"id\":1}\n")
	await(t, pool, jobsAre, 1)
	send(t, pipe, "{\"id\":2}\n{\"id\":3}\n{\"id\":")
	await(t, pool, jobsAre, 3)
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	c.ends(t, exitFailure).oneError(t, "interrupted", "all lines up to line 3 are settled", "safe")
	if got := summaryOf(t, c.stdout.String()); got.Accepted != 3 {
		t.Errorf("the summary tells %d accepted, want 3", got.Accepted)
	}
}

// A batch that is under way when Ctrl-C comes is waited for and counted.
func TestEnqueueInterruptedInABatch(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	commit := hold(t, pool, "1")
	c, pipe := feed(t, pool, "--json")
	send(t, pipe, "{\"id\":1}\n")
	await(t, pool, waiting)
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// Long enough for the signal to arrive, most likely; the answer is the same
	// when it doesn't.
	committed := make(chan struct{})
	time.AfterFunc(100*time.Millisecond, func() {
		defer close(committed)
		commit()
	})
	c.ends(t, exitFailure)
	<-committed
	if got := summaryOf(t, c.stdout.String()); got.Replayed != 1 || got.LastLine != 1 || got.Complete {
		t.Errorf("the summary is %+v, want the one line replayed", got)
	}
}

func TestEnqueueSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	commit := hold(t, pool, "1")
	defer commit()
	c, pipe := feed(t, pool)
	send(t, pipe, "{\"id\":1}\n")
	await(t, pool, waiting)
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	// A signal that meets another one still to be delivered is lost, so they are
	// sent until it helps.
	for {
		if err := c.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
				t.Errorf("it ended with %v, want by the signal", err)
			}
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// A lost connection tells what is settled, and the same input again makes up
// for the rest.
func TestEnqueueLosesItsConnection(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	commit := hold(t, pool, "3")
	c, pipe := feed(t, pool, "--workers", "1")
	send(t, pipe, "{\"id\":1}\nbad\n")
	await(t, pool, jobsAre, 1)
	send(t, pipe, "{\"id\":3}\n{\"id\":4}\n")
	await(t, pool, waiting)
	// Again and again: who looks for deadlocks does not seem to wait.
	await(t, pool, "SELECT coalesce(bool_or(pg_terminate_backend(pid)), false) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'onceq' AND wait_event_type = 'Lock'")
	c.ends(t, exitFailure)
	text := c.said()
	if !strings.HasPrefix(text, "line 2: invalid: ") || !strings.Contains(text, "\nonceq: enqueue: ") || strings.Count(text, "\n") != 2 ||
		!strings.Contains(text, "all lines up to line 2 are settled, and to run the same input again is safe") {
		t.Errorf("stderr says:\n%s", text)
	}
	commit()
	if got := tallyOf(t, pool.Config().ConnString(), exitOK, "{\"id\":1}\n{\"id\":3}\n{\"id\":4}\n"); got != (handover.Tally{Accepted: 1, Replayed: 2}) {
		t.Errorf("the second run counted %+v", got)
	}
}

// waiting tells that the command waits for somebody else's transaction.
const waiting = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'onceq' AND wait_event_type = 'Lock'"

// hold enqueues {"id":<key>} in a transaction that stays open until commit.
func hold(t *testing.T, pool *pgxpool.Pool, key string) (commit func()) {
	t.Helper()
	client, err := queue.New(pool, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tx.Rollback(context.Background()); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
			t.Error(err)
		}
	})
	req := queue.Request{Type: "t", Payload: json.RawMessage(`{"id":` + key + `}`), Admission: queue.Idempotency{Key: key}}
	if _, err := client.EnqueueTx(t.Context(), tx, req); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Commit(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

// Ctrl-C in the middle of a purge tells how far it came.
func TestPurgeInterrupted(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	client, err := queue.New(s.pool, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	reqs := make([]queue.Request, 700)
	for i := range reqs {
		reqs[i] = queue.Request{Type: "t", Payload: i}
	}
	if _, err := client.EnqueueMany(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
	// The second step waits at its last job.
	s.exec(`CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF OLD.payload = '699' THEN PERFORM pg_advisory_xact_lock(42); END IF; RETURN OLD; END $$`)
	s.exec(`CREATE TRIGGER hold BEFORE DELETE ON onceq.job FOR EACH ROW EXECUTE FUNCTION hold()`)
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if _, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(42)"); err != nil {
		t.Fatal(err)
	}
	c := newCommand(t, s.url(), "purge", "--all", "--yes")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, s.pool, waiting)
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	c.ends(t, exitFailure).oneError(t, "onceq: interrupted: ", "500 jobs were purged")
	if n := queryRow[int](t, s.pool, "SELECT count(*) FROM onceq.pending"); n != 200 {
		t.Errorf("%d jobs are left, want the 200 of the second step", n)
	}
}
