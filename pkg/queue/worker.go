package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/db"
)

// WorkerConfig configures a Worker. The zero value is useful.
type WorkerConfig struct {
	// Queues says how many handlers may run at once for each queue: 1 to 10,000.
	// Nil is {"default": 10}.
	Queues map[string]int
	// Lease is how long a job stays this worker's after its last heartbeat: 1 s to
	// 24 h. Zero is 30 s. Heartbeats are sent three times as often.
	Lease time.Duration
	// PollInterval is the longest time between two looks at an idle queue: 1 ms to
	// 1 h. Zero is 200 ms. Notifications and the times of scheduled jobs that are
	// known make it look earlier.
	PollInterval time.Duration
	// ShutdownTimeout is how long handlers may go on after Run's context has
	// ended: up to 24 h. Zero is 30 s.
	ShutdownTimeout time.Duration
	// ID names the worker in leases and events: at most 200 bytes. Empty is the
	// host's name and a random part. Two workers must not share one.
	ID string
}

const (
	maxHandlers      = 10_000
	minLease         = time.Second
	maxLease         = 24 * time.Hour
	defaultLease     = 30 * time.Second
	defaultPoll      = 200 * time.Millisecond
	defaultShutdown  = 30 * time.Second
	maxWorkerIDBytes = 200
	// controlConns are the worker's own connections that claim and settle,
	// whatever handlers do to the client's pool. One more listens.
	controlConns = 3
	// pulseConns are those that renew leases: a final write that waits for a lock
	// must not keep them. The second is for when the first went silent.
	pulseConns = 2
)

// Worker claims jobs and runs their handlers. Register handlers with [Handle],
// then call Run once. While it runs it has up to 6 connections of its own, with
// the settings of the client's pool and beside it, so that handlers can't exhaust
// them. Any number of workers, in any number of processes, share the queues.
type Worker struct {
	c        *Client
	cfg      WorkerConfig
	log      *slog.Logger
	handlers map[string]handle
	types    []string

	// Of the one run.
	began       sync.Once
	control     *pgxpool.Pool   // connections of the worker's own
	q           *db.Queries     // on those
	pulse       *db.Queries     // on one that only renews leases
	base        context.Context // of the handlers
	final       context.Context // of claims and final writes: ends when Run gives up
	lost        atomic.Int64    // jobs whose final write was given up
	queues      map[string]*source
	leases      leases
	attempts    sync.WaitGroup
	completions completions
}

// NewWorker returns a worker for a client's queues. It refuses a config with a
// value out of bounds, naming every one.
func NewWorker(c *Client, cfg WorkerConfig) (*Worker, error) {
	if c == nil {
		return nil, errors.New("queue: new worker: the client is nil")
	}
	if cfg.Queues == nil {
		cfg.Queues = map[string]int{defaultQueue: 10}
	}
	cfg.Queues = maps.Clone(cfg.Queues)
	if cfg.Lease == 0 {
		cfg.Lease = defaultLease
	}
	if cfg.PollInterval == 0 {
		cfg.PollInterval = defaultPoll
	}
	if cfg.ShutdownTimeout == 0 {
		cfg.ShutdownTimeout = defaultShutdown
	}
	if cfg.ID == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "worker"
		}
		cfg.ID = fmt.Sprintf("%.100s-%s", host, uuid.NewString()[:8])
	}
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("queue: new worker: %w", err)
	}
	w := &Worker{c: c, cfg: cfg, log: c.log.With("worker", cfg.ID), handlers: map[string]handle{}}
	w.leases.held = map[JobID]*attempt{}
	w.completions = completions{w: w, ends: make(chan *attempt, maxCompletions)}
	return w, nil
}

func (cfg WorkerConfig) check() error {
	var wrong problems
	if len(cfg.Queues) == 0 {
		wrong.add("Queues", "no queue; at least one is needed")
	}
	for _, queue := range slices.Sorted(maps.Keys(cfg.Queues)) {
		wrong.name("Queues", queue)
		wrong.number("Queues["+queue+"]", cfg.Queues[queue], 1, maxHandlers)
	}
	between := func(field string, d, least, most time.Duration) {
		if d < least || d > most {
			wrong.add(field, "%s; allowed are %s to %s", d, least, most)
		}
	}
	between("Lease", cfg.Lease, minLease, maxLease)
	between("PollInterval", cfg.PollInterval, time.Millisecond, time.Hour)
	between("ShutdownTimeout", cfg.ShutdownTimeout, 0, maxLease)
	wrong.storable("ID", cfg.ID, maxWorkerIDBytes)
	return wrong.err()
}

