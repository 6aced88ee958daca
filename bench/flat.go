package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// depth compares queues with few and with many waiting jobs.
func (r *runner) depth(ctx context.Context) error {
	var levels []*level
	rates := map[string][]float64{}
	name := func(waiting int) string { return fmt.Sprint(waiting, " waiting") }
	for _, waiting := range r.plan.depths {
		l, err := r.newLevel(ctx, waiting)
		if err != nil {
			return err
		}
		defer l.at.close(ctx)
		levels = append(levels, l)
	}
	for range r.plan.levelRounds {
		for n, l := range levels {
			rate, err := l.run(ctx, r.plan.levelSlice)
			if err != nil {
				return err
			}
			key := name(r.plan.depths[n])
			rates[key] = append(rates[key], rate)
		}
	}
	few := name(r.plan.depths[0])
	for _, waiting := range r.plan.depths[1:] {
		r.versus("depth", levels[0].at.site.setting, measureRate, rates, name(waiting), few)
	}
	return nil
}

// snapshot compares a queue whose dead rows an old snapshot keeps with one where
// they can go.
func (r *runner) snapshot(ctx context.Context) error {
	rates := map[string][]float64{}
	names := []string{"no old snapshot", snapshotHeld}
	var levels []*level
	for range names {
		l, err := r.newLevel(ctx, 10_000)
		if err != nil {
			return err
		}
		defer l.at.close(ctx)
		levels = append(levels, l)
	}
	config := levels[1].at.site.pool.Config().ConnConfig
	old, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer old.Close(context.WithoutCancel(ctx))
	if _, err := old.Exec(ctx, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM onceq.pending`); err != nil {
		return err
	}
	for range r.plan.levelRounds + 1 {
		for n, l := range levels {
			rate, err := l.run(ctx, r.plan.levelSlice)
			if err != nil {
				return err
			}
			rates[names[n]] = append(rates[names[n]], rate)
		}
	}
	for n := range rates { // dead rows had to gather first
		rates[n] = rates[n][1:]
	}
	r.versus("snapshot", levels[0].at.site.setting, measureRate, rates, names[1], names[0])
	return nil
}

// A minute of a steady run.
type minute struct {
	Rate  float64 `json:"rows_per_s"`
	Floor float64 `json:"floor_rows_per_s"`
	// Bytes are the sizes of the queue's tables, and of their indexes.
	Tables  int64 `json:"table_bytes"`
	Indexes int64 `json:"index_bytes"`
	Pending int64 `json:"pending_bytes"`
}

// steady goes on for minutes; in short turns with it a floor tells what the
// machine gave meanwhile.
func (r *runner) steady(ctx context.Context) error {
	l, err := r.newLevel(ctx, 10_000)
	if err != nil {
		return err
	}
	defer l.at.close(ctx)
	ownTurn, floorTurn := r.plan.steadyMinute/8, r.plan.steadyMinute/32
	for range r.plan.steadyMinutes {
		var m minute
		var turns float64
		for until := time.Now().Add(r.plan.steadyMinute); time.Now().Before(until); turns++ {
			rate, err := l.run(ctx, ownTurn)
			if err != nil {
				return err
			}
			floor, err := l.floor(ctx, floorTurn)
			if err != nil {
				return err
			}
			m.Rate += rate
			m.Floor += floor
		}
		m.Rate /= turns
		m.Floor /= turns
		err := l.at.site.pool.QueryRow(ctx, `SELECT sum(pg_table_size(c.oid))::bigint, sum(pg_indexes_size(c.oid))::bigint,
				pg_total_relation_size('onceq.pending')
			FROM pg_class AS c WHERE c.relnamespace = 'onceq'::regnamespace AND c.relkind = 'r'`).Scan(&m.Tables, &m.Indexes, &m.Pending)
		if err != nil {
			return err
		}
		r.report.Minutes = append(r.report.Minutes, m)
	}
	first, last := r.report.Minutes[0], r.report.Minutes[len(r.report.Minutes)-1]
	one := func(v float64) spread { return spreadOf([]float64{v}) }
	set := l.at.site.setting
	r.report.add(Figure{Group: "steady", Name: "last minute", Floor: "first minute", Measure: measureRate, Setting: set,
		Value: one(last.Rate), Base: one(first.Rate), Ratio: one(last.Rate / first.Rate)})
	r.report.add(Figure{Group: "steady", Name: lastBesideFloor, Floor: "first minute / floor", Measure: measureShare, Setting: set,
		Value: one(last.Rate / last.Floor), Base: one(first.Rate / first.Floor), Ratio: one(last.Rate / last.Floor / (first.Rate / first.Floor))})
	return nil
}

// floor is the rate of the bare loop on its own table beside the level's.
func (l *level) floor(ctx context.Context, length time.Duration) (float64, error) {
	pool := l.at.site.pool
	if _, err := pool.Exec(ctx, `TRUNCATE floor.queue`); err != nil {
		return 0, err
	}
	if err := floorHouse.fill(ctx, pool, l.payload, 100_000); err != nil {
		return 0, err
	}
	n := 0
	began := time.Now()
	for time.Since(began) < length {
		got, err := claimAndDelete(ctx, pool)
		if err != nil {
			return 0, err
		}
		if n += got; got == 0 {
			break
		}
	}
	return float64(n) / time.Since(began).Seconds(), nil
}
