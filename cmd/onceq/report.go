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
	place place
	begun time.Time
	total tally
	last  int  // every line up to this one is settled
	bar   *bar // nil unless a person watches
	// out takes the reports: stderr for people, stdout for programs.
	out *bufio.Writer
	err error // the first error of writing
}

// newReport begins a report about an input of size bytes, 0 for unknown, that
// goes to p.
func (a *app) newReport(p place, size int64) *report {
	r := &report{a: a, place: p, begun: time.Now(), bar: a.newBar("lines", size)}
	out := a.stderr
	if a.json {
		out = a.stdout
	} else if r.bar != nil {
		out = r.bar
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
	r.bar.set(c.read, int64(r.total.lines()))
}

func (r *report) note(err error) {
	if r.err == nil {
		r.err = err
	}
}

// refusalJSON is a refusal for programs.
type refusalJSON struct {
	Kind   string      `json:"kind"`
	Line   int         `json:"line"`
	Reason string      `json:"reason,omitempty"`
	JobID  queue.JobID `json:"job_id,omitempty"` // of conflicts and non_replaceable lines
	// The rest is for conflicts.
	Fields    []queue.Field `json:"fields,omitempty"`
	Key       *queue.KeyRef `json:"key,omitempty"`
	ExpiresAt time.Time     `json:"expires_at,omitzero"`
}

func (r *report) refusal(refused refusal) {
	conflict, ok := errors.AsType[*queue.EnqueueIdempotencyConflictError](refused.err)
	kept, isKept := errors.AsType[*nonReplaceable](refused.err)
	switch {
	case isKept && r.a.json:
		r.writeJSON(refusalJSON{Kind: "non_replaceable", Line: refused.line, Reason: string(kept.reason), JobID: kept.job})
	case isKept:
		r.writeLine("line %d: non_replaceable: %s", refused.line, kept)
	case !ok && r.a.json:
		r.writeJSON(refusalJSON{Kind: "invalid", Line: refused.line, Reason: reason(refused.err)})
	case !ok:
		r.writeLine("line %d: invalid: %s", refused.line, reason(refused.err))
	case r.a.json:
		r.writeJSON(refusalJSON{Kind: "conflict", Line: refused.line, JobID: conflict.JobID, Fields: conflict.Fields,
			Key: &conflict.Key, ExpiresAt: conflict.ExpiresAt})
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
	place
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
		r.writeJSON(summary{Kind: "summary", place: r.place, tally: r.total, Lines: r.total.lines(), LastLine: r.last,
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
		{"replaced", r.total.Replaced},
		{"coalesced", r.total.Coalesced},
		{"non_replaceable", r.total.NonReplaceable},
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
