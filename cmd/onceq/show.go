package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/onceq/onceq/pkg/queue"
)

// Values come from other programs. On the way to a person each loses what a
// terminal would act on.

// clean replaces control and format characters, line breaks among them.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// cleanLines is clean for a text of several lines, such as a stack.
func cleanLines(s string) []string {
	var lines []string
	for line := range strings.Lines(s) {
		line = strings.ReplaceAll(strings.TrimRight(line, "\r\n"), "\t", "    ")
		lines = append(lines, clean(line))
	}
	return lines
}

// maxCell is how many characters of a long text a table shows.
const maxCell = 60

// cell is the beginning of a text, for a table.
func cell(s string) string {
	first, _, more := strings.Cut(s, "\n")
	runes := []rune(clean(strings.TrimSpace(first)))
	if len(runes) > maxCell {
		runes, more = runes[:maxCell-1], true
	}
	if more {
		return string(runes) + "…"
	}
	return string(runes)
}

// instant is a time in UTC, "" for none.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// age is how long something has taken, short enough to be read at a glance.
func age(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// state is a job's state in its colour.
func (a *app) state(s queue.State) string {
	colour := map[queue.State]text.Color{
		queue.StateReady: text.FgCyan, queue.StateRunning: text.FgBlue, queue.StateSucceeded: text.FgGreen,
		queue.StateDead: text.FgRed, queue.StateCancelled: text.FgYellow, queue.StateScheduled: text.Faint,
	}[s]
	return a.paint(string(s), colour)
}

// count is a number with its noun, which takes an s for many.
func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.FormatInt(n, 10) + " " + noun + "s"
}
