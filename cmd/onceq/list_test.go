package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/onceq/onceq/pkg/queue"
)

func TestJobsList(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	s.run(exitOK, "jobs", "list")
	s.open()
	s.run(exitOK, "jobs", "list")
	s.run(exitOK, "jobs", "list", "--limit", "2")
	s.run(exitOK, "jobs", "list", "--queue", "mail", "--state", "scheduled")
	s.run(exitOK, "jobs", "list", "--tag", "vip", "--json")
	s.run(exitOK, "jobs", "list", "--type", "order.place", "--json", "--payload")
	s.run(exitOK, "jobs", "list", "--until", "1h")
	s.run(exitUsage, "jobs", "list", "--state", "tired")
	s.golden("jobs_list.txt")
}

// A long list is whole, in JSON while it is read, and a reader may leave early.
func TestJobsListAll(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	client, err := queue.New(s.pool, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	reqs := make([]queue.Request, 1000)
	for i := range reqs {
		reqs[i] = queue.Request{Type: "t", Payload: i}
	}
	for range 2 {
		if _, err := client.EnqueueMany(t.Context(), reqs); err != nil {
			t.Fatal(err)
		}
	}
	c := newCommand(t, s.url(), "jobs", "list", "--limit", "0", "--json").ends(t, exitOK)
	ids := map[string]bool{}
	for line := range strings.Lines(c.stdout.String()) {
		ids[anID.FindString(line)] = true
	}
	if len(ids) != 2000 {
		t.Errorf("%d jobs are listed, want 2000", len(ids))
	}
	c = newCommand(t, s.url(), "jobs", "list").ends(t, exitOK)
	if n := strings.Count(c.stdout.String(), "\n"); n != 101 || !strings.Contains(c.stderr.String(), "these are the first 100; --limit 0 shows all") {
		t.Errorf("%d lines, and stderr says %q", n, c.stderr.String())
	}
}

func TestJobsRunNow(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	shop := s.open()
	s.run(exitOK, "jobs", "run-now", string(shop.scheduled))
	s.run(exitOK, "jobs", "run-now", string(shop.debounced), "--json")
	s.run(exitRefused, "jobs", "run-now", string(shop.debounced))
	s.run(exitRefused, "jobs", "run-now", string(shop.dead), "--json")
	s.run(exitRefused, "jobs", "run-now", "01890000-0000-7000-8000-000000000000")
	s.run(exitUsage, "jobs", "run-now")
	s.run(exitRefused, "keys", "show", "--key", "document-77", "--json")
	s.golden("jobs_run_now.txt")
	if n := queryRow[int](t, s.pool, fmt.Sprintf("SELECT count(*) FROM onceq.pending WHERE ready_at <= clock_timestamp() AND job_id IN ('%s', '%s')", shop.scheduled, shop.debounced)); n != 2 {
		t.Errorf("%d of the 2 jobs are ready", n)
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	s.run(exitOK, "stats")
	s.open()
	s.wait("order.ship", "50 h 10 min")
	s.run(exitOK, "stats")
	s.run(exitOK, "stats", "--json")
	s.golden("stats.txt")
}
