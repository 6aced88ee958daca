package admissiontest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onceq/onceq/pkg/queue"
)

// A caller's transaction whose snapshot is older than the end of the window: it
// still shows the job waiting, whatever became of it. Where the job does wait the
// answer is window_elapsed; where it has started a transaction that can't look
// again is told to retry, and none is told that the window is over.
func TestDebounce_oldSnapshot(t *testing.T) {
	t.Parallel()
	rotated := queue.Config{KeySecret: []byte("0123456789abcdef"), PreviousKeySecrets: [][]byte{nil}}
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		for way, cfg := range map[string]queue.Config{"single": {}, "batch": {}, "single under two hashes": rotated} {
			t.Run(fmt.Sprintf("%s, %s", level, way), func(t *testing.T) {
				t.Parallel()
				oldSnapshot(t, newWorldWith(t, cfg, nil), level, way)
			})
		}
	}
}

func oldSnapshot(t *testing.T, w *world, level pgx.TxIsoLevel, way string) {
	type try struct {
		name, state string
		request     queue.Request
		first       queue.JobID
		tx          pgx.Tx
	}
	var tries []try
	for _, state := range []string{"waits", "runs", "has ended", "has ended and lost its key"} {
		for _, follow := range []bool{false, true} {
			name := fmt.Sprintf("the job %s, follow up %t", state, follow)
			r := debounce(name, 1, queue.Debounce{FollowUp: follow})
			first := w.enqueue(r).JobID
			tries = append(tries, try{name, state, r, first, w.begin(level)})
		}
	}
	snapshots := func(left time.Duration) (live bool) {
		w.leave(left)
		for _, try := range tries {
			if err := try.tx.QueryRow(w.ctx, "SELECT bool_and(expires_at > clock_timestamp()) FROM onceq.binding").Scan(&live); err != nil {
				t.Fatal(err)
			}
		}
		return live
	}
	// A machine that is too slow gets more time, in other transactions.
	for left := 2 * time.Second; !snapshots(left); left *= 2 {
		if left == 8*time.Second {
			t.Fatal("the snapshots were always taken too late")
		}
		for i := range tries {
			if err := tries[i].tx.Rollback(w.ctx); err != nil {
				t.Fatal(err)
			}
			tries[i].tx = w.begin(level)
		}
	}
	w.await("SELECT count(*) FROM onceq.binding WHERE expires_at > clock_timestamp()", 0)
	for _, try := range tries {
		if try.state != "waits" {
			w.start(try.first)
		}
		if try.state == "has ended" || try.state == "has ended and lost its key" {
			w.finish(try.first, 1)
		}
		if try.state == "has ended and lost its key" { // as maintenance does
			w.exec("DELETE FROM onceq.binding WHERE job_id = $1", string(try.first))
		}
	}
	for _, try := range tries {
		try.request.Payload = 2
		got, err := w.sendIn(try.tx, way, try.request)
		switch {
		case try.state == "waits":
			if want := (queue.Result{JobID: try.first, Outcome: queue.OutcomeNonReplaceable, Reason: queue.ReasonWindowElapsed}); err != nil || got != want {
				t.Errorf("%s: got %+v, %v, want window_elapsed", try.name, got, err)
			}
			if level == pgx.ReadCommitted && way != "batch" { // whose other request is accepted
				wroteNothing(t, try.tx)
			}
		case level == pgx.ReadCommitted:
			if err != nil || got.Outcome != queue.OutcomeAccepted {
				t.Errorf("%s: got %+v, %v, want a fresh job", try.name, got, err)
			}
		default:
			pg, _ := errors.AsType[*pgconn.PgError](err)
			if !errors.Is(err, queue.ErrRetryTransaction) || pg == nil || pg.Code != "40001" {
				t.Errorf("%s: got %+v, %v, want ErrRetryTransaction for 40001", try.name, got, err)
			}
			continue
		}
		if err := try.tx.Commit(w.ctx); err != nil {
			t.Errorf("%s: commit: %v", try.name, err)
		}
	}
}

// sendIn hands over a request in a transaction: alone, or twice in a batch
// behind one that is accepted, whose answers must be the same.
func (w *world) sendIn(tx pgx.Tx, way string, r queue.Request) (queue.Result, error) {
	w.t.Helper()
	if way != "batch" {
		return w.client.EnqueueTx(w.ctx, tx, r)
	}
	all, err := w.client.EnqueueManyTx(w.ctx, tx, []queue.Request{{Type: "report.build"}, r, r})
	if err != nil {
		return queue.Result{}, err
	}
	if all[0].Outcome != queue.OutcomeAccepted || all[1].Outcome != queue.OutcomeAccepted && all[1] != all[2] {
		w.t.Errorf("a batch in which two requests are alike was answered %+v", all)
	}
	return all[1], nil
}
