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

	"github.com/onceq/onceq/cmd/onceq/internal/handover"
	"github.com/onceq/onceq/pkg/queue"
)

// report tells a person, or with --json a program, what becomes of an input.
type report struct {
	a     *app
	place place
	begun time.Time
	total handover.Tally
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

// stretch reports a stretch of lines.
func (r *report) stretch(s handover.Settled) {
	r.total.Add(s.Tally)
	r.last = s.Last
	slices.SortFunc(s.Refusals, func(x, y handover.Refusal) int { return cmp.Compare(x.Line, y.Line) })
	for _, refused := range s.Refusals {
		r.refusal(refused)
	}
	r.note(r.out.Flush())
	r.bar.set(s.Read, int64(r.total.Lines()))
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

func (r *report) refusal(refused handover.Refusal) {
	conflict, ok := errors.AsType[*queue.EnqueueIdempotencyConflictError](refused.Err)
	kept, isKept := errors.AsType[*handover.NonReplaceable](refused.Err)
	switch {
	case isKept && r.a.json:
		r.writeJSON(refusalJSON{Kind: "non_replaceable", Line: refused.Line, Reason: string(kept.Reason), JobID: kept.Job})
	case isKept:
		r.writeLine("line %d: non_replaceable: %s", refused.Line, kept)
	case !ok && r.a.json:
		r.writeJSON(refusalJSON{Kind: "invalid", Line: refused.Line, Reason: reason(refused.Err)})
	case !ok:
		r.writeLine("line %d: invalid: %s", refused.Line, reason(refused.Err))
	case r.a.json:
		r.writeJSON(refusalJSON{Kind: "conflict", Line: refused.Line, JobID: conflict.JobID, Fields: conflict.Fields,
			Key: &conflict.Key, ExpiresAt: conflict.ExpiresAt})
	default:
		fields := make([]string, len(conflict.Fields))
		for i, f := range conflict.Fields {
			fields[i] = string(f)
		}
		r.writeLine("line %d: conflict: another %s than in the request of job %s under %s",
			refused.Line, strings.Join(fields, ", "), conflict.JobID, conflict.Key)
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
	handover.Tally
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
		r.writeJSON(summary{Kind: "summary", place: r.place, Tally: r.total, Lines: r.total.Lines(), LastLine: r.last,
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
		{"lines", r.total.Lines()},
	})
	if r.total.Dead > 0 {
		t.AppendRow(table.Row{"of dead jobs", r.total.Dead})
	}
	t.AppendRow(table.Row{"elapsed", elapsed.Round(time.Millisecond)})
	t.AppendRow(table.Row{"lines/s", int(float64(r.total.Lines()) / elapsed.Seconds())})
	t.Render()
}
