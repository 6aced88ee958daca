package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/cmd/onceq/internal/handover"
	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

const deliveries = "../../examples/deliveries.ndjson"

// summaryOf reads the last line of --json, or the table of the summary.
func summaryOf(t *testing.T, stdout string) (s summary) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	if last := lines[len(lines)-1]; strings.HasPrefix(last, "{") {
		if err := json.Unmarshal([]byte(last), &s); err != nil || s.Kind != "summary" {
			t.Fatalf("the last line is no summary: %v\n%s", err, last)
		}
		return s
	}
	counts := map[string]*int{"accepted": &s.Accepted, "replayed": &s.Replayed, "coalesced": &s.Coalesced,
		"replaced": &s.Replaced, "non_replaceable": &s.NonReplaceable, "conflicts": &s.Conflicts, "invalid": &s.Invalid, "lines": &s.Lines}
	found := 0
	for _, l := range lines {
		if words := strings.Fields(l); len(words) == 2 && counts[words[0]] != nil {
			if _, err := fmt.Sscan(words[1], counts[words[0]]); err != nil {
				t.Fatal(err)
			}
			found++
		}
	}
	if found != len(counts) {
		t.Fatalf("there is no summary:\n%s", stdout)
	}
	return s
}

// reports are the lines of --json before the summary.
func reports(t *testing.T, stdout string) (list []refusalJSON) {
	t.Helper()
	for line := range strings.Lines(stdout) {
		var r refusalJSON
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("no JSON: %v\n%s", err, line)
		}
		if r.Kind != "summary" {
			list = append(list, r)
		}
	}
	return list
}

// tallyOf is what a run with these lines on stdin counted.
func tallyOf(t *testing.T, url string, code int, text string, args ...string) handover.Tally {
	t.Helper()
	args = append([]string{"enqueue", "--type", "t", "--key-field", "id", "--json"}, args...)
	return summaryOf(t, newCommand(t, url, args...).reading(text).ends(t, code).stdout.String()).Tally
}

// queryRow reads one value from the test's database.
func queryRow[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// The file that is shipped, from a file and from a pipe, twice, in both forms
// of output.
func TestEnqueueDeliveries(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	url := pool.Config().ConnString()
	args := []string{"enqueue", "--type-field", "type", "--key-field", "id", "--scope", "webhooks", "--queue", "hooks"}

	c := newCommand(t, url, append(args, "--file", deliveries)...).ends(t, exitInvalid)
	got := summaryOf(t, c.stdout.String())
	if text := c.stderr.String(); !strings.HasPrefix(text, "onceq will enqueue the lines of "+deliveries+" into schema onceq of ") {
		t.Errorf("stderr doesn't begin with what will be done, and where:\n%s", text)
	}
	want := summary{Tally: handover.Tally{Accepted: 187, Replayed: 48, Conflicts: 3, Invalid: 2}, Lines: 240}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(summary{})); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	// The time taken varies, and with it the width of the column.
	varying, gap := regexp.MustCompile(`(?m)^(elapsed|lines/s) .*$`), regexp.MustCompile(` +`)
	golden(t, "enqueue_summary.txt", varying.ReplaceAllString(gap.ReplaceAllString(c.stdout.String(), " "), "$1 ..."))
	ids := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)
	golden(t, "enqueue_reports.txt", ids.ReplaceAllString(c.said(), "JOB"))

	if n := queryRow[int](t, pool, "SELECT count(*) FROM onceq.job WHERE queue = 'hooks' AND key_scope = 'webhooks'"); n != 187 {
		t.Errorf("there are %d jobs, want 187", n)
	}
	if n := queryRow[int](t, pool, "SELECT count(DISTINCT type) FROM onceq.job"); n != 7 {
		t.Errorf("there are %d types, want the 7 of the file", n)
	}

	c = newCommand(t, url, append(args, "--json", "--batch", "7", "--workers", "3")...)
	c.reading(readFile(t, deliveries)).ends(t, exitInvalid)
	again := summaryOf(t, c.stdout.String())
	if again.Accepted != 0 || again.Replayed != 235 || again.Conflicts != 3 || again.Invalid != 2 || !again.Complete || again.LastLine != 240 {
		t.Errorf("the second run says %+v", again)
	}
	if c.stderr.Len() > 0 {
		t.Errorf("with --json there is something on stderr:\n%s", c.stderr.String())
	}
	var lines []int
	for _, r := range reports(t, c.stdout.String()) {
		lines = append(lines, r.Line)
	}
	if diff := cmp.Diff([]int{66, 113, 131, 154, 178}, lines); diff != "" {
		t.Errorf("reported lines (-want +got):\n%s", diff)
	}
}

