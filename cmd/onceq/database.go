package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/cmd/onceq/internal/handover"
	"github.com/onceq/onceq/pkg/queue"
)

// database is an open pool and where it leads.
type database struct {
	pool *pgxpool.Pool
	place
}

// place tells people which database a command works on. It holds no password.
type place struct {
	Host     string `json:"host"`
	Port     uint16 `json:"port"`
	Database string `json:"database"`
	Schema   string `json:"schema"`
}

func (p place) String() string {
	return fmt.Sprintf("schema %s of %s/%s", p.Schema, net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port))), p.Database)
}

// open returns a pool of at most connections connections, one of which has
// been made: a database out of reach is found before any work begins.
func (a *app) open(ctx context.Context, connections int) (database, error) {
	url, from := a.databaseURL, "--database-url"
	for _, name := range []string{"ONCEQ_DATABASE_URL", "DATABASE_URL"} {
		if url == "" {
			url, from = a.getenv(name), name
		}
	}
	if url == "" {
		return database{}, usagef("no database: set ONCEQ_DATABASE_URL or DATABASE_URL, or give --database-url")
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		// pgx masks passwords as well as it can in a text that it could not read;
		// not to show the text at all is safe.
		return database{}, usagef("the value of %s is no connection URL, such as postgres://user:password@host:5432/database; it isn't shown here, since it may hold a password", from)
	}
	cfg.MaxConns = int32(connections)
	cfg.MinConns, cfg.MinIdleConns = 0, 0
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "onceq"
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return database{}, err
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		pool.Close()
		return database{}, err
	}
	defer conn.Release()
	return database{pool: pool, place: a.placeOf(conn.Conn().PgConn().Conn().RemoteAddr(), cfg.ConnConfig)}, nil
}

// placeOf is where a connection leads. Of a URL with several hosts only its
// address tells which one it is.
func (a *app) placeOf(address net.Addr, cfg *pgx.ConnConfig) place {
	p := place{Host: cfg.Host, Port: cfg.Port, Database: cfg.Database, Schema: a.schema}
	if p.Database == "" {
		p.Database = cfg.User // as PostgreSQL has it
	}
	several := slices.ContainsFunc(cfg.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != cfg.Host || f.Port != cfg.Port })
	if tcp, ok := address.(*net.TCPAddr); ok && several {
		p.Host, p.Port = tcp.IP.String(), uint16(tcp.Port)
	}
	return p
}

// connected runs f with a client on a pool of few connections.
func (a *app) connected(ctx context.Context, f func(client *queue.Client, where place) error) error {
	db, err := a.open(ctx, 2)
	if err != nil {
		return err
	}
	defer db.pool.Close()
	client, err := a.client(db.pool)
	if err != nil {
		return err
	}
	return f(client, db.place)
}

// noSecret stands for the time without a secret in a list of previous ones. It
// is too short to be a secret.
const noSecret = "none"

// client returns a client on pool with the key secrets of the environment.
func (a *app) client(pool *pgxpool.Pool) (*queue.Client, error) {
	cfg := queue.Config{Schema: a.schema, KeySecret: []byte(a.getenv("ONCEQ_KEY_SECRET")), MaxPayloadBytes: handover.MaxLineBytes}
	if previous := a.getenv("ONCEQ_PREVIOUS_KEY_SECRETS"); previous != "" {
		for secret := range strings.SplitSeq(previous, ",") {
			switch secret {
			case "":
				return nil, usagef("ONCEQ_PREVIOUS_KEY_SECRETS has an empty entry; %s stands for the time without a secret", noSecret)
			case noSecret:
				secret = ""
			}
			cfg.PreviousKeySecrets = append(cfg.PreviousKeySecrets, []byte(secret))
		}
	}
	client, err := queue.New(pool, cfg)
	if err != nil {
		return nil, usageError{errors.New(reason(err))}
	}
	return client, nil
}
