package main

import (
	"strings"
	"testing"
)

func TestJobs(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	shop := s.open()
	s.run(exitOK, "jobs", "show", string(shop.dead))
	s.run(exitOK, "jobs", "show", string(shop.succeeded), "--payload")
	s.run(exitOK, "jobs", "show", string(shop.dead), "--json")
	s.run(exitOK, "jobs", "show", string(shop.succeeded), "--payload", "--json")
	s.run(exitRefused, "jobs", "show", "no-uuid")
	s.run(exitRefused, "jobs", "show", "01890000-0000-7000-8000-000000000000")

	s.run(exitOK, "jobs", "cancel", string(shop.ready), "--reason", "ordered twice")
	s.run(exitRefused, "jobs", "cancel", string(shop.ready), "--reason", "once more")
	s.run(exitRefused, "jobs", "cancel", "01890000-0000-7000-8000-000000000000", "--reason", "not there", "--json")
	s.run(exitOK, "jobs", "cancel", string(shop.scheduled), "--reason", "paid", "--json")
	s.golden("jobs.txt")
	if strings.Contains(s.shown.String(), "order-1001-confirmation-mail") {
		t.Error("a key is shown")
	}
	if strings.ContainsAny(s.shown.String(), "\x1b\x07") {
		t.Error("what a handler's error holds would act on a terminal")
	}
}
