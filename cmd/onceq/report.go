package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/onceq/onceq/pkg/queue"
)

// report tells a person, or with --json a program, what becomes of an input.
type report struct {
	a     *app
	begun time.Time
	total tally
	last  int  // every line up to this one is settled
	bar   *bar // nil unless a person watches
	// out takes the reports: stderr for people, stdout for programs.
	out *bufio.Writer
	err error // the first error of writing
}

// newReport begins a report about an input of size bytes, 0 for unknown.
func (a *app) newReport(size int64) *report {
	r := &report{a: a, begun: time.Now()}
	out := a.stderr
	if a.json {
		out = a.stdout
	}
	// A bar would run through JSON on the same terminal, and a dumb one can't
	// move its cursor.
	if isTerminal(a.stderr) && !(a.json && isTerminal(a.stdout)) && a.getenv("TERM") != "dumb" {
		r.bar = newBar(a.stderr, size)
		if !a.json {
			out = r.bar
		}
	}
	r.out = bufio.NewWriter(out)
	return r
}

// chunk reports a chunk.
func (r *report) chunk(c *chunk, s settled) {
	r.total.add(s.tally)
	r.last = c.last
	slices.SortFunc(s.refusals, func(x, y refusal) int { return cmp.Compare(x.line, y.line) })
	for _, refused := range s.refusals {
		r.refusal(refused)
	}
	r.note(r.out.Flush())
	r.bar.set(c.read, r.total.lines())
}

func (r *report) note(err error) {
	if r.err == nil {
		r.err = err
	}
}

// refusalJSON is a refusal for programs.
type refusalJSON struct {
	Kind   string `json:"kind"`
	Line   int    `json:"line"`
	Reason string `json:"reason,omitempty"`
	// The rest is for conflicts.
	Fields    []queue.Field `json:"fields,omitempty"`
	JobID     queue.JobID   `json:"job_id,omitempty"`
	Key       *keyJSON      `json:"key,omitempty"`
	ExpiresAt *time.Time    `json:"expires_at,omitempty"`
}

type keyJSON struct {
	Scope   string `json:"scope"`
	Preview string `json:"preview"`
	Digest  string `json:"digest"`
	Length  int    `json:"length"`
}

func (r *report) refusal(refused refusal) {
	conflict, ok := errors.AsType[*queue.EnqueueIdempotencyConflictError](refused.err)
	switch {
	case !ok && r.a.json:
		r.writeJSON(refusalJSON{Kind: "invalid", Line: refused.line, Reason: reason(refused.err)})
	case !ok:
		r.writeLine("line %d: invalid: %s", refused.line, reason(refused.err))
	case r.a.json:
		key := keyJSON(conflict.Key)
		out := refusalJSON{Kind: "conflict", Line: refused.line, Fields: conflict.Fields, JobID: conflict.JobID, Key: &key}
		if !conflict.ExpiresAt.IsZero() {
			out.ExpiresAt = &conflict.ExpiresAt
		}
		r.writeJSON(out)
	default:
		fields := make([]string, len(conflict.Fields))
		for i, f := range conflict.Fields {
			fields[i] = string(f)
		}
		r.writeLine("line %d: conflict: another %s than in the request of job %s under %s",
			refused.line, strings.Join(fields, ", "), conflict.JobID, conflict.Key)
	}
}

func (r *report) writeLine(format string, args ...any) {
	_, err := fmt.Fprintf(r.out, format+"\n", args...)
	r.note(err)
}

func (r *report) writeJSON(v any) {
	enc := json.NewEncoder(r.out)
	enc.SetEscapeHTML(false)
	r.note(enc.Encode(v))
}

// summary is the end of every report.
type summary struct {
	Kind string `json:"kind"`
	tally
	Lines    int     `json:"lines"`
	LastLine int     `json:"last_line"`
	Complete bool    `json:"complete"`
	Elapsed  float64 `json:"elapsed_seconds"`
}

// finish ends the report; cause is why it ended early, or nil. The error tells
// that the report could not be written.
func (r *report) finish(cause error) error {
	r.bar.finish(cause == nil)
	elapsed := time.Since(r.begun)
	if r.a.json {
		r.writeJSON(summary{Kind: "summary", tally: r.total, Lines: r.total.lines(), LastLine: r.last,
			Complete: cause == nil, Elapsed: elapsed.Seconds()})
		r.note(r.out.Flush())
		return r.err
	}
	r.summary(elapsed)
	return r.err
}

func (r *report) summary(elapsed time.Duration) {
	t := r.a.newTable()
	t.AppendRows([]table.Row{
		{"accepted", r.total.Accepted},
		{"replayed", r.total.Replayed},
		{"coalesced", r.total.Coalesced},
		{"conflicts", r.total.Conflicts},
		{"invalid", r.total.Invalid},
		{"lines", r.total.lines()},
	})
	if r.total.Dead > 0 {
		t.AppendRow(table.Row{"of dead jobs", r.total.Dead})
	}
	t.AppendRow(table.Row{"elapsed", elapsed.Round(time.Millisecond)})
	t.AppendRow(table.Row{"lines/s", int(float64(r.total.lines()) / elapsed.Seconds())})
	t.Render()
}
