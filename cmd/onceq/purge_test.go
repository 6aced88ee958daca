package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/onceq/onceq/pkg/queue"
)

func TestPurge(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	shop := s.open()
	s.run(exitUsage, "purge")
	s.run(exitUsage, "purge", "--all", "--queue", "mail")
	s.run(exitUsage, "purge", "--queue", "mail")
	s.run(exitUsage, "purge", "--job", "no-uuid", "--yes")
	s.run(exitUsage, "purge", "--queue", " mail", "--yes")
	s.run(exitUsage, "purge", "--queue", "mail", "--json")
	if n := queryRow[int](t, s.pool, "SELECT count(*) FROM onceq.pending"); n != 3 {
		t.Errorf("after refusals %d jobs wait, want all 3", n)
	}
	s.run(exitOK, "purge", "--queue", "mail", "--type", "nothing", "--yes")
	s.run(exitOK, "purge", "--queue", "mail", "--yes")
	s.run(exitOK, "purge", "--job", string(shop.ready), "--job", string(shop.succeeded), "--yes", "--json")
	s.run(exitOK, "purge", "--all", "--yes")
	s.golden("purge.txt")
	if n := queryRow[int](t, s.pool, "SELECT count(*) FROM onceq.job"); n != 2 {
		t.Errorf("%d jobs are left, want the 2 that have ended", n)
	}
}

// A purge of more than one step tells how far it came.
func TestPurgeFailsHalfway(t *testing.T) {
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
	// The second step meets an error of the database.
	s.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF OLD.payload = '650' THEN RAISE EXCEPTION 'refused by a trigger'; END IF; RETURN OLD; END $$`)
	s.exec(`CREATE TRIGGER refuse BEFORE DELETE ON onceq.job FOR EACH ROW EXECUTE FUNCTION refuse()`)
	c := newCommand(t, s.url(), "purge", "--all", "--yes").ends(t, exitFailure)
	left := queryRow[int](t, s.pool, "SELECT count(*) FROM onceq.pending")
	if left == 0 || left == len(reqs) {
		t.Fatalf("%d of %d jobs are left, want one step done", left, len(reqs))
	}
	c.oneError(t, fmt.Sprintf("%d jobs were purged", len(reqs)-left), "refused by a trigger")
	if strings.Contains(c.stdout.String(), "purged") {
		t.Errorf("stdout reports a success:\n%s", c.stdout.String())
	}
}
