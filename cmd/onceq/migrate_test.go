package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/schema"
)

// migrateJSON is what the migrate commands write with --json.
type migrateJSON struct {
	Host, Database, Schema, SQL string
	Port                        int
	Version                     int64
	Applied, Migrations         []migration
}

func decode(t *testing.T, text string) (m migrateJSON) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("no JSON: %v\n%s", err, text)
	}
	return m
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	pool := pgtest.NewEmpty(t)
	address := pool.Config().ConnString()
	database := pool.Config().ConnConfig.Database
	all, err := schema.Statuses(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	version := all[len(all)-1].Version

	missing := decode(t, newCommand(t, address, "migrate", "status", "--json").ends(t, exitOK).stdout.String())
	if len(missing.Migrations) != len(all) || missing.Migrations[0].Applied {
		t.Errorf("before: %d migrations, the first applied: %t", len(missing.Migrations), missing.Migrations[0].Applied)
	}
	c := newCommand(t, address, "migrate", "status").ends(t, exitOK)
	if text := c.stdout.String(); !strings.Contains(text, all[0].Name) || !strings.Contains(text, "run `onceq migrate up`") {
		t.Errorf("status of an empty database says:\n%s", text)
	}

	c = newCommand(t, address, "migrate", "up").ends(t, exitOK)
	for _, s := range all {
		if !strings.Contains(c.stdout.String(), "applied "+s.Name+"\n") {
			t.Errorf("up doesn't tell that it applied %s:\n%s", s.Name, c.stdout.String())
		}
	}
	if !strings.Contains(c.stdout.String(), "/"+database+" is at version ") {
		t.Errorf("up doesn't tell which database it changed:\n%s", c.stdout.String())
	}

	again := newCommand(t, address, "migrate", "up").ends(t, exitOK).stdout.String()
	if !strings.HasPrefix(again, "nothing to apply\n") {
		t.Errorf("a second up says:\n%s", again)
	}
	up := decode(t, newCommand(t, address, "migrate", "up", "--json").ends(t, exitOK).stdout.String())
	if up.Database != database || up.Schema != "onceq" || up.Version != version || len(up.Applied) != 0 || up.Applied == nil {
		t.Errorf("a third up, in JSON, says %+v", up)
	}

	c = newCommand(t, address, "migrate", "status").ends(t, exitOK)
	lines := strings.Split(strings.TrimSuffix(c.stdout.String(), "\n"), "\n")
	if len(lines) != len(all)+2 || !strings.HasSuffix(lines[0], "/"+database) || strings.Join(strings.Fields(lines[1]), " ") != "version migration applied" {
		t.Fatalf("status says:\n%s", c.stdout.String())
	}
	for i, s := range all {
		if want := fmt.Sprintf("%d %s yes", s.Version, s.Name); strings.Join(strings.Fields(lines[i+2]), " ") != want {
			t.Errorf("status says %q, want %q", lines[i+2], want)
		}
	}
}

func TestMigrateNamesTheSchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.NewEmpty(t)
	up := decode(t, newCommand(t, pool.Config().ConnString(), "migrate", "up", "--schema", "tenant_a", "--json").ends(t, exitOK).stdout.String())
	if up.Schema != "tenant_a" || len(up.Applied) == 0 {
		t.Errorf("up says %+v", up)
	}
	statuses, err := schema.Statuses(t.Context(), pool, schema.Named("tenant_a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statuses {
		if !s.Applied {
			t.Errorf("%s is not applied in tenant_a", s.Name)
		}
	}
	newCommand(t, pool.Config().ConnString(), "enqueue", "--schema", "tenant_a", "--type", "t", "--key-field", "id").
		reading(`{"id":1}`).ends(t, exitOK)
}

func TestMigratePrint(t *testing.T) {
	t.Parallel()
	want, err := schema.Print(schema.Named("tenant_a"))
	if err != nil {
		t.Fatal(err)
	}
	c := newCommand(t, "", "migrate", "print", "--schema", "tenant_a").ends(t, exitOK)
	if c.stdout.String() != want {
		t.Errorf("print writes other SQL than schema.Print")
	}
	if got := decode(t, newCommand(t, "", "migrate", "print", "--schema", "tenant_a", "--json").ends(t, exitOK).stdout.String()); got.SQL != want || got.Schema != "tenant_a" {
		t.Errorf("print --json writes other SQL than schema.Print")
	}
}

// A role without rights gets PostgreSQL's reason in one line.
func TestMigrateWithoutRights(t *testing.T) {
	t.Parallel()
	pool := pgtest.NewEmpty(t)
	role := pool.Config().ConnConfig.Database + "_reader"
	if _, err := pool.Exec(t.Context(), "CREATE ROLE "+role+" LOGIN PASSWORD 'hunter2-password'"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dropRole(t, pool, role) })
	address, err := url.Parse(pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword(role, "hunter2-password")
	newCommand(t, address.String(), "migrate", "up").ends(t, exitFailure).oneError(t, "permission denied")
}

// dropRole removes a role of a test. Roles belong to the server, which other
// tests share.
func dropRole(t *testing.T, pool *pgxpool.Pool, role string) {
	t.Helper()
	if _, err := pool.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
		t.Error(err)
	}
}
