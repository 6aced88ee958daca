package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/onceq/onceq/pkg/queue"
)

// utc is an instant in JSON: RFC 3339 in UTC, whatever the machine's zone.
type utc struct{ time.Time }

func (t utc) MarshalJSON() ([]byte, error) { return t.UTC().MarshalJSON() }

// jobJSON is a job in JSON.
type jobJSON struct {
	ID             queue.JobID     `json:"id"`
	Type           string          `json:"type"`
	Queue          string          `json:"queue"`
	State          queue.State     `json:"state"`
	Priority       int             `json:"priority"`
	Attempt        int             `json:"attempt"`
	MaxAttempts    int             `json:"max_attempts"`
	AcceptedAt     utc             `json:"accepted_at"`
	RunAt          utc             `json:"run_at"`
	Deadline       utc             `json:"deadline,omitzero"`
	FinishedAt     utc             `json:"finished_at,omitzero"`
	Tags           []string        `json:"tags,omitempty"`
	ConcurrencyKey string          `json:"concurrency_key,omitempty"`
	Key            *queue.KeyRef   `json:"key,omitempty"`
	WorkerID       string          `json:"worker_id,omitempty"`
	RedriveOf      queue.JobID     `json:"redrive_of,omitempty"`
	RedrivenAs     queue.JobID     `json:"redriven_as,omitempty"`
	LastError      string          `json:"last_error,omitempty"`
	Payload        json.RawMessage `json:"payload,omitempty"`
}

func toJSON(j queue.JobInfo) jobJSON {
	return jobJSON{
		ID: j.ID, Type: j.Type, Queue: j.Queue, State: j.State, Priority: j.Priority, Attempt: j.Attempt, MaxAttempts: j.MaxAttempts,
		AcceptedAt: utc{j.AcceptedAt}, RunAt: utc{j.RunAt}, Deadline: utc{j.Deadline}, FinishedAt: utc{j.FinishedAt},
		Tags: j.Tags, ConcurrencyKey: j.ConcurrencyKey, Key: j.Key, WorkerID: j.WorkerID,
		RedriveOf: j.RedriveOf, RedrivenAs: j.RedrivenAs, LastError: j.LastError, Payload: j.Payload,
	}
}

// eventJSON is a step of a job's timeline in JSON.
type eventJSON struct {
	Event   queue.EventKind `json:"event"`
	At      utc             `json:"at"`
	Attempt int             `json:"attempt"`
	Details json.RawMessage `json:"details,omitempty"`
}

// showJob shows a job and its timeline.
func (a *app) showJob(j queue.JobInfo, events []queue.Event) error {
	if a.json {
		timeline := make([]eventJSON, len(events))
		for i, e := range events {
			timeline[i] = eventJSON{e.Kind, utc{e.At}, e.Attempt, e.Details}
		}
		return a.writeJSON(struct {
			Job    jobJSON     `json:"job"`
			Events []eventJSON `json:"events"`
		}{toJSON(j), timeline})
	}
	a.jobTable(j)
	fmt.Fprintln(a.stdout)
	t := a.newList("at", "event", "attempt", "details")
	a.wrap(t, 4, 57)
	for _, e := range events {
		t.AppendRow(table.Row{instant(e.At), e.Kind, e.Attempt, details(e.Details)})
	}
	t.Render()
	a.block("last error", j.LastError)
	if j.Payload != nil {
		var indented bytes.Buffer
		if err := json.Indent(&indented, j.Payload, "", "  "); err != nil {
			return fmt.Errorf("read the payload of job %s: %w", j.ID, err)
		}
		a.block("payload", indented.String())
	}
	return nil
}

// jobTable shows what is known of a job, without what is empty.
func (a *app) jobTable(j queue.JobInfo) {
	t := a.newTable()
	a.wrap(t, 2, 25)
	row := func(name, value string) {
		if value != "" {
			t.AppendRow(table.Row{name, value})
		}
	}
	row("job", string(j.ID))
	row("state", a.state(j.State))
	row("type", clean(j.Type))
	row("queue", clean(j.Queue))
	row("priority", fmt.Sprint(j.Priority))
	row("attempts", fmt.Sprintf("%d of %d", j.Attempt, j.MaxAttempts))
	row("accepted", instant(j.AcceptedAt))
	row("run at", instant(j.RunAt))
	row("deadline", instant(j.Deadline))
	row("finished", instant(j.FinishedAt))
	row("worker", clean(j.WorkerID))
	row("tags", clean(strings.Join(j.Tags, ", ")))
	row("concurrency key", clean(j.ConcurrencyKey))
	if j.Key != nil {
		row("key", keyText(*j.Key))
	}
	row("redrive of", string(j.RedriveOf))
	row("redriven as", string(j.RedrivenAs))
	t.Render()
}

// details are those of an event, as name=value.
func details(text json.RawMessage) string {
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return ""
	}
	var parts []string
	for d.More() {
		name, err := d.Token()
		if err != nil {
			break
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			break
		}
		parts = append(parts, fmt.Sprintf("%v=%s", name, detail(value)))
	}
	return clean(strings.Join(parts, " "))
}

// detail is one value of an event's details.
func detail(value json.RawMessage) string {
	var ref queue.KeyRef
	if json.Unmarshal(value, &ref) == nil && ref.Digest != "" {
		return keyText(ref)
	}
	var s string
	if json.Unmarshal(value, &s) != nil {
		s = string(value)
	}
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return instant(at)
	}
	return cell(s)
}

// keyText is a key beside a name that says what it is.
func keyText(ref queue.KeyRef) string { return strings.TrimPrefix(ref.String(), "key ") }

// block shows a text of several lines under its name.
func (a *app) block(name, value string) {
	if value == "" {
		return
	}
	fmt.Fprintf(a.stdout, "\n%s:\n", name)
	for _, line := range cleanLines(value) {
		fmt.Fprintf(a.stdout, "  %s\n", line)
	}
}
