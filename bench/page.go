package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// page is the report as Markdown.
func (r *Report) page(plots []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmark, %s run\n\n", r.Plan)
	fmt.Fprintf(&b, "Made by `make bench` on %s in %s. How to read it: [docs/performance.md](../../docs/performance.md).\n", r.Began.UTC().Format("2006-01-02"), r.Took)
	b.WriteString("Every ratio is of neighbouring slices of one run, median (min..max) over the rounds.\n\n")
	r.machine(&b)
	b.WriteString("## Targets\n\n" + r.verdictTable().RenderMarkdown() + "\n")
	for _, plot := range plots {
		fmt.Fprintf(&b, "\n![%s](%s)\n", strings.TrimSuffix(plot, ".svg"), plot)
	}
	for _, group := range r.groups() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", group, r.figureTable(group).RenderMarkdown())
	}
	if len(r.Minutes) > 0 {
		b.WriteString("\n## Steady load, minute by minute\n\n" + r.minuteTable().RenderMarkdown() + "\n")
	}
	return b.String()
}

func (r *Report) machine(b *strings.Builder) {
	m := r.Machine
	fmt.Fprintf(b, "| | |\n|---|---|\n| machine | %s, %d processors of %s, %.0f GB; client and server share it; load before the run %.1f |\n",
		m.System, m.Processors, m.Processor, m.MemoryGB, m.LoadBefore)
	fmt.Fprintf(b, "| versions | %s, %s", m.PostgreSQL, m.Go)
	for _, name := range sortedKeys(m.Modules) {
		fmt.Fprintf(b, ", %s %s", name, m.Modules[name])
	}
	b.WriteString(" |\n| settings | fsync, full_page_writes and autovacuum on")
	for _, name := range sortedKeys(m.Settings) {
		fmt.Fprintf(b, ", %s=%s", name, m.Settings[name])
	}
	fmt.Fprintf(b, " |\n| network of 1 ms | %.2f ms more for each round trip, played on the client's connections |\n\n", r.DelayMS)
}

func (r *Report) groups() []string {
	var names []string
	for _, f := range r.Figures {
		if !slices.Contains(names, f.Group) {
			names = append(names, f.Group)
		}
	}
	return names
}

func (r *Report) verdictTable() table.Writer {
	t := newTable("figure", "target", "measured", "kept", "ours", "other")
	for _, v := range r.Verdicts {
		kept := "yes"
		if !v.Kept {
			kept = "no"
		}
		t.AppendRow(table.Row{v.Name, v.Bound, v.Measured, kept, brief(v.Own), brief(v.Floor)})
	}
	return t
}

func (r *Report) figureTable(group string) table.Writer {
	t := newTable("contender", "beside", "measure", "setting", "value", "other", "ratio")
	for _, f := range r.Figures {
		if f.Group == group {
			t.AppendRow(table.Row{f.Name, f.Floor, f.Measure, f.Setting, f.Value, brief(f.Base.Median), f.Ratio})
		}
	}
	return t
}

func (r *Report) minuteTable() table.Writer {
	t := newTable("minute", "jobs/s", "floor, rows/s", "share", "tables, MB", "indexes, MB", "pending, MB")
	for n, m := range r.Minutes {
		t.AppendRow(table.Row{n + 1, brief(m.Rate), brief(m.Floor), brief(m.Rate / m.Floor),
			brief(float64(m.Tables) / 1e6), brief(float64(m.Indexes) / 1e6), brief(float64(m.Pending) / 1e6)})
	}
	return t
}

// String is a setting as people read it.
func (s setting) String() string {
	parts := []string{fmt.Sprintf("%d conn", s.Conns), fmt.Sprintf("%d B", s.Payload)}
	if !s.Durable {
		parts = append(parts, "commit not durable")
	}
	if s.Delayed {
		parts = append(parts, "1 ms away")
	}
	if s.Mode != prepared {
		parts = append(parts, s.Mode)
	}
	return strings.Join(parts, ", ")
}

func newTable(header ...any) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(header)
	return t
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
