package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Report is all that a run has to say.
type Report struct {
	Plan     string    `json:"plan"`
	Began    time.Time `json:"began"`
	Took     string    `json:"took"`
	Machine  Machine   `json:"machine"`
	Verdicts []Verdict `json:"verdicts"`
	Figures  []Figure  `json:"figures"`
	Minutes  []minute  `json:"minutes"`
	// DelayMS is what the played network came to for each round trip.
	DelayMS float64 `json:"delay_ms"`
}

func (r *Report) add(figures ...Figure) { r.Figures = append(r.Figures, figures...) }

// finish draws the conclusions.
func (r *Report) finish() {
	r.Verdicts = verdicts(r.Figures)
	near, far := r.find("repeat", replay.name, measureRate, one), r.find("repeat", replay.name, measureRate, far)
	if near != nil && far != nil {
		r.DelayMS = 1000/far.Base.Median - 1000/near.Base.Median
	}
}

// find is the first figure of a name, beside its floor.
func (r *Report) find(group, name, measure string, set setting) *Figure {
	for i, f := range r.Figures {
		if f.Group == group && f.Name == name && f.Measure == measure && f.Setting == set {
			return &r.Figures[i]
		}
	}
	return nil
}

// write leaves the report in a folder: data, page, plots.
func (r *Report) write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	data, err := json.Marshal(r.rounded())
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "results.json"), append(data, '\n'), 0o644); err != nil {
		return err
	}
	plots, err := r.plot(folder)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "README.md"), []byte(r.page(plots)), 0o644)
}

// rounded keeps four digits of every figure, which is more than holds.
func (r *Report) rounded() *Report {
	copied := *r
	copied.Figures = append([]Figure(nil), r.Figures...)
	copied.Verdicts = append([]Verdict(nil), r.Verdicts...)
	for i := range copied.Figures {
		f := &copied.Figures[i]
		f.Value, f.Base, f.Ratio = f.Value.rounded(), spread{Median: digits(f.Base.Median)}, f.Ratio.rounded()
	}
	for i := range copied.Verdicts {
		v := &copied.Verdicts[i]
		v.Measured, v.Floor, v.Own = v.Measured.rounded(), digits(v.Floor), digits(v.Own)
	}
	return &copied
}

func (s spread) rounded() spread {
	return spread{digits(s.Median), digits(s.Min), digits(s.Max), s.Rounds}
}

func digits(v float64) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	if err != nil {
		return v
	}
	return short
}

// brief is a figure as people read it: three digits, thousands in full.
func brief(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// String is a spread as people read it.
func (s spread) String() string {
	if s.Rounds < 2 {
		return brief(s.Median)
	}
	return brief(s.Median) + " (" + brief(s.Min) + ".." + brief(s.Max) + ")"
}
