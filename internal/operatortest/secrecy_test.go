package operatortest

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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

// marked is a request id whose preview shows nothing of the middle.
const (
	middle = "Zq9xMARKER77kqPartOfTheRequestID"
	marked = "redrive-order-" + middle + "-of-monday"
)

// A request id is in no table, error, log or statement, nor printed with the
// request that holds it.
func TestRedrive_secrecy(t *testing.T) {
	t.Parallel()
	server := pgtest.Quiet(t,
		devpg.Setting("log_statement", "all"), devpg.Setting("log_error_verbosity", "verbose"), devpg.Setting("log_parameter_max_length", "-1"),
		devpg.Setting("log_parameter_max_length_on_error", "-1"), devpg.Setting("log_min_messages", "debug1"))
	var driverLog, clientLog sink
	pool := server.NewWith(t, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.Tracer = &tracelog.TraceLog{LogLevel: tracelog.LogLevelTrace, Logger: tracelog.LoggerFunc(
			func(_ context.Context, level tracelog.LogLevel, msg string, data map[string]any) {
				fmt.Fprintf(&driverLog, "%s %s %v\n", level, msg, data)
			})}
	})
	var shown []string
	for i, cfg := range []queue.Config{{}, {KeySecret: []byte("a secret of 16 b"), PreviousKeySecrets: [][]byte{nil}}} {
		cfg.Logger = slog.New(slog.NewTextHandler(&clientLog, &slog.HandlerOptions{Level: slog.LevelDebug - 10}))
		w := worldOf(t, pool, cfg)
		id := w.dead("no paper", queue.Request{})[0]
		w.redrive(id, marked, queue.Redriven)
		w.redrive(id, marked, queue.RedriveReplayed)
		w.lot(3 * (1 - i))
		many := manyOf(queue.RedriveManyRequest{RequestID: marked})
		if res, err := w.client.RedriveMany(w.ctx, many); err != nil || res.Redriven+res.Replayed == 0 {
			t.Fatal(res, err)
		}
		single := queue.RedriveRequest{JobID: id, RequestID: marked, Actor: "night shift", Reason: "r"}
		_, conflict := w.client.Redrive(w.ctx, single)
		if _, ok := errors.AsType[*queue.RedriveConflictError](conflict); !ok {
			t.Fatal(conflict)
		}
		_, long := w.client.Redrive(w.ctx, queue.RedriveRequest{JobID: id, RequestID: strings.Repeat(marked, 20), Actor: "night shift", Reason: "r"})
		_, bad := w.client.Redrive(w.ctx, queue.RedriveRequest{JobID: id, RequestID: marked + "\xff", Actor: "night shift", Reason: "r"})
		gone, cancel := context.WithCancel(w.ctx)
		cancel()
		_, ended := w.client.Redrive(gone, single)
		many.Actor = "night shift"
		_, manyConflict := w.client.RedriveMany(w.ctx, many)
		for _, err := range []error{conflict, long, bad, ended, manyConflict} {
			if err == nil {
				t.Fatal("there is no error to look at")
			}
			shown = append(shown, fmt.Sprintf("%v|%+v|%#v|%q", err, err, err, err))
		}
		for _, v := range []any{single, &single, many, &many, []queue.RedriveRequest{single}, map[string]any{"r": many}} {
			text, err := json.Marshal(v)
			if err != nil {
				t.Error(err)
			}
			shown = append(shown, string(text), fmt.Sprint(v), fmt.Sprintf("%+v|%#v|%s|%q|%x|%d", v, v, v, v, v, v))
			slog.New(slog.NewJSONHandler(&clientLog, nil)).Info("order", "order", v)
		}
		for _, table := range texts(w, `SELECT format('%I.%I', table_schema, table_name) FROM information_schema.tables WHERE table_schema = 'onceq'`) {
			for _, row := range texts(w, `SELECT r::text FROM `+table+` AS r`) {
				shown = append(shown, table+" "+row)
			}
		}
	}
	shown = append(shown, driverLog.String(), clientLog.String(), string(server.Log(t)))
	for _, text := range shown {
		for _, secret := range []string{middle, hex.EncodeToString([]byte(middle)), fmt.Sprint([]byte(middle))} {
			if at := strings.Index(strings.ToLower(text), strings.ToLower(secret)); at >= 0 {
				t.Errorf("the request id is shown: %.300s", text[max(0, at-150):])
			}
		}
	}
	if !strings.Contains(driverLog.String(), "onceq.redrive") {
		t.Error("the logs don't show the statements: this test would find nothing")
	}
}

