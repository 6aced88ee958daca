package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// A runner measures what a plan says, and gathers it in a report.
type runner struct {
	plan   plan
	server *server
	report *Report
	says   io.Writer // progress
	part   string    // under way
}

// The groups of single calls and of batches.
var (
	accepting = group{name: "accept", floor: rawInsert,
		rivals: []contender{accept, peerUnique, acceptPlain, peerInsert, acceptPolling},
		beside: map[string]string{accept.name: peerUnique.name, acceptPlain.name: peerInsert.name}}
	repeating = group{name: "repeat", floor: rawSelect,
		rivals: []contender{replay, peerRepeat, coalesce, conflict},
		beside: map[string]string{replay.name: peerRepeat.name}}
	replacing = group{name: "replace", floor: rawUpdate, rivals: []contender{replace}}
	batching  = group{name: "batch", floor: copyFloor,
		rivals: []contender{batchFresh, peerManyUnique, batchReplays, peerMany, batchHalf},
		beside: map[string]string{batchFresh.name: peerManyUnique.name}}
)

// run goes through all parts of the plan.
func (r *runner) run(ctx context.Context) error {
	began := time.Now()
	for _, part := range []struct {
		name    string
		grouped bool
		do      func(context.Context) error
	}{
		{"single calls", true, r.singles},
		{"a network of 1 ms", true, r.delayed},
		{"without prepared statements", true, r.otherModes},
		{"batches", true, r.batches},
		{"no-op jobs", false, r.work},
		{"start latency", false, r.latency},
		{"waiting jobs", false, r.depth},
		{"an old snapshot", false, r.snapshot},
		{"steady load", false, r.steady},
	} {
		if r.part = part.name; !part.grouped && !r.plan.only.MatchString(part.name) {
			continue
		}
		fmt.Fprintf(r.says, "%4.0f s  %s\n", time.Since(began).Seconds(), part.name)
		if err := part.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	r.report.Took = time.Since(began).Round(time.Second).String()
	return nil
}

func (r *runner) singles(ctx context.Context) error {
	for _, durable := range r.plan.durable {
		for _, size := range r.plan.payloads {
			for _, conns := range r.plan.conns {
				set := setting{Conns: conns, Payload: size, Durable: durable}
				for _, g := range []group{accepting, repeating, replacing} {
					if err := r.group(ctx, g, set, r.plan.slice); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

func (r *runner) delayed(ctx context.Context) error {
	for _, conns := range r.plan.delayedConns {
		for _, g := range []group{accepting, repeating, replacing} {
			if err := r.group(ctx, g, setting{Conns: conns, Payload: 200, Durable: true, Delayed: true}, r.plan.slice); err != nil {
				return err
			}
		}
	}
	return nil
}

// otherModes are those that poolers without prepared statements need.
func (r *runner) otherModes(ctx context.Context) error {
	for _, mode := range r.plan.modes {
		set := setting{Conns: 1, Payload: 200, Durable: true, Mode: mode}
		// River's driver does not take them all, so it stays out of these.
		for _, g := range []group{
			{name: "accept", floor: rawInsert, rivals: []contender{accept, acceptPlain}},
			{name: "repeat", floor: rawSelect, rivals: []contender{replay, coalesce}},
			replacing,
		} {
			if err := r.group(ctx, g, set, r.plan.slice); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *runner) batches(ctx context.Context) error {
	for _, durable := range r.plan.durable {
		for _, conns := range r.plan.batchConns {
			if err := r.group(ctx, batching, setting{Conns: conns, Payload: 200, Durable: durable}, r.plan.batchSlice); err != nil {
				return err
			}
		}
	}
	return nil
}

// group runs one group in a database of its own.
func (r *runner) group(ctx context.Context, g group, set setting, length time.Duration) error {
	if !r.plan.only.MatchString(r.part + "/" + g.name) {
		return nil
	}
	at, err := r.open(ctx, set)
	if err != nil {
		return err
	}
	defer at.close(ctx)
	a := &arena{r: r, site: at.site, wire: at.wire}
	if set.Conns == 1 {
		if a.back, err = backendOf(ctx, at.site.pool); err != nil {
			return err
		}
	}
	figures, err := a.run(ctx, g, r.plan.rounds, length)
	if err != nil {
		return fmt.Errorf("%s at %+v: %w", g.name, set, err)
	}
	r.report.add(figures...)
	return nil
}
