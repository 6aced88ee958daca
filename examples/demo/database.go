package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/devpg"
	"github.com/onceq/onceq/pkg/queue"
)

// cleanUpLimit bounds what is done to leave nothing behind.
const cleanUpLimit = 30 * time.Second

// database is the demo's own database on a server that goes with the demo.
type database struct {
	server *devpg.Server
	name   string
	url    string

	pool   *pgxpool.Pool
	client *queue.Client
}

func startDatabase(ctx context.Context, p *page) (*database, error) {
	p.aside("looking for a PostgreSQL to start (a container, installed programs, or a download) ...")
	var opts []devpg.Option
	if os.Getenv(devpg.EnvTestURL) == "" {
		// ONCEQ_DATABASE_URL may well name a database that matters.
		opts = append(opts, devpg.Private())
	}
	server, err := devpg.Start(ctx, opts...)
	if err != nil {
		return nil, err
	}
	db := &database{server: server, name: "onceq_demo_" + strings.ToLower(rand.Text()[:10])}
	if err := db.create(ctx); err != nil {
		return nil, errors.Join(err, db.stop(context.WithoutCancel(ctx)))
	}
	p.say("PostgreSQL  " + server.How)
	return db, nil
}

// create makes the database, whatever else is on the server.
func (db *database) create(ctx context.Context) error {
	if err := db.admin(ctx, "CREATE DATABASE "+db.name); err != nil {
		return err
	}
	address, err := url.Parse(db.server.URL)
	if err != nil {
		return errors.New("the server's URL can't be read")
	}
	address.Path = "/" + db.name
	db.url = address.String()
	return nil
}

func (db *database) admin(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, db.server.URL)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

// connect opens the pool and the client of the service in the story.
func (db *database) connect(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, db.url)
	if err != nil {
		return err
	}
	db.pool = pool
	db.client, err = queue.New(pool, queue.Config{})
	return err
}

// stop drops the database and ends the server.
func (db *database) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanUpLimit)
	defer cancel()
	if db.pool != nil {
		db.pool.Close()
	}
	var errs []error
	if err := db.admin(ctx, "DROP DATABASE IF EXISTS "+db.name+" WITH (FORCE)"); err != nil {
		errs = append(errs, fmt.Errorf("drop the demo's database: %w", err))
	}
	return errors.Join(append(errs, db.server.Stop(ctx))...)
}
