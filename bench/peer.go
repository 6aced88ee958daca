package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// peerJob is the same job as River takes it. Key alone decides about uniqueness,
// as with us.
type peerJob struct {
	Key string `json:"key" river:"unique"`
	payload
}

func (peerJob) Kind() string { return "bench" }

var unique = &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}

func migratePeer(ctx context.Context, pool *pgxpool.Pool) error {
	m, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func newPeer(pool *pgxpool.Pool) (*river.Client[pgx.Tx], error) {
	return river.NewClient(riverpgxv5.New(pool), &river.Config{})
}

var (
	peerInsert = peerInserts("River Insert", nil, "", 0)
	peerUnique = peerInserts("River Insert, unique", unique, "fresh", 0)
	peerRepeat = peerInserts("River Insert, duplicate", unique, "kept", kept)

	peerMany       = peerBatch("River InsertMany", nil)
	peerManyUnique = peerBatch("River InsertMany, unique", unique)
)

// peerInserts is a contender that inserts one job at a call; round makes it go
// round in that many keys, which were inserted before.
func peerInserts(name string, opts *river.InsertOpts, key string, round int64) contender {
	return contender{name: name, open: func(ctx context.Context, s *site) (call, error) {
		c, err := newPeer(s.pool)
		if err != nil {
			return nil, err
		}
		insert := func(ctx context.Context, i int64) (bool, error) {
			res, err := c.Insert(ctx, peerJob{Key: fmt.Sprint(key, i), payload: s.payload.with(i)}, opts)
			if err != nil {
				return false, err
			}
			return res.UniqueSkippedAsDuplicate, nil
		}
		if round > 0 {
			if _, err := c.InsertMany(ctx, peerJobs(s.payload, key, int(round), opts)); err != nil {
				return nil, err
			}
		}
		return func(ctx context.Context, i int64) error {
			if round > 0 {
				i %= round
			}
			skipped, err := insert(ctx, i)
			if err == nil && skipped != (round > 0) {
				err = fmt.Errorf("%s: was the job there before? %t", name, skipped)
			}
			return err
		}, nil
	}}
}

func peerBatch(name string, opts *river.InsertOpts) contender {
	return contender{name: name, rows: batchRows, open: func(_ context.Context, s *site) (call, error) {
		c, err := newPeer(s.pool)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, i int64) error {
			_, err := c.InsertMany(ctx, peerJobs(s.payload, fmt.Sprint(name, i, " "), batchRows, opts))
			return err
		}, nil
	}}
}

func peerJobs(p payload, key string, n int, opts *river.InsertOpts) []river.InsertManyParams {
	jobs := make([]river.InsertManyParams, n)
	for i := range jobs {
		jobs[i] = river.InsertManyParams{Args: peerJob{Key: fmt.Sprint(key, i), payload: p.with(int64(i))}, InsertOpts: opts}
	}
	return jobs
}
