package admissiontest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// stepRows is how many bindings one step of the clean-up may look at.
const stepRows = 2000

// A million expired bindings are removed in small steps, beside enqueues, of
// which none waits for it. How long enqueues take, beside it and without, is
// printed.
func TestMaintain_besideEnqueues(t *testing.T) {
	expired := pgtest.Rounds(1_000_000)
	steps := &statements{name: "DeleteExpiredBindings"}
	w := newWorldWith(t, queue.Config{}, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = steps })
	w.exec(`INSERT INTO onceq.binding (accepted_at, expires_at, job_id, mode, key_hash, scope, fingerprint)
		SELECT now(), now(), gen_random_uuid(), 1 + 2 * (n % 2), sha256(int4send(n)), 'default', sha256(int4send(n))
		FROM generate_series(1, $1) AS n`, expired)

	stop := w.enqueueAlways()
	time.Sleep(3 * time.Second)
	t.Logf("without the clean-up: %v", stop())

	stop = w.enqueueAlways()
	began := time.Now()
	report, err := w.client.Maintain(w.ctx)
	lasted := time.Since(began)
	beside := stop()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("beside the clean-up, %v long: %v", lasted.Round(time.Millisecond), beside)

	for _, task := range report.Tasks {
		if task.Err != nil || task.Name == "expired_bindings" && task.Rows != int64(expired) {
			t.Errorf("%d bindings had expired: %+v", expired, task)
		}
	}
	if n := int(steps.seen.Load()); n < expired/stepRows {
		t.Errorf("%d expired bindings were removed in %d steps, of more than %d each", expired, n, stepRows)
	}
	if beside.blocked > 0 {
		t.Errorf("an enqueue was seen waiting for a lock %d times in %d looks", beside.blocked, beside.looks)
	}
	if left := w.count("SELECT count(*) FROM onceq.binding WHERE expires_at <= now()"); left != 0 {
		t.Errorf("%d expired bindings are left", left)
	}
}

// enqueued is what a stretch of enqueues was like.
type enqueued struct {
	took           []time.Duration // in rising order
	looks, blocked int
}

func (e enqueued) String() string {
	return fmt.Sprintf("%d enqueues, median %v, p99 %v", len(e.took),
		e.took[len(e.took)/2].Round(time.Microsecond), e.took[len(e.took)*99/100].Round(time.Microsecond))
}

var freshKeys atomic.Int64

// enqueueAlways enqueues from several goroutines until it is stopped, and looks
// all the time whether a session waits for a lock.
func (w *world) enqueueAlways() (stop func() enqueued) {
	ctx, cancel := context.WithCancel(w.ctx)
	var e enqueued
	var mu sync.Mutex
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				w.enqueue(idempotent(fmt.Sprint("key ", freshKeys.Add(1)), 1))
				d := time.Since(began)
				mu.Lock()
				e.took = append(e.took, d)
				mu.Unlock()
			}
		})
	}
	callers.Go(func() {
		for ctx.Err() == nil {
			e.looks++
			// Sessions that wait for one another's commit record wait for no row.
			e.blocked += w.count(`SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event IN ('transactionid', 'tuple', 'relation')`)
			time.Sleep(time.Millisecond)
		}
	})
	return func() enqueued {
		cancel()
		callers.Wait()
		slices.Sort(e.took)
		return e
	}
}

// statements counts a pool's statements of one name.
type statements struct {
	name string
	seen atomic.Int64
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(data.SQL, "-- name: "+s.name+" ") {
		s.seen.Add(1)
	}
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
