package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onceq/onceq/cmd/onceq/internal/handover"
	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

func TestEnqueueDebounced(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	url := pool.Config().ConnString()
	client, err := queue.New(pool, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	text := "{\"id\":\"a\",\"v\":1}\n{\"id\":\"b\",\"v\":1}\n{\"id\":\"a\",\"v\":2}\n"
	if got := tallyOf(t, url, exitOK, text, "--debounce", "1h"); got != (handover.Tally{Accepted: 2, Replaced: 1}) {
		t.Errorf("the first run counted %+v", got)
	}
	binding, err := client.Binding(t.Context(), "", "a")
	if err != nil {
		t.Fatal(err)
	}
	job, err := client.Job(t.Context(), binding.JobID)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(job.Payload), `"v": 2`) || binding.Mode != "debounce" || job.RunAt.Sub(binding.AcceptedAt) != time.Hour {
		t.Errorf("the job is %+v, its binding %+v", job, binding)
	}

	t.Run("what comes too late is reported and a follow-up is not", func(t *testing.T) {
		if _, err := client.Cancel(t.Context(), binding.JobID, "to end it"); err != nil {
			t.Fatal(err)
		}
		c := newCommand(t, url, "enqueue", "--type", "t", "--key-field", "id", "--debounce", "1h", "--json").reading(text).ends(t, exitConflict)
		want := []refusalJSON{
			{Kind: "non_replaceable", Line: 1, Reason: "not_pending", JobID: binding.JobID},
			{Kind: "non_replaceable", Line: 3, Reason: "not_pending", JobID: binding.JobID},
		}
		if diff := cmp.Diff(want, reports(t, c.stdout.String())); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
		got := summaryOf(t, c.stdout.String())
		if got.Tally != (handover.Tally{Replaced: 1, NonReplaceable: 2, Dead: 2}) || got.Lines != 3 || got.Database != pool.Config().ConnConfig.Database {
			t.Errorf("the summary is %+v", got)
		}
		c = newCommand(t, url, "enqueue", "--type", "t", "--key-field", "id", "--debounce", "1h").reading(text).ends(t, exitConflict)
		says := "line 1: non_replaceable: not_pending: the job of its key has started or ended: job " + string(binding.JobID) + "\n"
		if !strings.HasPrefix(c.said(), says) {
			t.Errorf("stderr says:\n%s", c.said())
		}
		if got := tallyOf(t, url, exitOK, text, "--debounce", "1h", "--follow-up"); got != (handover.Tally{Accepted: 1, Replaced: 2}) {
			t.Errorf("with --follow-up it counted %+v", got)
		}
	})
	t.Run("a key of another mode is not replaced", func(t *testing.T) {
		tallyOf(t, url, exitOK, `{"id":"plain"}`)
		c := newCommand(t, url, "enqueue", "--type", "t", "--key-field", "id", "--debounce", "1h", "--json").reading(`{"id":"plain"}`).ends(t, exitConflict)
		if got := reports(t, c.stdout.String()); len(got) != 1 || got[0].Reason != string(queue.ReasonIncompatibleMode) {
			t.Errorf("the reports are %+v", got)
		}
	})
}

func TestEnqueueDebounceFlags(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	url := pool.Config().ConnString()
	runAt := func(key string) time.Duration {
		return time.Duration(queryRow[int64](t, pool, `SELECT (extract(epoch FROM j.run_at - b.accepted_at) * 1000000000)::bigint
			FROM onceq.job AS j JOIN onceq.binding AS b ON b.job_id = j.id WHERE b.scope = $1`, key))
	}
	tallyOf(t, url, exitOK, `{"id":"k"}`, "--scope", "held", "--debounce", "1h")
	tallyOf(t, url, exitOK, `{"id":"k"}`, "--scope", "held", "--debounce", "9h", "--hold")
	if got := runAt("held"); got != time.Hour {
		t.Errorf("with --hold the job runs after %v, want the 1h of the first line", got)
	}
	tallyOf(t, url, exitOK, `{"id":"k"}`, "--scope", "capped", "--debounce", "1h", "--max-wait", "2h")
	tallyOf(t, url, exitOK, `{"id":"k"}`, "--scope", "capped", "--debounce", "9h", "--max-wait", "2h")
	if got := runAt("capped"); got != 2*time.Hour {
		t.Errorf("with --max-wait the job runs after %v, want 2h", got)
	}
}

func TestEnqueueThrottled(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	text := "{\"id\":\"a\",\"v\":1}\n{\"id\":\"a\",\"v\":1}\n{\"id\":\"a\",\"v\":2}\n"
	if got := tallyOf(t, pool.Config().ConnString(), exitConflict, text, "--throttle", "1m"); got != (handover.Tally{Accepted: 1, Coalesced: 1, Conflicts: 1}) {
		t.Errorf("it counted %+v", got)
	}
	if n := queryRow[int](t, pool, "SELECT count(*) FROM onceq.binding WHERE mode = 3 AND expires_at = accepted_at + interval '1 min'"); n != 1 {
		t.Error("the key is not throttled for a minute")
	}
}

func TestEnqueueRelease(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	client, err := queue.New(pool, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for release, want := range map[string]handover.Tally{"expiry": {Replayed: 1, Dead: 1}, "finished": {Accepted: 1}, "dead": {Accepted: 1}} {
		args := []string{"--scope", release, "--release", release}
		tallyOf(t, pool.Config().ConnString(), exitOK, `{"id":"k"}`, args...)
		binding, err := client.Binding(t.Context(), release, "k")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Cancel(t.Context(), binding.JobID, "to end it"); err != nil {
			t.Fatal(err)
		}
		if got := tallyOf(t, pool.Config().ConnString(), exitOK, `{"id":"k"}`, args...); got != want {
			t.Errorf("--release %s: after the job was cancelled it counted %+v, want %+v", release, got, want)
		}
	}
}
