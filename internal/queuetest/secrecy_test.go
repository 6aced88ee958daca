package queuetest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/tracelog"

	"github.com/onceq/onceq/internal/devpg"
	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

const (
	markedRaw    = "Zq9xMARKER77kqPartOfTheKey"
	markedConfig = "Vw3yHIDDEN55zuPartOfTheSecret"
)

// markedKey is a key whose preview shows nothing of the marker.
func markedKey(suffix string) string { return "preview-" + markedRaw + "-" + suffix + "-tail" }

// printed is a value in every way in which Go programs print one, but for %p of
// what is no pointer, where fmt asks nobody.
func printed(v any) map[string]string {
	out := map[string]string{"Sprint": fmt.Sprint(v), "Sprintln": fmt.Sprintln(v)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%c", "%U", "%t", "%e", "%T", "%100v", "%-5s", "% x", "%#x", "%+q", "%.3s"} {
		out[verb] = fmt.Sprintf(verb, v)
	}
	if text, err := json.Marshal(v); err == nil {
		out["JSON"] = string(text)
	} else {
		out["JSON error"] = err.Error()
	}
	var text, object bytes.Buffer
	options := &slog.HandlerOptions{Level: slog.LevelDebug}
	for _, log := range []*slog.Logger{slog.New(slog.NewTextHandler(&text, options)), slog.New(slog.NewJSONHandler(&object, options))} {
		log.Info("value", "v", v)
		log.WithGroup("g").With("with", v).Info("value", slog.Group("h", slog.Any("v", v)))
	}
	out["slog text"], out["slog JSON"] = text.String(), object.String()
	return out
}

func wantNothingPrinted(t *testing.T, name string, v any) {
	t.Helper()
	var leaks []string
	key, cfg := secret(markedRaw), secret(markedConfig)
	for how, text := range printed(v) {
		if shown := key.shown(text) + cfg.shown(text); shown != "" {
			leaks = append(leaks, how+" as "+shown)
		}
	}
	if len(leaks) > 0 {
		slices.Sort(leaks)
		t.Errorf("%s shows a key or a secret in %d ways of printing it:\n%s", name, len(leaks), strings.Join(leaks, "\n"))
	}
}

// No type of ours that holds a key or a secret shows it, however it is printed.
func TestSecrecy_printing(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	key := markedKey("print")
	cfg := queue.Config{KeySecret: []byte("a secret " + markedConfig), PreviousKeySecrets: [][]byte{[]byte("an old secret " + markedConfig)}}
	client := newClient(t, pool, cfg)

	idempotency := queue.Idempotency{Key: key, Scope: "s", TTL: time.Hour}
	debounce := queue.Debounce{Key: key, Window: time.Hour}
	throttle := queue.Throttle{Key: key, Window: time.Hour}
	req := queue.Request{Type: "t", Admission: idempotency}
	id := accept(t, client, req)
	binding, err := client.Binding(t.Context(), "s", key)
	if err != nil {
		t.Fatal(err)
	}
	job, err := client.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	events, err := client.Events(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	type holder struct {
		Name    string
		Request queue.Request
		Any     any
		Ptr     *queue.Idempotency
	}
	for name, v := range map[string]any{
		"Idempotency": idempotency, "*Idempotency": &idempotency, "**Idempotency": new(&idempotency), "a nil *Idempotency": (*queue.Idempotency)(nil),
		"Debounce": debounce, "*Debounce": &debounce, "Throttle": throttle, "*Throttle": &throttle,
		"[]Admission": []queue.Admission{idempotency, debounce, throttle}, "map of Throttle": map[string]queue.Throttle{"a": throttle}, "[1]Idempotency": [1]queue.Idempotency{idempotency},
		"Request": req, "*Request": &req, "[]Request": []queue.Request{req}, "[]*Request": []*queue.Request{&req}, "map of Request": map[string]queue.Request{"a": req},
		"a struct with a Request": holder{"n", req, idempotency, &idempotency}, "a pointer to that": &holder{"n", req, &throttle, &idempotency}, "a slice of any": []any{req, &req, debounce},
		"Config": cfg, "*Config": &cfg, "[]Config": []queue.Config{cfg}, "a struct with a Config": struct{ C queue.Config }{cfg},
		"*Client": client, "a struct with a *Client": struct{ C *queue.Client }{client},
		"BindingInfo": binding, "KeyRef": binding.Key, "*KeyRef": &binding.Key, "JobInfo": job, "*JobInfo": &job, "[]Event": events,
	} {
		t.Run(name, func(t *testing.T) { wantNothingPrinted(t, name, v) })
	}
}

// Every error names the key by its KeyRef alone.
func TestSecrecy_errors(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{KeySecret: []byte("a secret " + markedConfig)})
	bare := newClient(t, pgtest.NewEmpty(t), queue.Config{})

	for name, err := range secretErrors(t, pool, c, bare) {
		t.Run(name, func(t *testing.T) {
			if err == nil {
				t.Fatal("there is no error to look at")
			}
			for _, e := range append(errorsOf[error](err), err, fmt.Errorf("wrapped: %w", err), errors.Join(err, err)) {
				wantNothingPrinted(t, name, e)
			}
		})
	}
}

