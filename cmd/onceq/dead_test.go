package main

import (
	"strings"
	"testing"
)

// order is the flags that every redrive needs.
func order(args ...string) []string {
	return append(append([]string{"dead", "redrive"}, args...), "--request-id", "the-request-id-of-incident-42", "--actor", "oncall", "--reason", "mail is back")
}

// hideOrder shortens the sessions and keeps the request id out of them.
func (s *transcript) hideOrder() {
	text := strings.ReplaceAll(s.text.String(), " --request-id the-request-id-of-incident-42 --actor oncall --reason 'mail is back'", " ORDER")
	s.text.Reset()
	s.text.WriteString(text)
}

func TestDeadList(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	s.open()
	s.run(exitOK, "dead", "list")
	s.run(exitOK, "dead", "list", "--queue", "mail", "--error", "server said no", "--since", "1h", "--json")
	s.run(exitOK, "dead", "list", "--json", "--payload")
	s.run(exitOK, "dead", "list", "--queue", "default")
	s.run(exitOK, "dead", "list", "--queue", "default", "--json")
	s.run(exitUsage, "dead", "list", "--since", "yesterday")
	s.run(exitUsage, "dead", "list", "--limit", "-1")
	s.golden("dead_list.txt")
}

func TestDeadRedrive(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	shop := s.open()
	s.run(exitOK, order(string(shop.dead))...)
	s.run(exitOK, order(string(shop.dead), "--json")...)
	s.run(exitConflict, "dead", "redrive", string(shop.dead), "--request-id", "the-request-id-of-incident-42", "--actor", "robin", "--reason", "mail is back")
	s.run(exitRefused, "dead", "redrive", string(shop.dead), "--request-id", "another", "--actor", "robin", "--reason", "mail is back")
	s.run(exitOK, "dead", "redrive", string(shop.dead), "--request-id", "another", "--actor", "robin", "--reason", "mail is back", "--again")
	s.run(exitRefused, order(string(shop.ready))...)
	s.run(exitRefused, order("01890000-0000-7000-8000-000000000000", "--json")...)
	s.run(exitUsage, order()...)
	s.run(exitUsage, order("--all", "--queue", "mail")...)
	s.run(exitUsage, order(string(shop.dead), "--queue", "mail")...)
	s.run(exitUsage, "dead", "redrive", string(shop.dead))
	s.run(exitOK, "dead", "list")
	s.run(exitOK, "jobs", "show", string(shop.dead))
	s.hideOrder()
	s.golden("dead_redrive.txt")
	if strings.Contains(s.shown.String(), "the-request-id") {
		t.Error("a request id is shown")
	}
}

func TestDeadRedriveMany(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	shop := s.open()
	s.exec(`WITH twice AS (INSERT INTO onceq.job (id, accepted_at, run_at, priority, max_attempts, queue, type, payload)
		SELECT ('0189' || to_char(n, 'FM0000') || substr(j.id::text, 10))::uuid, j.accepted_at, j.run_at, j.priority, j.max_attempts, j.queue, j.type, j.payload
		FROM onceq.job AS j, generate_series(1, 6) AS n WHERE j.id = $1 RETURNING id)
		INSERT INTO onceq.finished (finished_at, job_id, state, attempt, error) SELECT clock_timestamp(), id, 2, 1, 'timeout' FROM twice`, string(shop.dead))
	s.run(exitOK, order("--queue", "mail", "--error", "timeout", "--dry-run")...)
	s.run(exitUsage, order("--queue", "mail", "--error", "timeout")...)
	s.run(exitUsage, order("--queue", "mail", "--json")...)
	if n := queryRow[int](t, s.pool, "SELECT count(*) FROM onceq.job WHERE queue = 'mail'"); n != 8 {
		t.Errorf("after a dry run and refusals there are %d jobs, want 8", n)
	}
	s.run(exitOK, order("--queue", "mail", "--error", "timeout", "--limit", "4", "--yes")...)
	s.run(exitOK, order("--queue", "mail", "--error", "timeout", "--limit", "4", "--yes", "--json")...)
	s.run(exitOK, order("--queue", "mail", "--error", "timeout", "--yes")...)
	s.run(exitOK, order("--all", "--yes", "--json")...)
	s.run(exitUsage, order("--all", "--yes", "--limit", "0")...)
	s.hideOrder()
	s.golden("dead_redrive_many.txt")
	if n := queryRow[int](t, s.pool, "SELECT count(*) FROM onceq.job WHERE queue = 'mail'"); n != 15 {
		t.Errorf("there are %d jobs, want 8 and the 7 redriven", n)
	}
}
