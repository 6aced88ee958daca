package main

import (
	"slices"

	"gonum.org/v1/gonum/stat"
)

// A spread is what several rounds gave.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min,omitempty"`
	Max    float64 `json:"max,omitempty"`
	Rounds int     `json:"rounds,omitempty"`
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	return spread{Median: quantile(sorted, 0.5), Min: sorted[0], Max: sorted[len(sorted)-1], Rounds: len(sorted)}
}

// quantile is the smallest value that a share q of them does not exceed.
func quantile(sorted []float64, q float64) float64 {
	return stat.Quantile(q, stat.Empirical, sorted, nil)
}
