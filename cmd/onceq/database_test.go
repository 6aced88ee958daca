package main

import (
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

func TestDatabaseURL(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyURL(t)
	status := func(env ...string) *command {
		c := newCommand(t, "", "migrate", "status")
		c.Env = append([]string{asCommand + "=1"}, env...)
		return c
	}

	t.Run("comes from the flag first", func(t *testing.T) {
		t.Parallel()
		c := status("ONCEQ_DATABASE_URL="+nowhere, "DATABASE_URL="+nowhere)
		c.Args = append(c.Args, "--database-url", url)
		c.ends(t, exitOK)
	})
	t.Run("then from ONCEQ_DATABASE_URL", func(t *testing.T) {
		t.Parallel()
		status("ONCEQ_DATABASE_URL="+url, "DATABASE_URL="+nowhere).ends(t, exitOK)
	})
	t.Run("then from DATABASE_URL", func(t *testing.T) {
		t.Parallel()
		status("DATABASE_URL="+url).ends(t, exitOK)
	})
	t.Run("missing is misuse", func(t *testing.T) {
		t.Parallel()
		status().ends(t, exitUsage).oneError(t, "ONCEQ_DATABASE_URL", "DATABASE_URL", "--database-url")
	})
	t.Run("out of reach is a failure", func(t *testing.T) {
		t.Parallel()
		status("DATABASE_URL="+nowhere).ends(t, exitFailure).oneError(t, "127.0.0.1:1", "connect")
	})
}

// The place that is shown, and whose name is to be typed, is the one connected to.
func TestPlace(t *testing.T) {
	t.Parallel()
	address, err := url.Parse(pgtest.EmptyURL(t))
	if err != nil {
		t.Fatal(err)
	}
	user, port := address.User.Username(), address.Port()
	status := func() migrateJSON {
		t.Helper()
		return decode(t, newCommand(t, address.String(), "migrate", "status", "--json").ends(t, exitOK).stdout.String())
	}
	address.Host = "127.0.0.1:1,127.0.0.1:" + port
	if got := status(); strconv.Itoa(got.Port) != port || "/"+got.Database != address.Path {
		t.Errorf("of two hosts the second answers, the place is %+v", got)
	}
	address.Host, address.Path = "127.0.0.1:"+port, ""
	if got := status(); got.Database != user {
		t.Errorf("without a database's name it is that of the user, the place is %+v", got)
	}
}

// A password is in no output, however wrong the URL is.
func TestDatabaseURLIsNotShown(t *testing.T) {
	t.Parallel()
	const password = "hunter2-password"
	for _, url := range []string{
		nowhere,
		"postgres://u:" + password + "@127.0.0.1:1,127.0.0.1:2/none",
		"postgres://u:" + password + "@127.0.0.1:port/none",
		"postgres://u:" + password + "@127.0.0.1:1/none?sslmode=" + password,
		"postgres://u:%zz" + password + "@127.0.0.1:1/none",
		"postgres://u:" + password + " x@[::1/none",
		"mysql://u:" + password + "@127.0.0.1/none",
		"host=127.0.0.1 port=1 password='" + password + " x' dbname",
		"host=127.0.0.1 port=1 user=u password=" + password,
		password,
	} {
		for _, args := range [][]string{{"migrate", "up"}, {"migrate", "status", "--json"}, {"enqueue", "--type", "t", "--key-field", "id"},
			{"jobs", "list"}, {"dead", "list"}, {"keys", "show", "--key", "k"}, {"purge", "--all", "--yes"}, {"queues", "pause", "q"}, {"stats"}, {"maintain"}} {
			c := here(t, url, args...)
			if c.code == exitOK {
				t.Errorf("onceq %v worked with a URL that leads nowhere", args)
			}
			c.oneError(t)
			if all := c.stdout.String() + c.stderr.String(); strings.Contains(all, password) {
				t.Errorf("the password is shown for %q:\n%s", url, all)
			}
		}
	}
}

func TestDoctorShowsNoPassword(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"doctor"}, {"doctor", "--json"}} {
		c := here(t, nowhere, args...).ended(t, exitCritical)
		if all := c.stdout.String() + c.stderr.String(); strings.Contains(all, "hunter2") {
			t.Errorf("the password is shown:\n%s", all)
		}
	}
}

func TestKeySecrets(t *testing.T) {
	t.Parallel()
	const oldest, older, newest = "the oldest secret", "an older secret!", "the newest secret"
	pool := pgtest.New(t)
	url := pool.Config().ConnString()
	run := func(secret, previous, text string) *command {
		return newCommand(t, url, "enqueue", "--type", "t", "--key-field", "id").reading(text).
			with("ONCEQ_KEY_SECRET="+secret, "ONCEQ_PREVIOUS_KEY_SECRETS="+previous)
	}
	run("", "", `{"id":"plain"}`).ends(t, exitOK)
	run(oldest, "", `{"id":"first"}`).ends(t, exitOK)
	run(older, "", `{"id":"second"}`).ends(t, exitOK)

	c := run(newest, older+",none,"+oldest, `{"id":"plain"}`+"\n"+`{"id":"first"}`+"\n"+`{"id":"second"}`+"\n"+`{"id":"third"}`).ends(t, exitOK)
	if got := summaryOf(t, c.stdout.String()); got.Accepted != 1 || got.Replayed != 3 {
		t.Errorf("with all secrets %d were accepted and %d replayed, want 1 and 3", got.Accepted, got.Replayed)
	}
	client, err := queue.New(pool, queue.Config{KeySecret: []byte(newest)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Binding(t.Context(), "", "third"); err != nil {
		t.Errorf("the key is not stored under the secret of ONCEQ_KEY_SECRET: %v", err)
	}

	for _, tt := range []struct{ name, secret, previous, says string }{
		{"too short", "hunter2", "", "KeySecret: 7 bytes"},
		{"previous too short", newest, "hunter2", "PreviousKeySecrets[0]: 7 bytes"},
		{"an empty entry", newest, older + ",," + oldest, "ONCEQ_PREVIOUS_KEY_SECRETS has an empty entry"},
		{"the same twice", newest, newest, "the same secret twice"},
	} {
		c := run(tt.secret, tt.previous, "").ends(t, exitUsage)
		c.oneError(t, tt.says)
		for _, hidden := range []string{"hunter2", newest, older, oldest} {
			if strings.Contains(c.stderr.String(), hidden) {
				t.Errorf("%s: a secret is shown:\n%s", tt.name, c.stderr.String())
			}
		}
	}
}
