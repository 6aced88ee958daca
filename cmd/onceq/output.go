package main

import (
	"encoding/json"
	"io"
	"os"

	"github.com/jedib0t/go-pretty/v6/table"
	"golang.org/x/term"
)

// isTerminal tells whether a person watches w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// newTable returns a table on stdout: framed on a terminal, and in a pipe plain
// columns that other programs can cut.
func (a *app) newTable() table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(a.stdout)
	style := table.StyleRounded
	if !isTerminal(a.stdout) {
		style = table.StyleDefault
		style.Options = table.OptionsNoBordersAndSeparators
		style.Box.PaddingLeft = ""
	}
	// Names stand as they are written elsewhere.
	style.Format.Header = 0
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	return t
}

// writeJSON writes v as one line on stdout.
func (a *app) writeJSON(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
