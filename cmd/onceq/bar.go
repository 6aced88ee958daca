package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"github.com/jedib0t/go-pretty/v6/text"
)

// bar is a progress bar on a terminal: of the bytes of an input whose size is
// known, otherwise of the things done so far. What is written to it scrolls by
// above the bar. A nil bar shows nothing.
type bar struct {
	writer  progress.Writer
	tracker *progress.Tracker
	things  string
	bytes   bool
	done    chan struct{} // closed when nothing more is drawn
}

// newBar begins to draw a bar about things on stderr. size is in bytes, 0 for
// unknown. It is nil where nobody watches: a bar would run through JSON on the
// same terminal, and a dumb one can't move its cursor.
func (a *app) newBar(things string, size int64) *bar {
	if !isTerminal(a.stderr) || a.json && isTerminal(a.stdout) || a.getenv("TERM") == "dumb" {
		return nil
	}
	b := &bar{writer: progress.NewWriter(), things: things, bytes: size > 0, done: make(chan struct{})}
	b.tracker = &progress.Tracker{Message: "0 " + things, Total: size, AutoStopDisabled: true}
	if b.bytes {
		b.tracker.Units = progress.UnitsBytes
	}
	style := progress.StyleBlocks
	style.Visibility = progress.StyleVisibility{Percentage: b.bytes, Tracker: true, Value: b.bytes, Time: true, ETA: b.bytes, Speed: b.bytes}
	style.Options.DoneString = "done"
	style.Options.ErrorString = "stopped"
	style.Options.TimeDonePrecision = time.Millisecond
	style.Options.TimeInProgressPrecision = 100 * time.Millisecond
	if a.coloured(a.stderr) {
		style.Colors.Tracker = text.Colors{text.FgGreen}
	}
	b.writer.SetStyle(style)
	b.writer.SetOutputWriter(a.stderr)
	b.writer.SetTrackerLength(30)
	b.writer.SetUpdateFrequency(100 * time.Millisecond)
	b.writer.AppendTracker(b.tracker)
	go func() {
		defer close(b.done)
		b.writer.Render()
	}()
	return b
}

// set moves the bar to so many things done and, of a known input, bytes read.
func (b *bar) set(read, things int64) {
	if b == nil {
		return
	}
	b.tracker.UpdateMessage(strconv.FormatInt(things, 10) + " " + b.things)
	if b.bytes {
		b.tracker.SetValue(read)
	} else {
		b.tracker.SetValue(things)
	}
}

// Write shows whole lines above the bar.
func (b *bar) Write(lines []byte) (int, error) {
	b.writer.Log(strings.TrimSuffix(string(lines), "\n"))
	return len(lines), nil
}

// finish leaves the bar as it is and waits for its last drawing.
func (b *bar) finish(complete bool) {
	if b == nil {
		return
	}
	if complete {
		b.tracker.MarkAsDone()
	} else {
		b.tracker.MarkAsErrored()
	}
	// Stop has no effect on a Render that has not yet begun.
	for {
		b.writer.Stop()
		select {
		case <-b.done:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}
