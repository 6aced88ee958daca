package main

import (
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The smallest plan measures every target there is, and leaves its report behind.
// What the figures are is nobody's business here.
func TestSmoke(t *testing.T) {
	cmd := &cobra.Command{}
	cmd.SetErr(io.Discard)
	p := smokePlan
	p.only = regexp.MustCompile("")
	report, err := measure(t.Context(), p, cmd)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := report.write(folder); err != nil {
		t.Fatal(err)
	}
	for _, g := range []group{accepting, repeating, replacing, batching} {
		for _, c := range g.rivals {
			for _, measure := range []string{measureRate, measureTrips} {
				f := report.find(g.name, c.name, measure, setting{Conns: 1, Payload: 200})
				if f == nil || !sound(f.Value) || !sound(f.Base) || !sound(f.Ratio) {
					t.Errorf("%s of %s, %s: %+v", measure, g.name, c.name, f)
				}
			}
		}
	}
	for _, group := range []string{"work", "start", "depth", "snapshot", "steady"} {
		if !strings.Contains(strings.Join(report.groups(), " "), group) {
			t.Errorf("there is no figure of %s", group)
		}
	}

	data, err := os.ReadFile(filepath.Join(folder, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	var read Report
	if err := json.Unmarshal(data, &read); err != nil || len(read.Figures) != len(report.Figures) || read.Machine.PostgreSQL == "" {
		t.Errorf("the data hold %d of %d figures, made on %q: %v", len(read.Figures), len(report.Figures), read.Machine.PostgreSQL, err)
	}
	page, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range regexp.MustCompile(`!\[[^]]*\]\(([^)]+)\)`).FindAllStringSubmatch(string(page), -1) {
		if picture, err := os.ReadFile(filepath.Join(folder, link[1])); err != nil || !strings.Contains(string(picture), "<svg") {
			t.Errorf("%s is no picture: %v", link[1], err)
		}
	}
}

func sound(s spread) bool {
	return s.Rounds > 0 && s.Min > 0 && s.Min <= s.Median && s.Median <= s.Max && !math.IsInf(s.Max, 0)
}

// Each target names something that the full plan measures.
func TestTargets(t *testing.T) {
	for _, target := range targets {
		other := target.than
		if other == "" {
			other = "anything"
		}
		f := Figure{Group: target.group, Name: target.of, Floor: other, Measure: target.measure, Setting: target.set,
			Value: spread{Median: 1}, Ratio: spread{Median: 1}}
		if got := verdicts([]Figure{f}); len(got) == 0 {
			t.Errorf("%s finds no figure", target.name)
		}
		if (target.most > 0) == (target.least > 0) {
			t.Errorf("%s has one bound: at most %v, at least %v", target.name, target.most, target.least)
		}
		grouped := map[string]group{"accept": accepting, "repeat": repeating, "replace": replacing, "batch": batching}
		if g, ok := grouped[target.group]; ok {
			names := g.floor.name
			for _, c := range g.rivals {
				names += "|" + c.name
			}
			for _, name := range []string{target.of, target.than} {
				if !strings.Contains("|"+names+"|", "|"+name+"|") {
					t.Errorf("%s is about %q, which is not in the group %s", target.name, name, g.name)
				}
			}
		}
	}
}

func TestSpread(t *testing.T) {
	if got, want := spreadOf([]float64{3, 1, 2}), (spread{Median: 2, Min: 1, Max: 3, Rounds: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := spreadOf(nil); got != (spread{}) {
		t.Errorf("nothing measured is nothing: %+v", got)
	}
}