// Operators' calls work in another schema, and know nothing of the first.
func TestOtherSchema(t *testing.T) {
	t.Parallel()
	first := newWorld(t)
	migrate(t, first.pool, "tenant_a")
	w := worldOf(t, first.pool, queue.Config{Schema: "tenant_a"})
	id, err := w.client.Enqueue(w.ctx, queue.Request{Type: "t", RunAt: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.client.RunNow(w.ctx, id); !errors.Is(err, queue.ErrJobNotFound) {
		t.Errorf("want ErrJobNotFound, got %v", err)
	}
	if err := w.client.RunNow(w.ctx, id); err != nil {
		t.Fatal(err)
	}
	w.exec(`WITH taken AS (DELETE FROM tenant_a.pending RETURNING *)
		INSERT INTO tenant_a.finished (finished_at, job_id, state, attempt, error) SELECT clock_timestamp(), job_id, 2, 1, 'no paper' FROM taken`)
	first.redrive(id, "order", queue.RedriveNotFound)
	target := w.redrive(id, "order", queue.Redriven)
	if res := w.many(queue.RedriveManyRequest{}); res.Skipped != 1 {
		t.Errorf("%+v", res)
	}
	if got := ids(t, w.client.Jobs(w.ctx, queue.JobFilter{})); len(got) != 2 || got[0] != target {
		t.Errorf("the list: %v", got)
	}
	if got := ids(t, w.client.DeadLetters(w.ctx, queue.JobFilter{})); len(got) != 1 {
		t.Errorf("the dead letters: %v", got)
	}
	for _, state := range []queue.State{queue.StateReady, queue.StateScheduled, queue.StateRunning, queue.StateSucceeded, queue.StateDead, queue.StateCancelled} {
		ids(t, w.client.Jobs(w.ctx, queue.JobFilter{State: state}))
	}
	stats, err := w.client.Stats(w.ctx)
	if err != nil || len(stats) != 1 || stats[0].Ready != 1 || stats[0].Dead != 1 {
		t.Errorf("%+v, %v", stats, err)
	}
	w.maintain()
	if n := scan[int](first, `SELECT (SELECT count(*) FROM onceq.job) + (SELECT count(*) FROM onceq.redrive) + (SELECT count(*) FROM onceq.event)`); n != 0 {
		t.Errorf("the first schema holds %d rows", n)
	}
}

// The calls work in every way in which pgx can send a statement.
func TestExecModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			w := worldOf(t, pgtest.NewWith(t, func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = mode }), queue.Config{KeySecret: []byte("a secret of 16 b"), PreviousKeySecrets: [][]byte{nil}})
			w.exec(`INSERT INTO onceq.job (id, accepted_at, run_at, priority, max_attempts, queue, type, payload)
				SELECT gen_random_uuid(), now(), now(), 0, 1, 'q', 't', '1' FROM generate_series(1, 3)`)
			w.exec(`INSERT INTO onceq.finished (finished_at, job_id, state, attempt, error) SELECT now(), id, 2, 1, 'no paper' FROM onceq.job`)
			dead := ids(t, w.client.DeadLetters(w.ctx, queue.JobFilter{Queue: "q", Error: "paper", WithPayload: true}))
			if len(dead) != 3 {
				t.Fatalf("%d dead letters", len(dead))
			}
			w.redrive(dead[0], "order", queue.Redriven)
			w.redrive(dead[0], "order", queue.RedriveReplayed)
			if res := w.many(queue.RedriveManyRequest{}); res.Redriven != 2 || res.Skipped != 1 {
				t.Errorf("%+v", res)
			}
			for _, state := range []queue.State{"", queue.StateReady, queue.StateRunning, queue.StateDead, queue.StateSucceeded} {
				ids(t, w.client.Jobs(w.ctx, queue.JobFilter{State: state}))
			}
			stats, err := w.client.Stats(w.ctx)
			if err != nil || len(stats) != 1 || stats[0].Ready != 3 || stats[0].Dead != 3 {
				t.Errorf("%+v, %v", stats, err)
			}
			id := w.accept(queue.Request{RunAt: time.Now().Add(time.Hour), Admission: queue.Idempotency{Key: "k"}})
			if err := w.client.RunNow(w.ctx, id); err != nil {
				t.Error(err)
			}
			if got := kinds(t, w, id); got != "accepted run_now" {
				t.Error(got)
			}
		})
	}
}
