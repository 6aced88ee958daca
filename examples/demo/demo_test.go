package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/internal/devpg"
	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// The whole demo, on the server of the tests. It changes the environment, so it
// runs alone.
func TestDemo(t *testing.T) {
	admin := pgtest.Shared(t).AdminURL
	t.Setenv(devpg.EnvTestURL, admin)
	// What the user's own environment says about keys must not matter.
	t.Setenv("ONCEQ_KEY_SECRET", "a secret of somebody else")
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)

	var out bytes.Buffer
	if err := run(t.Context(), newPage(&out)); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{
		"no answer", "conflict in payload", "8 requests, 3 keys, 3 jobs", "line 178: invalid: ",
		"240 lines with 187 different events made 187 jobs", "PROVED: one job per key (190 keys, 190 jobs in PostgreSQL)",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the demo doesn't say %q:\n%s", want, out.String())
		}
	}
	// How wide the column is depends on how long it took.
	if !regexp.MustCompile(`(?m)^accepted +187$`).Match(out.Bytes()) {
		t.Errorf("the demo doesn't say that 187 deliveries were accepted:\n%s", out.String())
	}
	if strings.ContainsAny(out.String(), "\x1b│") {
		t.Errorf("what goes into a pipe is not plain:\n%s", out.String())
	}

	name := regexp.MustCompile(`onceq_demo_\w+`).FindString(out.String())
	conn, err := pgx.Connect(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var left bool
	if err := conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left {
		t.Errorf("the database %s is left behind", name)
	}
	files, err := os.ReadDir(temp)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Errorf("the file %s is left behind", f.Name())
	}
}

// The proof is worth something: it fails when a key has a second job, and when
// a binding names another job.
func TestOneJobPerKey(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]string{
		"a second job for a key": `INSERT INTO onceq.job
			SELECT (jsonb_populate_record(j, '{"id": "01900000-0000-7000-8000-000000000000"}')).* FROM onceq.job AS j`,
		"a binding of another job": `UPDATE onceq.binding SET job_id = '01900000-0000-7000-8000-000000000000'`,
		"a binding without a job":  `DELETE FROM onceq.job`,
		"a job without a binding":  `DELETE FROM onceq.binding`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			client, err := queue.New(pool, queue.Config{})
			if err != nil {
				t.Fatal(err)
			}
			db := &database{pool: pool, client: client}
			if _, err := client.Enqueue(t.Context(), queue.Request{Type: "t", Admission: queue.Idempotency{Key: "k"}}); err != nil {
				t.Fatal(err)
			}
			if n, err := oneJobPerKey(t.Context(), db); n != 1 || err != nil {
				t.Fatalf("one job of one key: %d, %v", n, err)
			}
			if _, err := pool.Exec(t.Context(), damage); err != nil {
				t.Fatal(err)
			}
			if _, err := oneJobPerKey(t.Context(), db); err == nil {
				t.Error("the proof holds all the same")
			}
		})
	}
}
