package main

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jedib0t/go-pretty/v6/table"
)

// statementsLibrary is one of PostgreSQL's contrib modules.
const statementsLibrary = "pg_stat_statements"

// statements shows what the server says about the statements of a run: those that
// took the most time first.
func (s *server) statements(ctx context.Context) (table.Writer, error) {
	if _, err := s.admin.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS "+statementsLibrary); err != nil {
		return nil, err
	}
	type statement struct {
		Name                               string
		Calls, Rows                        float64
		Total, Mean, Plan, WAL, Hit, Wrote float64
	}
	rows, _ := s.admin.Query(ctx, `SELECT left(regexp_replace(query, '\s+', ' ', 'g'), 60) AS name, sum(calls)::float8 AS calls, sum(rows)::float8 AS rows,
			sum(total_exec_time)::float8 AS total, (sum(total_exec_time) / greatest(sum(calls), 1))::float8 AS mean, (sum(total_plan_time) / greatest(sum(calls), 1))::float8 AS plan,
			(sum(wal_bytes) / greatest(sum(calls), 1))::float8 AS wal, (sum(shared_blks_hit) / greatest(sum(calls), 1))::float8 AS hit, (sum(shared_blks_dirtied) / greatest(sum(calls), 1))::float8 AS wrote
		FROM pg_stat_statements GROUP BY 1 HAVING sum(rows) > 0 ORDER BY total DESC LIMIT 25`)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByName[statement])
	if err != nil {
		return nil, err
	}
	t := newTable("statement", "calls", "rows", "ms in all", "ms each", "planning, ms each", "WAL each", "pages each", "dirtied each")
	for _, r := range all {
		name, _, _ := strings.Cut(strings.TrimPrefix(r.Name, "-- name: "), " :")
		t.AppendRow(table.Row{name, brief(r.Calls), brief(r.Rows), brief(r.Total), brief(r.Mean), brief(r.Plan), brief(r.WAL), brief(r.Hit), brief(r.Wrote)})
	}
	return t, nil
}