// Handle registers the handler of a job type. The worker claims only jobs of
// types that have one. It panics on a type out of bounds or registered twice,
// and must not be called once Run has begun.
func Handle[P any](w *Worker, jobType string, h Handler[P]) {
	var wrong problems
	wrong.name("type", jobType)
	if err := wrong.err(); err != nil {
		panic("queue: handle: " + err.Error())
	}
	if h == nil {
		panic(fmt.Sprintf("queue: handle %q: the handler is nil", jobType))
	}
	if _, twice := w.handlers[jobType]; twice {
		panic(fmt.Sprintf("queue: handle %q: registered twice", jobType))
	}
	w.handlers[jobType] = handleOf(h)
	w.types = append(w.types, jobType)
}

// Run works until ctx ends, then drains: it claims nothing more, lets handlers
// finish for ShutdownTimeout, then ends their contexts and hands their jobs back
// without spending an attempt. It returns nil after a clean drain, and an error
// when handlers did not return even then or PostgreSQL did not answer; their jobs
// are taken back when their leases end. While PostgreSQL is away it keeps trying.
// It may be called once.
func (w *Worker) Run(ctx context.Context) (err error) {
	first := false
	w.began.Do(func() { first = true })
	if !first {
		return errors.New("queue: run worker: it has run before")
	}
	if len(w.handlers) == 0 {
		return errors.New("queue: run worker: no handler is registered")
	}
	control, err := w.connect(controlConns)
	if err != nil {
		return fmt.Errorf("queue: run worker: %w", err)
	}
	pulse, err := w.connect(pulseConns)
	if err != nil {
		control.Close()
		return fmt.Errorf("queue: run worker: %w", err)
	}
	defer func() { closeBoth(err == nil, control, pulse) }()
	w.control = control
	w.q, w.pulse = w.c.queries(limited{control}), w.c.queries(limited{pulse})
	if err := w.awaitSchema(ctx); err != nil {
		return fmt.Errorf("queue: run worker: %w", err)
	}

	base, cancelHandlers := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancelHandlers(nil)
	final, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	w.base, w.final = base, final
	w.queues = map[string]*source{}
	for queue, capacity := range w.cfg.Queues {
		w.queues[queue] = newSource(w, queue, capacity)
	}
	// What serves the handlers ends after them, what feeds them before.
	var servants, feeders sync.WaitGroup
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	servants.Go(func() { w.heartbeat(serving) })
	servants.Go(func() { w.watchLeases(serving) })
	completing := make(chan struct{})
	go func() {
		defer close(completing)
		w.completions.run()
	}()
	for _, s := range w.queues {
		feeders.Go(func() { s.run(ctx) })
	}
	if !w.c.pollOnly() {
		feeders.Go(func() { w.listen(ctx) })
	}
	// The slow turn may take minutes, in which leases run out as ever.
	feeders.Go(func() { w.upkeep(ctx, urgentTurn, urgentCadence, w.c.urgentTasks()) })
	feeders.Go(func() { w.upkeep(ctx, slowTurn, slowCadence, w.c.slowTasks()) })

	<-ctx.Done()
	err = w.drain(&feeders, completing, cancelHandlers, giveUp)
	stopServing()
	servants.Wait()
	return err
}

// connect makes a small pool of the worker's own, with the settings of the
// client's.
func (w *Worker) connect(conns int32) (*pgxpool.Pool, error) {
	cfg := w.c.pool.Config()
	cfg.MinConns, cfg.MinIdleConns, cfg.MaxConns = 0, 0, conns
	if !w.c.pollOnly() { // else the sessions may be a pooler's, and others' as well
		afterConnect := cfg.AfterConnect
		cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			if afterConnect != nil {
				if err := afterConnect(ctx, conn); err != nil {
					return err
				}
			}
			return db.New(conn).PreferIndexes(ctx)
		}
	}
	return pgxpool.NewWithConfig(context.Background(), cfg)
}

// closeBoth closes two pools at once: a connection that doesn't answer holds up
// its pool's Close, for up to half a minute. It is not waited for where handlers
// are left behind, which may use it.
func closeBoth(wait bool, a, b *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		var closing sync.WaitGroup
		closing.Go(a.Close)
		closing.Go(b.Close)
		closing.Wait()
	}()
	if wait {
		<-closed
	} else {
		within(closed, afterwards)
	}
}

// awaitSchema checks the schema, for as long as it takes to reach PostgreSQL.
func (w *Worker) awaitSchema(ctx context.Context) error {
	for {
		err := w.c.checkSchema(ctx, w.q)
		if err == nil || errors.Is(err, ErrSchemaOutdated) {
			return err
		}
		w.log.Warn("PostgreSQL can't be reached yet", "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}
