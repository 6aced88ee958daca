package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// isTerminal tells whether a person is at the other end of a stream.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// coloured tells whether colours may go to a stream: to a terminal that has
// them, unless NO_COLOR says otherwise.
func (a *app) coloured(stream any) bool {
	return isTerminal(stream) && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"
}

// paint colours what goes to stdout.
func (a *app) paint(s string, colours ...text.Color) string {
	if !a.coloured(a.stdout) {
		return s
	}
	return text.Colors(colours).Sprint(s)
}

// newTable returns a table on stdout: framed on a terminal, and in a pipe plain
// columns that other programs can cut.
func (a *app) newTable() table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(noted{a})
	style := table.StyleRounded
	if !isTerminal(a.stdout) || a.getenv("TERM") == "dumb" {
		style = table.StyleDefault
		style.Options = table.OptionsNoBordersAndSeparators
		style.Box.PaddingLeft = ""
	}
	// Names stand as they are written elsewhere.
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	return t
}

// noted is stdout for tables, which don't tell whether they could be written.
type noted struct{ a *app }

func (n noted) Write(text []byte) (int, error) {
	written, err := n.a.stdout.Write(text)
	if n.a.unwritten == nil {
		n.a.unwritten = err
	}
	return written, err
}

// newList is a table of a row for each thing, under a header. On a terminal it is
// cut where the terminal ends.
func (a *app) newList(names ...string) table.Writer {
	t := a.newTable()
	t.Style().Size.WidthMax = a.widthBeside(0)
	header := make(table.Row, len(names))
	for i, name := range names {
		header[i] = a.paint(name, text.Bold)
	}
	t.AppendHeader(header)
	return t
}

// wrap breaks the lines of a column so that a table fits a terminal on which the
// other columns take others.
func (a *app) wrap(t table.Writer, column, others int) {
	if width := a.widthBeside(others); width > 0 {
		t.SetColumnConfigs([]table.ColumnConfig{{Number: column, WidthMax: max(width, 20), WidthMaxEnforcer: text.WrapSoft}})
	}
}

// widthBeside is what others leave of a terminal's width, at least 1, or 0 in a pipe.
func (a *app) widthBeside(others int) int {
	if !isTerminal(a.stdout) {
		return 0
	}
	width, _, err := term.GetSize(int(a.stdout.(*os.File).Fd()))
	if err != nil || width == 0 { // some don't know
		return 0
	}
	return max(width-others, 1)
}

// writeJSON writes v as one line on stdout.
func (a *app) writeJSON(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// render shows a table, unless programs get JSON in its place, and tells where
// the rest is if it had to be cut.
func (a *app) render(t table.Writer) {
	if a.json {
		return
	}
	text, style := t.Render(), t.Style()
	if style.Size.WidthMax > 0 && strings.Contains(text, style.Box.UnfinishedRow+"\n") {
		fmt.Fprintln(a.stderr, "onceq: the table is cut where the terminal ends; a pipe to less -S shows the rest")
	}
}

func (a *app) yesNo(yes bool) string {
	if yes {
		return a.paint("yes", text.FgYellow)
	}
	return "no"
}
