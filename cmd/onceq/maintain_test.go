package main

import (
	"regexp"
	"testing"

	"github.com/onceq/onceq/pkg/queue"
)

func TestMaintain(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	client, err := queue.New(s.pool, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b", "c"} {
		s.enqueue(client, queue.Request{Type: "t", Admission: queue.Idempotency{Key: key}})
	}
	s.exec("UPDATE onceq.binding SET expires_at = clock_timestamp() - interval '1 h'")
	s.run(exitOK, "maintain")
	s.run(exitOK, "maintain", "--json")
	s.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$`)
	s.exec(`CREATE TRIGGER refuse BEFORE DELETE ON onceq.pending FOR EACH ROW EXECUTE FUNCTION refuse()`)
	s.exec("UPDATE onceq.pending SET deadline = clock_timestamp() - interval '1 h'")
	s.run(exitFailure, "maintain")
	s.run(exitFailure, "maintain", "--json")
	// The time taken varies, and with it the width of its column.
	text := regexp.MustCompile(`(?m)^([a-z_]+) +(\d+) +[0-9.]+[mµ]?s +`).ReplaceAllString(s.text.String(), "$1 $2 ... ")
	text = regexp.MustCompile(`(?m)^task +rows +took +result`).ReplaceAllString(text, "task rows took result")
	s.text.Reset()
	s.text.WriteString(text)
	s.golden("maintain.txt")
}
