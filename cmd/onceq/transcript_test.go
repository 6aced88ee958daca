package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// transcript is a session at a shell, as the golden files keep it: each command
// as it is typed, what it wrote to stdout and stderr, and its exit code.
type transcript struct {
	t    *testing.T
	pool *pgxpool.Pool
	text strings.Builder
	// shown is what the commands wrote, without how they were called.
	shown strings.Builder
}

func newTranscript(t *testing.T) *transcript {
	t.Helper()
	return &transcript{t: t, pool: pgtest.New(t)}
}

func (s *transcript) url() string { return s.pool.Config().ConnString() }

// run runs a command with pipes.
func (s *transcript) run(code int, args ...string) *command {
	s.t.Helper()
	return s.runs(newCommand(s.t, s.url(), args...), code)
}

func (s *transcript) runs(c *command, code int) *command {
	s.t.Helper()
	c.ends(s.t, code)
	s.typed(c)
	s.shown.WriteString(c.stdout.String() + c.stderr.String())
	s.text.WriteString(c.stdout.String())
	for line := range strings.Lines(c.stderr.String()) {
		s.text.WriteString("2> " + line)
	}
	s.exit(code)
	return c
}

func (s *transcript) typed(c *command) {
	words := []string{"$ onceq"}
	for _, arg := range c.Args[1:] {
		if strings.ContainsAny(arg, " ") || arg == "" {
			arg = "'" + arg + "'"
		}
		words = append(words, arg)
	}
	s.text.WriteString(strings.Join(words, " ") + "\n")
}

func (s *transcript) exit(code int) {
	if code != exitOK {
		fmt.Fprintf(&s.text, "(exit %d)\n", code)
	}
	s.text.WriteString("\n")
}

var (
	anID     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)
	aTime    = regexp.MustCompile(`20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|\+\d\d:\d\d)`)
	aSchema  = regexp.MustCompile(`(at version |"schema_version":|"needed_version":)[1-9]\d*`)
	aVersion = regexp.MustCompile(`PostgreSQL 1\d[^"\n]*|"server_version":"[^"]*"`)
	aLength  = regexp.MustCompile(`("(?:took|elapsed|oldest_ready)_seconds":)[0-9.e-]+`)
)

// golden compares the session with a file. What differs from run to run stands
// there under names of the same length where a table depends on it.
func (s *transcript) golden(name string) {
	s.t.Helper()
	server := s.pool.Config().ConnConfig
	text := strings.NewReplacer(
		server.Database, "shop",
		fmt.Sprintf(`"host":%q,"port":%d`, server.Host, server.Port), `"host":"127.0.0.1","port":5432`,
		fmt.Sprintf("%s:%d/", server.Host, server.Port), "127.0.0.1:5432/",
		fmt.Sprintf("role %q", server.User), `role "postgres"`,
		fmt.Sprintf(`role \"%s\"`, server.User), `role \"postgres\"`,
		fmt.Sprintf(`"role":%q`, server.User), `"role":"postgres"`,
	).Replace(s.text.String())
	ids := map[string]string{}
	text = anID.ReplaceAllStringFunc(text, func(id string) string {
		if ids[id] == "" {
			ids[id] = fmt.Sprintf("00000000-0000-7000-8000-%012d", len(ids)+1)
		}
		return ids[id]
	})
	text = aTime.ReplaceAllStringFunc(text, func(at string) string {
		if strings.HasPrefix(at, "2099") {
			return at
		}
		if strings.Contains(at, "T") {
			return "2026-01-01T00:00:00.000000Z"
		}
		return "2026-01-01 00:00:00Z"
	})
	text = aSchema.ReplaceAllString(text, "${1}6")
	text = aVersion.ReplaceAllStringFunc(text, func(v string) string {
		if strings.HasPrefix(v, "P") {
			return "PostgreSQL 15.0"
		}
		return `"server_version":"15.0"`
	})
	golden(s.t, name, aLength.ReplaceAllString(text, "${1}0.001"))
}

// shop is a queue in the middle of its work, for the commands to look at.
type shop struct {
	client *queue.Client
	// By what they are: dead ones are older than the others.
	dead, succeeded, ready, scheduled, debounced queue.JobID
}

// open seeds the shop: one job in each state but running.
func (s *transcript) open() shop {
	s.t.Helper()
	client, err := queue.New(s.pool, queue.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	shop := shop{client: client}
	shop.dead = s.enqueue(client, queue.Request{Type: "mail.send", Queue: "mail", Payload: map[string]any{"to": "cus_7"}, MaxAttempts: 1, Tags: []string{"eu", "vip"},
		Admission: queue.Idempotency{Key: "order-1001-confirmation-mail", Scope: "orders"}})
	shop.succeeded = s.enqueue(client, queue.Request{Type: "order.place", Payload: json.RawMessage(`{"id": 1001, "amount": 0.10}`)})
	worker, err := queue.NewWorker(client, queue.WorkerConfig{Queues: map[string]int{"mail": 1, "default": 1}, ID: "worker-1"})
	if err != nil {
		s.t.Fatal(err)
	}
	queue.Handle(worker, "mail.send", func(context.Context, *queue.Job[json.RawMessage]) error {
		return errors.New("the mail server said no\nand \x1b[31mmore\x07")
	})
	queue.Handle(worker, "order.place", func(context.Context, *queue.Job[json.RawMessage]) error { return nil })
	s.work(worker, "SELECT count(*) = 2 FROM onceq.finished")
	shop.ready = s.enqueue(client, queue.Request{Type: "order.ship", Payload: 1001, Priority: 7, ConcurrencyKey: "cus_7"})
	shop.scheduled = s.enqueue(client, queue.Request{Type: "invoice.remind", Queue: "mail",
		RunAt: time.Date(2099, 3, 1, 12, 0, 0, 0, time.UTC), Deadline: time.Date(2099, 3, 2, 12, 0, 0, 0, time.UTC)})
	shop.debounced = s.enqueue(client, queue.Request{Type: "reindex", Admission: queue.Debounce{Key: "document-77", Window: 24 * time.Hour}})
	return shop
}

func (s *transcript) enqueue(client *queue.Client, req queue.Request) queue.JobID {
	s.t.Helper()
	id, err := client.Enqueue(s.t.Context(), req)
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// work runs a worker until the statement answers true.
func (s *transcript) work(w *queue.Worker, until string) {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	await(s.t, s.pool, until)
	stop()
	if err := <-ended; err != nil {
		s.t.Fatal(err)
	}
}

// exec changes the database behind the queue's back.
func (s *transcript) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.pool.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatal(err)
	}
}

// wait lets the waiting jobs of a type, all of them for %, have been accepted so
// long ago.
func (s *transcript) wait(jobType, interval string) {
	s.t.Helper()
	s.exec(`WITH moment AS (SELECT clock_timestamp() - $2::text::interval AS at),
		moved AS (UPDATE onceq.job SET accepted_at = moment.at, run_at = moment.at FROM moment WHERE type LIKE $1)
		UPDATE onceq.pending SET ready_at = moment.at FROM moment WHERE type LIKE $1`, jobType, interval)
}
