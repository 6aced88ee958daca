package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/devpg"
	"github.com/onceq/onceq/schema"
)

// settings are those of the server's that differ from PostgreSQL's own.
var settings = map[string]string{
	"shared_buffers":            "1GB",
	"max_wal_size":              "4GB",
	"max_connections":           "200",
	"track_activity_query_size": "8192",
}

// server is the benchmark's own PostgreSQL, with its data on a disk.
type server struct {
	dev   *devpg.Server
	admin *pgx.Conn
	made  int
}

func startServer(ctx context.Context, statements bool) (*server, error) {
	// A container's processes can't be seen from here, so its server is the last
	// choice.
	if os.Getenv(devpg.EnvServer) == "" {
		os.Setenv(devpg.EnvServer, "local,download,container")
	}
	opts := []devpg.Option{devpg.Private(), devpg.Durable()}
	for name, value := range settings {
		opts = append(opts, devpg.Setting(name, value))
	}
	if statements {
		opts = append(opts, devpg.Setting("shared_preload_libraries", statementsLibrary), devpg.Setting(statementsLibrary+".track_planning", "on"))
	}
	dev, err := devpg.Start(ctx, opts...)
	if err != nil {
		return nil, err
	}
	admin, err := pgx.Connect(ctx, dev.URL)
	if err != nil {
		return nil, fmt.Errorf("connect: %w; stop: %w", err, dev.Stop(ctx))
	}
	return &server{dev: dev, admin: admin}, nil
}

func (s *server) stop(ctx context.Context) error {
	s.admin.Close(ctx)
	return s.dev.Stop(ctx)
}

// database makes a database in which all contenders' tables are.
func (s *server) database(ctx context.Context) (name string, err error) {
	s.made++
	name = fmt.Sprint("bench_", s.made)
	if _, err := s.admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	pool, err := s.pool(ctx, name, setting{Conns: 2, Durable: true}, &wire{})
	if err != nil {
		return "", err
	}
	defer pool.Close()
	if err := schema.Migrate(ctx, pool); err != nil {
		return "", err
	}
	if err := migratePeer(ctx, pool); err != nil {
		return "", err
	}
	_, err = pool.Exec(ctx, floorSchema)
	return name, err
}

// drop removes a database, whoever is still connected.
func (s *server) drop(ctx context.Context, name string) error {
	_, err := s.admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
	return err
}

// pool connects to a database as a setting says.
func (s *server) pool(ctx context.Context, database string, set setting, w *wire) (*pgxpool.Pool, error) {
	at, err := url.Parse(s.dev.URL)
	if err != nil {
		return nil, err
	}
	at.Path = "/" + database
	cfg, err := pgxpool.ParseConfig(at.String())
	if err != nil {
		return nil, err
	}
	cfg.MinConns, cfg.MaxConns = int32(set.Conns), int32(set.Conns)
	cfg.ConnConfig.DialFunc = w.dial
	cfg.ConnConfig.DefaultQueryExecMode = execModes[set.Mode]
	if !set.Durable {
		cfg.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	}
	return pgxpool.NewWithConfig(ctx, cfg)
}

// Ways to send a statement.
const (
	prepared  = "" // prepared once for each connection: pgx's default
	described = "cache_describe"
	unnamed   = "exec"
)

var execModes = map[string]pgx.QueryExecMode{
	prepared: pgx.QueryExecModeCacheStatement, described: pgx.QueryExecModeCacheDescribe, unnamed: pgx.QueryExecModeExec,
}

// version is what PostgreSQL says of itself, without how it was built.
func (s *server) version(ctx context.Context) (string, error) {
	var v string
	err := s.admin.QueryRow(ctx, `SELECT version()`).Scan(&v)
	v, _, _ = strings.Cut(v, " on ")
	return v, err
}