func TestEnqueueExitCodes(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	tallyOf(t, url, exitOK, `{"id":"a","v":1}`)
	for _, tt := range []struct {
		name string
		text string
		code int
		want handover.Tally
	}{
		{"nothing", "", exitOK, handover.Tally{}},
		{"blank lines alone", "\n  \n\t\r\n", exitOK, handover.Tally{}},
		{"replayed", `{"v":1.0, "id":"a"}`, exitOK, handover.Tally{Replayed: 1}},
		{"conflict", `{"id":"a","v":2}`, exitConflict, handover.Tally{Conflicts: 1}},
		{"invalid", `{"v":2}`, exitInvalid, handover.Tally{Invalid: 1}},
		{"conflict and invalid", "{\"id\":\"a\",\"v\":2}\n[]", exitInvalid, handover.Tally{Conflicts: 1, Invalid: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, tallyOf(t, url, tt.code, tt.text)); diff != "" {
				t.Errorf("tally (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEnqueueInvalidLines(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	lines := []struct{ text, reason string }{
		{`{"id":"good"}`, ""},
		{`{"id":`, "payload: unexpected end at byte 6"},
		{`{"id":"x"} {"id":"y"}`, "payload: not one JSON value: more follows at byte 11"},
		{`"id"`, "not a JSON object"},
		{`[{"id":"x"}]`, "not a JSON object"},
		{`{"Id":"x"}`, "there is no id"},
		{`{"id":null}`, "id is null; a string, a number, true or false is needed"},
		{`{"id":{"id":"x"}}`, "id is an object; a string, a number, true or false is needed"},
		{`{"id":["x"]}`, "id is an array; a string, a number, true or false is needed"},
		{`{"id":""}`, "id is empty"},
		{`{"id":"` + strings.Repeat("é", 257) + `"}`, "key: 514 bytes; allowed are 1 to 512"},
		{`{"id":"x","v":"\u0000"}`, "payload: the escape \\u0000, which jsonb cannot hold at byte 15"},
		{"{\"id\":\"x\",\"v\":\"\xff\"}", "payload: invalid UTF-8 at byte 15"},
		{`{"id":"x","v":1e200000}`, "payload: a number beyond PostgreSQL's numeric at byte 14"},
		{`{"id":"good too"}`, ""},
	}
	var text strings.Builder
	want := map[int]string{}
	for i, l := range lines {
		text.WriteString(l.text + "\n")
		if l.reason != "" {
			want[i+1] = l.reason
		}
	}
	args := []string{"enqueue", "--type", "t", "--key-field", "id"}
	c := newCommand(t, pool.Config().ConnString(), append(args, "--json")...).reading(text.String()).ends(t, exitInvalid)
	got := map[int]string{}
	for _, r := range reports(t, c.stdout.String()) {
		if r.Kind != "invalid" {
			t.Errorf("line %d is reported as %s", r.Line, r.Kind)
		}
		got[r.Line] = r.Reason
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	if n := queryRow[int](t, pool, "SELECT count(*) FROM onceq.job"); n != 2 {
		t.Errorf("there are %d jobs, want the 2 good ones", n)
	}
	c = newCommand(t, pool.Config().ConnString(), args...).reading(text.String()).ends(t, exitInvalid)
	if !strings.Contains(c.stderr.String(), "line 6: invalid: there is no id\n") {
		t.Errorf("the reports for people lack line 6:\n%s", c.stderr.String())
	}
}

// Conflicts anywhere in a batch, more of them than one error of the library
// lists, refuse their own lines alone.
func TestEnqueueSettlesConflicts(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	url := pool.Config().ConnString()
	var first, second strings.Builder
	for i := range 300 {
		fmt.Fprintf(&first, "{\"id\":%d,\"amount\":%d}\n", i, i)
		amount := i
		if i%3 == 0 {
			amount++
		}
		fmt.Fprintf(&second, "{\"id\":%d,\"amount\":%d}\n", i, amount)
		fmt.Fprintf(&second, "{\"id\":\"new %d\"}\n", i)
	}
	tallyOf(t, url, exitOK, first.String())
	if diff := cmp.Diff(handover.Tally{Accepted: 300, Replayed: 200, Conflicts: 100}, tallyOf(t, url, exitConflict, second.String())); diff != "" {
		t.Errorf("tally (-want +got):\n%s", diff)
	}
	if n := queryRow[int](t, pool, "SELECT count(*) FROM onceq.job"); n != 600 {
		t.Errorf("there are %d jobs, want 600", n)
	}
}

// Lines with one key in one batch get the answers that they would have got one
// by one.
func TestEnqueueKeyTwiceInABatch(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	url := pool.Config().ConnString()

	t.Run("the first wins and the conflict names its job", func(t *testing.T) {
		t.Parallel()
		c := newCommand(t, url, "enqueue", "--type", "t", "--key-field", "id", "--json").
			reading("{\"id\":\"twice\",\"v\":1}\n{\"id\":\"twice\",\"v\":2}\n{\"v\":1,\"id\":\"twice\"}\n").ends(t, exitConflict)
		if got := summaryOf(t, c.stdout.String()).Tally; got != (handover.Tally{Accepted: 1, Replayed: 1, Conflicts: 1}) {
			t.Errorf("tally is %+v", got)
		}
		client, err := queue.New(pool, queue.Config{})
		if err != nil {
			t.Fatal(err)
		}
		binding, err := client.Binding(t.Context(), "", "twice")
		if err != nil {
			t.Fatal(err)
		}
		if r := reports(t, c.stdout.String())[0]; r.Line != 2 || r.JobID != binding.JobID || len(r.Fields) != 1 || r.Fields[0] != queue.FieldPayload {
			t.Errorf("the report is %+v, the job is %s", r, binding.JobID)
		}
	})
	t.Run("a refused line refuses no later one", func(t *testing.T) {
		t.Parallel()
		tallyOf(t, url, exitOK, `{"id":"owned","v":1}`)
		text := "{\"id\":\"owned\",\"v\":2}\n{\"id\":\"owned\",\"v\":1}\n{\"id\":\"owned\",\"v\":3}\n{\"id\":\"owned\",\"v\":2}\n"
		if got := tallyOf(t, url, exitConflict, text); got != (handover.Tally{Replayed: 1, Conflicts: 3}) {
			t.Errorf("tally is %+v, want 1 replayed and 3 conflicts", got)
		}
	})
}

func TestEnqueueOptions(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	newCommand(t, pool.Config().ConnString(), "enqueue", "--type-field", "kind", "--key-field", "data.object.id", "--scope", "s", "--queue", "q",
		"--ttl", "1h", "--priority", "7", "--tag", "b", "--tag", "a,c").
		reading("\ufeff{\"kind\":\"k\",\"data\":{\"object\":{\"id\":9007199254740993,\"big\":0.1000000000000000055}}}\r\n").ends(t, exitOK)
	client, err := queue.New(pool, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	binding, err := client.Binding(t.Context(), "s", "9007199254740993")
	if err != nil {
		t.Fatalf("the key is not the number as it stands in the line: %v", err)
	}
	if ttl := binding.ExpiresAt.Sub(binding.AcceptedAt); ttl.Hours() != 1 {
		t.Errorf("the key lives for %v, want 1h", ttl)
	}
	job, err := client.Job(t.Context(), binding.JobID)
	if err != nil {
		t.Fatal(err)
	}
	if job.Type != "k" || job.Queue != "q" || job.Priority != 7 {
		t.Errorf("the job is %+v", job)
	}
	if diff := cmp.Diff([]string{"b", "a,c"}, job.Tags); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	if !strings.Contains(string(job.Payload), "0.1000000000000000055") {
		t.Errorf("the payload has lost digits: %s", job.Payload)
	}
}

func TestEnqueueWithoutSchema(t *testing.T) {
	t.Parallel()
	newCommand(t, pgtest.EmptyURL(t), "enqueue", "--type", "t", "--key-field", "id").reading(`{"id":1}`).ends(t, exitFailure).
		oneError(t, "onceq migrate up", "no line is known to be settled")
}

// No output shows a key, a payload or a secret, whatever is wrong with a line.
func TestEnqueueKeepsSecrets(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	const marker, secret = "marker-7f3a-of-a-key-or-payload", "a key secret of 27 bytes..."
	text := strings.ReplaceAll(strings.Join([]string{
		`{"id":"MARK","v":1}`, `{"id":"MARK","v":"MARK"}`, `{"id":"MARK"`, `{"id":MARK}`, `MARK`, `"MARK"`, `{"MARK":1}`, `{"id":{"x":"MARK"}}`,
		`{"id":["MARK"]}`, `{"id":"MARK","v":"\u0000MARK"}`, `{"id":"MARK` + strings.Repeat("x", 512) + `"}`, "{\"id\":\"MARK\xff\"}", "{\"id\":\"MARK\",\"v\":\"\x01MARK\"}",
	}, "\n"), "MARK", marker)
	for _, args := range [][]string{{}, {"--json"}} {
		args = append([]string{"enqueue", "--type", "t", "--key-field", "id"}, args...)
		c := newCommand(t, url, args...).with("ONCEQ_KEY_SECRET="+secret).reading(text).ends(t, exitInvalid)
		all := c.stdout.String() + c.stderr.String()
		for _, hidden := range []string{marker, "a-key-or-payload", secret} {
			if strings.Contains(all, hidden) {
				t.Errorf("onceq %v shows %q:\n%s", args, hidden, all)
			}
		}
	}
}

func TestEnqueueLongLines(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	long := func(key string, size int) string {
		line := `{"id":"` + key + `","v":""}`
		return line[:len(line)-2] + strings.Repeat("x", size-len(line)) + line[len(line)-2:]
	}
	text := strings.Join([]string{long("fits", handover.MaxLineBytes), long("too long", handover.MaxLineBytes+1), long("much too long", 2*handover.MaxLineBytes), `{"id":"short"}`}, "\r\n")
	c := newCommand(t, pool.Config().ConnString(), "enqueue", "--type", "t", "--key-field", "id", "--file", write(t, text)).ends(t, exitInvalid)
	want := "line 2: invalid: 16777217 bytes; a line may have at most 16777216\nline 3: invalid: 33554432 bytes; a line may have at most 16777216\n"
	if diff := cmp.Diff(want, c.said()); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
	if n := queryRow[int](t, pool, "SELECT octet_length(payload::text) FROM onceq.job ORDER BY 1 DESC LIMIT 1"); n < handover.MaxLineBytes {
		t.Errorf("the longest payload has %d bytes, want those of the longest line", n)
	}
	if n := queryRow[int](t, pool, "SELECT count(*) FROM onceq.job"); n != 2 {
		t.Errorf("there are %d jobs, want 2", n)
	}
}
