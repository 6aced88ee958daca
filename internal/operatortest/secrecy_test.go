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
