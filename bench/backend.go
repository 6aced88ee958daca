package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// backend is the one server process behind a pool of one connection. The
// scheduler says how long it ran, which is the steadiest figure on a machine that
// others share: no waiting is in it.
type backend struct{ pid int }

// backendOf finds the process of a pool's only connection; nil where it can't
// be seen from here, as in a container.
func backendOf(ctx context.Context, pool *pgxpool.Pool) (*backend, error) {
	var pid int
	if err := pool.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		return nil, err
	}
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || !bytes.HasPrefix(command, []byte("postgres")) {
		return nil, nil
	}
	return &backend{pid}, nil
}

// ran is the time for which the process has run, in nanoseconds.
func (b *backend) ran() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", b.pid))
	if err != nil {
		return 0, err
	}
	first, _, _ := bytes.Cut(text, []byte(" "))
	return strconv.ParseInt(string(first), 10, 64)
}

// walBytes is how much WAL the server has written.
func walBytes(ctx context.Context, admin *pgx.Conn) (n int64, err error) {
	err = admin.QueryRow(ctx, `SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint`).Scan(&n)
	return n, err
}
