package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// page is what the demo writes on: with frames and colours on a terminal, plain
// text in a pipe.
type page struct {
	out    io.Writer
	pretty bool
}

func newPage(out io.Writer) *page {
	f, ok := out.(*os.File)
	return &page{out: out, pretty: ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"}
}

func (p *page) say(line string) { fmt.Fprintln(p.out, line) }

// title begins a part.
func (p *page) title(line string) {
	if p.pretty {
		line = text.Colors{text.Bold, text.FgCyan}.Sprint(line)
	}
	fmt.Fprintf(p.out, "\n%s\n\n", line)
}

// aside is a remark.
func (p *page) aside(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if p.pretty {
		line = text.Faint.Sprint(line)
	}
	p.say(line)
}

// table prints rows under a header.
func (p *page) table(header table.Row, rows []table.Row) {
	t := table.NewWriter()
	t.SetOutputMirror(p.out)
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	if p.pretty {
		style = table.StyleRounded
		style.Color.Header = text.Colors{text.Bold}
	}
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	t.AppendHeader(header)
	t.AppendRows(rows)
	t.Render()
}

// outcome is a decision in its colour.
func (p *page) outcome(word string) string {
	if !p.pretty {
		return word
	}
	colour := text.FgYellow
	switch strings.Fields(word)[0] {
	case "accepted":
		colour = text.FgGreen
	case "replayed":
		colour = text.FgBlue
	case "conflict":
		colour = text.FgRed
	}
	return colour.Sprint(word)
}