// secretErrors are all kinds of errors that requests with a marked key get.
func secretErrors(t *testing.T, pool *pgxpool.Pool, c, bare *queue.Client) map[string]error {
	t.Helper()
	key := markedKey("errors")
	accept(t, c, invoice(key))
	other := invoice(key)
	other.Priority = 1
	throttled := queue.Request{Type: "t", Admission: queue.Throttle{Key: key, Window: day}}
	gone, cancel := context.WithCancel(t.Context())
	cancel()

	single := func(c *queue.Client, req queue.Request) error {
		_, err := c.EnqueueWithResult(t.Context(), req)
		return err
	}
	many := func(c *queue.Client, reqs ...queue.Request) error {
		_, err := c.EnqueueMany(t.Context(), reqs)
		return err
	}
	blocked := func(send func(ctx context.Context, tx pgx.Tx) error) error {
		holder, _ := held(t, c, pool, invoice(key+"-blocked"))
		defer func() { _ = holder.Rollback(context.Background()) }()
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SET LOCAL lock_timeout = '20ms'`); err != nil {
				return err
			}
			return send(t.Context(), tx)
		})
	}
	errs := map[string]error{
		"a conflict":                       single(c, other),
		"a conflict of admissions":         single(c, throttled),
		"a conflict in a batch":            many(c, queue.Request{Type: "t"}, other),
		"a conflict inside a batch":        many(c, invoice(key+"-inside"), func() queue.Request { r := other; return withKey(r, key+"-inside") }()),
		"two admissions in a batch":        many(c, invoice(key+"-two"), withKey(throttled, key+"-two")),
		"a key that is too long":           single(c, invoice(strings.Repeat(key, 20))),
		"a throttle key that is too long":  single(c, withKey(throttled, strings.Repeat(key, 20))),
		"a key that is no UTF-8":           single(c, invoice(key+"\xff")),
		"bad requests in a batch":          many(c, invoice(strings.Repeat(key, 20)), invoice(key+"\xff"), queue.Request{Admission: queue.Idempotency{Key: key}}),
		"a bad request with a good key":    single(c, queue.Request{Priority: 101, Admission: queue.Idempotency{Key: key}}),
		"a debounced request":              single(c, queue.Request{Type: "t", RunAt: time.Now(), Admission: queue.Debounce{Key: key, Window: day}}),
		"a cancelled context":              func() error { _, err := c.EnqueueWithResult(gone, other); return err }(),
		"a cancelled context, batch":       func() error { _, err := c.EnqueueMany(gone, []queue.Request{other}); return err }(),
		"an unmigrated database":           single(bare, other),
		"an unmigrated database, batch":    many(bare, other),
		"a fingerprint of a bad request":   func() error { _, err := invoice(strings.Repeat(key, 20)).Fingerprint(); return err }(),
		"a binding that is not there":      func() error { _, err := c.Binding(t.Context(), "", key+"-nobody"); return err }(),
		"a binding of a bad key":           func() error { _, err := c.Binding(t.Context(), "", strings.Repeat(key, 20)); return err }(),
		"a binding of a key with bad text": func() error { _, err := c.Binding(t.Context(), "", key+"\xff"); return err }(),
		"a lock timeout": blocked(func(ctx context.Context, tx pgx.Tx) error {
			_, err := c.EnqueueTx(ctx, tx, invoice(key+"-blocked"))
			return err
		}),
		"a lock timeout, batch": blocked(func(ctx context.Context, tx pgx.Tx) error {
			_, err := c.EnqueueManyTx(ctx, tx, []queue.Request{invoice(key + "-blocked")})
			return err
		}),
	}
	_, short := queue.New(pool, queue.Config{KeySecret: []byte(markedConfig[:10]), PreviousKeySecrets: [][]byte{[]byte(markedConfig), []byte("short")}, MaxPayloadBytes: -1})
	errs["a bad Config"] = short
	return errs
}

// sink is a writer for loggers of several goroutines.
type sink struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// No statement, parameter, log line or row shows a key: of the client's logger,
// of pgx at its most talkative, of PostgreSQL with everything logged.
func TestSecrecy_databaseAndLogs(t *testing.T) {
	t.Parallel()
	server := pgtest.Quiet(t,
		devpg.Setting("log_statement", "all"), devpg.Setting("log_min_duration_statement", "0"), devpg.Setting("log_error_verbosity", "verbose"),
		devpg.Setting("log_parameter_max_length", "-1"), devpg.Setting("log_parameter_max_length_on_error", "-1"),
		devpg.Setting("log_lock_waits", "on"), devpg.Setting("deadlock_timeout", "10ms"), devpg.Setting("log_min_messages", "debug1"))
	pool := server.New(t)
	bare := newClient(t, server.NewEmpty(t), queue.Config{})
	var clientLog, driverLog sink
	options := &slog.HandlerOptions{Level: slog.LevelDebug - 10}

	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		traced := pgtest.Reconnect(t, pool, func(cfg *pgxpool.Config) {
			cfg.ConnConfig.DefaultQueryExecMode = mode
			cfg.ConnConfig.Tracer = &tracelog.TraceLog{LogLevel: tracelog.LogLevelTrace, Logger: tracelog.LoggerFunc(
				func(_ context.Context, level tracelog.LogLevel, msg string, data map[string]any) {
					fmt.Fprintf(&driverLog, "%s %s %v\n", level, msg, data)
				})}
		})
		for i, cfg := range []queue.Config{
			{Logger: slog.New(slog.NewTextHandler(&clientLog, options))},
			{Logger: slog.New(slog.NewJSONHandler(&clientLog, options)), KeySecret: []byte("a secret " + markedConfig), PreviousKeySecrets: [][]byte{[]byte("an old secret " + markedConfig), nil}},
		} {
			c := newClient(t, traced, cfg)
			suffix := fmt.Sprint(mode, i)
			key := markedKey(suffix)
			id := accept(t, c, invoice(key))
			replay(t, c, invoice(key), id)
			enqueue(t, c, withKey(notice(key), key+"throttle"))
			enqueue(t, c, withKey(notice(key), key+"throttle"))
			enqueueMany(t, c, []queue.Request{invoice(key), invoice(key + "batch"), invoice(key + "batch"), withKey(notice(key), key+"throttle")})
			expired(t, traced, c, invoice(key+"expired"))
			accept(t, c, invoice(key+"expired"))
			if err := pgx.BeginFunc(t.Context(), traced, func(tx pgx.Tx) error {
				_, one := c.EnqueueTx(t.Context(), tx, invoice(key+"tx"))
				_, many := c.EnqueueManyTx(t.Context(), tx, []queue.Request{invoice(key + "tx"), invoice(key + "tx-batch")})
				return errors.Join(one, many)
			}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Binding(t.Context(), "", key); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Events(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			if i == 0 { // the errors' keys are the same for every client
				secretErrors(t, traced, newClient(t, traced, queue.Config{Logger: cfg.Logger, KeySecret: []byte("another secret of " + suffix)}), bare)
			}
			if _, err := c.Maintain(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}

	key, cfg := secret(markedRaw), secret(markedConfig)
	for _, table := range pgtest.List[string](t, pool, `SELECT format('%I.%I', table_schema, table_name) FROM information_schema.tables
		WHERE table_schema NOT IN ('pg_catalog', 'information_schema') AND table_type = 'BASE TABLE'`) {
		for _, row := range pgtest.List[string](t, pool, `SELECT r::text FROM `+table+` r`) {
			key.wantAbsent(t, "a row of "+table, row)
			cfg.wantAbsent(t, "a row of "+table, row)
		}
	}
	activity := strings.Join(pgtest.List[string](t, pool, `SELECT coalesce(query, '') FROM pg_stat_activity`), "\n")
	serverLog := string(server.Log(t))
	for where, text := range map[string]string{
		"the client's log": clientLog.String(), "pgx's log": driverLog.String(), "pg_stat_activity": activity, "the server's log": serverLog,
	} {
		key.wantAbsent(t, where, text)
		cfg.wantAbsent(t, where, text)
	}
	if !strings.Contains(serverLog, "onceq.binding") || !strings.Contains(driverLog.String(), "onceq.binding") {
		t.Error("the logs don't show the statements: this test would find nothing")
	}
}
