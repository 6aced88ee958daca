package main

import "testing"

func TestQueues(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	s.run(exitOK, "queues", "list")
	s.open()
	s.run(exitOK, "queues", "list")
	s.run(exitOK, "queues", "pause", "mail")
	s.run(exitOK, "queues", "set", "mail", "--max-running", "20")
	s.run(exitOK, "queues", "set", "mail", "--max-running-per-key", "3", "--json")
	s.run(exitOK, "queues", "list")
	s.run(exitOK, "queues", "list", "--json")
	s.run(exitOK, "queues", "resume", "mail")
	s.run(exitOK, "queues", "pause", "mial")
	s.run(exitUsage, "queues", "pause")
	s.run(exitUsage, "queues", "pause", " mail")
	s.run(exitUsage, "queues", "set", "mail")
	s.run(exitUsage, "queues", "set", "mail", "--max-running", "-1")
	s.golden("queues.txt")
	if n := queryRow[int](t, s.pool, "SELECT count(*) FROM onceq.queue WHERE name = 'mail' AND max_running = 20 AND max_running_per_key = 3 AND NOT paused"); n != 1 {
		t.Error("the settings of mail are not those that were given")
	}
}
