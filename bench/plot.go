package main

import (
	"fmt"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// plot draws the report's pictures and returns their files' names.
func (r *Report) plot(folder string) ([]string, error) {
	var files []string
	for _, p := range []struct {
		file string
		draw func() (*plot.Plot, error)
	}{
		{"accept.svg", func() (*plot.Plot, error) {
			return r.bars("Rate / raw INSERT, 200 B, durable commits", "accept", accept.name, acceptPlain.name, peerInsert.name, peerUnique.name)
		}},
		{"repeat.svg", func() (*plot.Plot, error) {
			return r.bars("Rate / SELECT by primary key, 200 B", "repeat", replay.name, coalesce.name, conflict.name, peerRepeat.name)
		}},
		{"batch.svg", func() (*plot.Plot, error) {
			return r.bars("Rows per second / COPY, 1,000 at a call", "batch", batchFresh.name, batchReplays.name, batchHalf.name, peerMany.name, peerManyUnique.name)
		}},
		{"steady.svg", r.line},
	} {
		picture, err := p.draw()
		if err != nil {
			return nil, fmt.Errorf("plot %s: %w", p.file, err)
		}
		if err := picture.Save(16*vg.Centimeter, 8*vg.Centimeter, filepath.Join(folder, p.file)); err != nil {
			return nil, fmt.Errorf("plot %s: %w", p.file, err)
		}
		files = append(files, p.file)
	}
	return files, nil
}

// bars shows contenders' ratios to their floor, for each number of connections.
func (r *Report) bars(title, group string, names ...string) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = "connections"
	p.Y.Min = 0
	p.Legend.Top = true
	labels := []string{}
	width := vg.Points(60 / float64(len(names)))
	for n, name := range names {
		var values plotter.Values
		for _, f := range r.Figures {
			s := f.Setting
			if f.Group != group || f.Name != name || f.Measure != measureRate || s.Payload != 200 || s.Delayed || s.Mode != prepared ||
				s.Durable != r.durable() || f.isBesidePeer() {
				continue
			}
			values = append(values, f.Ratio.Median)
			if n == 0 {
				labels = append(labels, fmt.Sprint(s.Conns))
			}
		}
		if len(values) == 0 {
			continue
		}
		bars, err := plotter.NewBarChart(values, width)
		if err != nil {
			return nil, err
		}
		bars.Color = plotutil.Color(n)
		bars.LineStyle.Width = 0
		bars.Offset = width * vg.Length(float64(n)-float64(len(names)-1)/2)
		p.Add(bars)
		p.Legend.Add(name, bars)
	}
	if len(labels) > 0 {
		p.NominalX(labels...)
	}
	p.Add(plotter.NewGrid())
	return p, nil
}

// durable tells whether the run has measured durable commits, which then are the
// ones to show.
func (r *Report) durable() bool {
	for _, f := range r.Figures {
		if f.Group == "accept" && f.Setting.Durable {
			return true
		}
	}
	return false
}

func (f Figure) isBesidePeer() bool {
	return f.Floor == peerUnique.name || f.Floor == peerInsert.name || f.Floor == peerRepeat.name || f.Floor == peerManyUnique.name
}

// line shows the steady run.
func (r *Report) line() (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = "Steady load: jobs worked per second"
	p.X.Label.Text = "minute"
	p.Y.Min = 0
	own, floor := plotter.XYs{}, plotter.XYs{}
	if len(r.Minutes) == 0 {
		return p, nil
	}
	for n, m := range r.Minutes {
		own = append(own, plotter.XY{X: float64(n + 1), Y: m.Rate})
		floor = append(floor, plotter.XY{X: float64(n + 1), Y: m.Floor})
	}
	if err := plotutil.AddLinePoints(p, "ours", own, "claim and delete loop", floor); err != nil {
		return nil, err
	}
	p.Add(plotter.NewGrid())
	return p, nil
}
