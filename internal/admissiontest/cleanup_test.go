package admissiontest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Expired bindings, 200,000 of them, are removed without holding up enqueues.
func TestMaintain_besideEnqueues(t *testing.T) {
	w := newWorld(t)
	var keys atomic.Int64
	var p99 [2]time.Duration
	for i, what := range []string{"without", "with"} {
		w.exec(`INSERT INTO onceq.binding (accepted_at, expires_at, job_id, mode, key_hash, scope, fingerprint)
			SELECT now(), now(), gen_random_uuid(), 1 + 2 * (n % 2), sha256(int4send(n)), 'default', sha256(int4send(n))
			FROM generate_series(1, 200000) AS n ON CONFLICT DO NOTHING`)
		stop := make(chan struct{})
		var took []time.Duration
		var mu sync.Mutex
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					began := time.Now()
					w.enqueue(idempotent(fmt.Sprint("key ", keys.Add(1)), 1))
					d := time.Since(began)
					mu.Lock()
					took = append(took, d)
					mu.Unlock()
				}
			})
		}
		began := time.Now()
		if i == 0 {
			time.Sleep(3 * time.Second)
		} else {
			report, err := w.client.Maintain(w.ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, task := range report.Tasks {
				if task.Err != nil || task.Name == "expired_bindings" && task.Rows != 200000 {
					t.Errorf("%+v", task)
				}
			}
		}
		lasted := time.Since(began)
		close(stop)
		callers.Wait()
		slices.Sort(took)
		p99[i] = took[len(took)*99/100]
		t.Logf("%s the clean-up: %d enqueues in %s, median %s, p99 %s", what, len(took), lasted.Round(time.Millisecond),
			took[len(took)/2].Round(time.Microsecond), p99[i].Round(time.Microsecond))
	}
	// A generous bound: what must not happen is that enqueues wait for the clean-up.
	if p99[1] > 10*p99[0]+200*time.Millisecond {
		t.Errorf("p99 of an enqueue %s beside the clean-up, %s without", p99[1], p99[0])
	}
}
