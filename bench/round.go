package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A slice is a short time in which one contender runs.
type slice struct {
	rate  float64 // rows per second
	cpu   float64 // µs of the server's process for each call, 0 where unknown
	wal   float64 // bytes for each call
	trips float64 // round trips for each call
}

// entrant is a contender on its site, ready to run.
type entrant struct {
	contender
	call   call
	slices []slice
	// against are the floor's figures beside this contender's slices.
	against []slice
}

// arena runs a group's contenders in turns.
type arena struct {
	r     *runner
	site  *site
	wire  *wire
	calls atomic.Int64 // numbers the calls
	back  *backend
}

// run interleaves: in each round every contender has a slice, and the floor one
// before and after every two of them, so that a contender is compared with what
// the machine did at the same moment.
func (a *arena) run(ctx context.Context, g group, rounds int, length time.Duration) ([]Figure, error) {
	all := make([]*entrant, 0, len(g.rivals)+1)
	for _, c := range append([]contender{g.floor}, g.rivals...) {
		call, err := c.open(ctx, a.site)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		all = append(all, &entrant{contender: c, call: call})
	}
	for _, e := range all { // statements prepared, pages made
		if _, err := a.slice(ctx, e, length/2); err != nil {
			return nil, err
		}
	}
	floor, rivals := all[0], all[1:]
	for range rounds {
		before, err := a.slice(ctx, floor, length)
		if err != nil {
			return nil, err
		}
		for pair := range slices.Chunk(rivals, 2) {
			var got []slice
			for _, e := range pair {
				one, err := a.slice(ctx, e, length)
				if err != nil {
					return nil, err
				}
				got = append(got, one)
			}
			after, err := a.slice(ctx, floor, length)
			if err != nil {
				return nil, err
			}
			for n, e := range pair {
				e.add(got[n], mean(before, after))
			}
			before = after
		}
	}
	return a.figures(g, floor, rivals), nil
}

func mean(a, b slice) slice {
	return slice{(a.rate + b.rate) / 2, (a.cpu + b.cpu) / 2, (a.wal + b.wal) / 2, (a.trips + b.trips) / 2}
}

func (e *entrant) add(own, floor slice) {
	e.slices = append(e.slices, own)
	e.against = append(e.against, floor)
}

// slice lets one contender run on every connection for a while.
func (a *arena) slice(ctx context.Context, e *entrant, length time.Duration) (slice, error) {
	lone := a.site.Conns == 1
	var before, after int64
	var err error
	wal := int64(0)
	if lone {
		if wal, err = walBytes(ctx, a.r.server.admin); err != nil {
			return slice{}, err
		}
		if a.back != nil {
			if before, err = a.back.ran(); err != nil {
				return slice{}, err
			}
		}
	}
	trips := a.wire.trips.Load()
	began := time.Now()
	calls, err := a.together(ctx, e.call, began.Add(length))
	took := time.Since(began)
	if err != nil {
		return slice{}, fmt.Errorf("%s: %w", e.name, err)
	}
	s := slice{rate: float64(calls) * e.perCall() / took.Seconds()}
	if !lone {
		return s, nil
	}
	s.trips = float64(a.wire.trips.Load()-trips) / float64(calls)
	if a.back != nil {
		if after, err = a.back.ran(); err != nil {
			return slice{}, err
		}
		s.cpu = float64(after-before) / 1000 / float64(calls)
	}
	end, err := walBytes(ctx, a.r.server.admin)
	s.wal = float64(end-wal) / float64(calls)
	return s, err
}

// together calls from as many goroutines as there are connections.
func (a *arena) together(ctx context.Context, do call, until time.Time) (calls int64, err error) {
	var all sync.WaitGroup
	var once sync.Once
	var done atomic.Int64
	var failed atomic.Bool
	for range a.site.Conns {
		all.Go(func() {
			for !failed.Load() {
				if e := do(ctx, a.calls.Add(1)); e != nil {
					once.Do(func() { err = e })
					failed.Store(true)
					return
				}
				done.Add(1)
				if time.Now().After(until) {
					return
				}
			}
		})
	}
	all.Wait()
	return done.Load(), err
}

// figures are a group's results: each contender's beside the floor, and ours
// beside the peer's.
func (a *arena) figures(g group, floor *entrant, rivals []*entrant) []Figure {
	var figures []Figure
	for _, e := range rivals {
		figures = append(figures, a.compare(g, e, floor.name, e.against)...)
		for _, peer := range rivals {
			if g.beside[e.name] == peer.name {
				figures = append(figures, a.compare(g, e, peer.name, peer.slices)...)
			}
		}
	}
	return figures
}

// compare sets a contender's slices beside others of the same rounds.
func (a *arena) compare(g group, e *entrant, other string, against []slice) []Figure {
	var figures []Figure
	for _, m := range measures {
		var own, base, ratio []float64
		for n, s := range e.slices {
			if m.of(s) == 0 && m.of(against[n]) == 0 {
				continue
			}
			own = append(own, m.of(s))
			base = append(base, m.of(against[n]))
			if m.of(against[n]) > 0 {
				ratio = append(ratio, m.of(s)/m.of(against[n]))
			}
		}
		if len(own) == 0 {
			continue
		}
		figures = append(figures, Figure{
			Group: g.name, Name: e.name, Floor: other, Setting: a.site.setting, Measure: m.name,
			Value: spreadOf(own), Base: spreadOf(base), Ratio: spreadOf(ratio),
		})
	}
	return figures
}

// measures are what is read off a slice.
var measures = []struct {
	name string
	of   func(slice) float64
}{
	{measureRate, func(s slice) float64 { return s.rate }},
	{measureCPU, func(s slice) float64 { return s.cpu }},
	{measureWAL, func(s slice) float64 { return s.wal }},
	{measureTrips, func(s slice) float64 { return s.trips }},
}
