package main

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// floorSchema holds what the floors work on: the least that PostgreSQL can be
// asked to do for the same payload.
const floorSchema = `
	CREATE SCHEMA floor;
	CREATE TABLE floor.job (id uuid PRIMARY KEY, payload jsonb NOT NULL);
	CREATE TABLE floor.kept (id bigint PRIMARY KEY, payload jsonb NOT NULL);
	CREATE TABLE floor.queue (id bigint PRIMARY KEY, state smallint NOT NULL DEFAULT 0, payload jsonb NOT NULL);
	CREATE INDEX ON floor.queue (id) WHERE state = 0;`

// kept is how many rows the repeating contenders go round in.
const kept = 2000

func newID() (uuid.UUID, error) { return uuid.NewV7() }

// rawInsert adds one row to a table that has only a primary key.
var rawInsert = contender{name: "raw INSERT", open: func(_ context.Context, s *site) (call, error) {
	return func(ctx context.Context, i int64) error {
		text, err := json.Marshal(s.payload.with(i))
		if err != nil {
			return err
		}
		id, err := newID()
		if err != nil {
			return err
		}
		_, err = s.pool.Exec(ctx, `INSERT INTO floor.job (id, payload) VALUES ($1, $2)`, id, string(text))
		return err
	}, nil
}}

// rawSelect reads one row by its primary key.
var rawSelect = contender{name: "SELECT by primary key", open: func(ctx context.Context, s *site) (call, error) {
	if err := fillKept(ctx, s); err != nil {
		return nil, err
	}
	return func(ctx context.Context, i int64) error {
		var one int
		return s.pool.QueryRow(ctx, `SELECT 1 FROM floor.kept WHERE id = $1`, i%kept).Scan(&one)
	}, nil
}}

// rawUpdate replaces the payload of one row.
var rawUpdate = contender{name: "raw UPDATE", open: func(ctx context.Context, s *site) (call, error) {
	if err := fillKept(ctx, s); err != nil {
		return nil, err
	}
	return func(ctx context.Context, i int64) error {
		text, err := json.Marshal(s.payload.with(i))
		if err != nil {
			return err
		}
		_, err = s.pool.Exec(ctx, `UPDATE floor.kept SET payload = $2 WHERE id = $1`, i%kept, string(text))
		return err
	}, nil
}}

// fillKept makes the rows that are read or replaced.
func fillKept(ctx context.Context, s *site) error {
	text, err := json.Marshal(s.payload)
	if err != nil {
		return err
	}
	_, err = s.pool.Exec(ctx, `INSERT INTO floor.kept (id, payload) SELECT n, $1::jsonb FROM generate_series(0, $2::bigint - 1) AS n
		ON CONFLICT DO NOTHING`, string(text), kept)
	return err
}

// copyFloor loads batchRows rows by COPY.
var copyFloor = contender{name: "COPY", rows: batchRows, open: func(_ context.Context, s *site) (call, error) {
	return func(ctx context.Context, i int64) error {
		rows := make([][]any, batchRows)
		for n := range rows {
			text, err := json.Marshal(s.payload.with(i*batchRows + int64(n)))
			if err != nil {
				return err
			}
			id, err := newID()
			if err != nil {
				return err
			}
			rows[n] = []any{id, text}
		}
		_, err := s.pool.CopyFrom(ctx, pgx.Identifier{"floor", "job"}, []string{"id", "payload"}, pgx.CopyFromRows(rows))
		return err
	}, nil
}}
