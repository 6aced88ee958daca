package main

import (
	"regexp"
	"time"
)

// A plan says how much is measured.
type plan struct {
	Name          string
	only          *regexp.Regexp // parts or groups to measure
	statements    bool           // ask pg_stat_statements at the end
	conns         []int
	batchConns    []int
	delayedConns  []int
	payloads      []int
	durable       []bool
	modes         []string
	rounds        int
	slice         time.Duration
	batchSlice    time.Duration
	workRounds    int
	workJobs      int
	latencyRounds int
	latencyJobs   int
	depths        []int
	levelRounds   int
	levelSlice    time.Duration
	steadyMinutes int
	steadyMinute  time.Duration
}

var fullPlan = plan{
	Name:  "full",
	conns: []int{1, 4, 16, 32}, batchConns: []int{1, 4}, delayedConns: []int{1, 16}, payloads: []int{200, 10_000}, durable: []bool{true, false},
	modes:  []string{described, unnamed},
	rounds: 7, slice: 120 * time.Millisecond, batchSlice: 150 * time.Millisecond,
	workRounds: 7, workJobs: 50_000,
	latencyRounds: 5, latencyJobs: 100,
	depths: []int{1_000, 100_000, 1_000_000}, levelRounds: 5, levelSlice: 4 * time.Second,
	steadyMinutes: 10, steadyMinute: time.Minute,
}

// quickPlan ends within two minutes.
var quickPlan = plan{
	Name:  "quick",
	conns: []int{1, 16}, batchConns: []int{1}, delayedConns: []int{1}, payloads: []int{200}, durable: []bool{true},
	modes:  []string{unnamed},
	rounds: 3, slice: 80 * time.Millisecond, batchSlice: 80 * time.Millisecond,
	workRounds: 2, workJobs: 20_000,
	latencyRounds: 2, latencyJobs: 30,
	depths: []int{1_000, 50_000}, levelRounds: 2, levelSlice: time.Second,
	steadyMinutes: 2, steadyMinute: 2 * time.Second,
}

// smokePlan only shows that everything runs.
var smokePlan = plan{
	Name:  "smoke",
	conns: []int{1, 2}, batchConns: []int{1}, delayedConns: []int{1}, payloads: []int{200}, durable: []bool{false},
	modes:  []string{described, unnamed},
	rounds: 1, slice: 5 * time.Millisecond, batchSlice: 5 * time.Millisecond,
	workRounds: 1, workJobs: 1000,
	latencyRounds: 1, latencyJobs: 3,
	depths: []int{1_000, 2_000}, levelRounds: 1, levelSlice: 200 * time.Millisecond,
	steadyMinutes: 2, steadyMinute: 2 * time.Second,
}
