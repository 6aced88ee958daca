package admissiontest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/pkg/queue"
)

func TestDebounce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Run("the first request is scheduled a window away", func(t *testing.T) {
		res := w.enqueue(debounce("first", "v1", queue.Debounce{Window: time.Hour}))
		if res.Outcome != queue.OutcomeAccepted {
			t.Fatalf("got %+v, want accepted", res)
		}
		job, b := w.job(res.JobID), w.binding("first")
		if job.State != queue.StateScheduled || !job.RunAt.Equal(b.ExpiresAt) || b.Mode != "debounce" || b.JobID != res.JobID {
			t.Errorf("job %+v and binding %+v do not fit", job, b)
		}
		near(t, "run time", job.RunAt, time.Now().Add(time.Hour))
	})
	t.Run("a repeat replaces the definition and keeps the id", func(t *testing.T) {
		first := w.enqueue(debounce("repeat", "v1", queue.Debounce{}))
		w.age(30 * time.Second)
		next := queue.Request{
			Type: "other", Queue: "q2", Payload: map[string]int{"v": 2}, Priority: 7, ConcurrencyKey: "c", Tags: []string{"b", "a"}, MaxAttempts: 3,
			Retry: queue.Fixed{Delay: time.Second}, Deadline: time.Now().Add(time.Hour), ExecutionTimeout: time.Second,
			Admission: queue.Debounce{Key: "repeat", Window: 2 * time.Minute},
		}
		res := w.enqueue(next)
		if res != (queue.Result{JobID: first.JobID, Outcome: queue.OutcomeReplaced}) {
			t.Fatalf("got %+v, want the first job replaced", res)
		}
		job := w.job(res.JobID)
		if job.Type != "other" || job.Queue != "q2" || string(job.Payload) != `{"v": 2}` || job.Priority != 7 || job.ConcurrencyKey != "c" ||
			strings.Join(job.Tags, "") != "ba" || job.MaxAttempts != 3 || job.Deadline.IsZero() || job.State != queue.StateScheduled {
			t.Errorf("the job kept some of its old definition: %+v", job)
		}
		if n := w.count("SELECT count(*) FROM onceq.job WHERE id = $1 AND retry IS NOT NULL AND execution_timeout = '1 second'", string(res.JobID)); n != 1 {
			t.Error("retry or timeout kept their old values")
		}
		near(t, "run time", job.RunAt, time.Now().Add(2*time.Minute))
		if b := w.binding("repeat"); !b.ExpiresAt.Equal(job.RunAt) {
			t.Errorf("binding until %s, run time %s", b.ExpiresAt, job.RunAt)
		}
		events, err := w.client.Events(w.ctx, res.JobID)
		if err != nil || len(events) != 2 || events[1].Kind != queue.EventReplaced {
			t.Errorf("got events %+v (%v), want one replaced", events, err)
		}
		if n := w.count("SELECT count(*) FROM onceq.pending WHERE job_id = $1", string(res.JobID)); n != 1 {
			t.Errorf("the job has %d places", n)
		}
	})
	t.Run("an equal repeat is replaced too", func(t *testing.T) {
		first := w.enqueue(debounce("equal", "v1", queue.Debounce{}))
		if res := w.enqueue(debounce("equal", "v1", queue.Debounce{})); res != (queue.Result{JobID: first.JobID, Outcome: queue.OutcomeReplaced}) {
			t.Errorf("got %+v", res)
		}
	})
	t.Run("Hold keeps run time and expiry", func(t *testing.T) {
		first := w.enqueue(debounce("hold", "v1", queue.Debounce{}))
		before := w.job(first.JobID).RunAt
		res := w.enqueue(debounce("hold", "v2", queue.Debounce{Window: time.Hour, Hold: true}))
		job := w.job(first.JobID)
		if res.Outcome != queue.OutcomeReplaced || !job.RunAt.Equal(before) || string(job.Payload) != `"v2"` || !w.binding("hold").ExpiresAt.Equal(before) {
			t.Errorf("got %+v, job %+v, want run time %s", res, job, before)
		}
	})
	t.Run("MaxWait bounds how far replacements move the run time", func(t *testing.T) {
		first := w.enqueue(debounce("max", 0, queue.Debounce{Window: time.Minute, MaxWait: 3 * time.Minute}))
		for i := range 5 {
			w.age(30 * time.Second)
			if res := w.enqueue(debounce("max", i, queue.Debounce{Window: time.Minute, MaxWait: 3 * time.Minute})); res.Outcome != queue.OutcomeReplaced {
				t.Fatalf("replacement %d: %+v", i, res)
			}
		}
		// 2 min 30 s after the acceptance, a window would reach beyond 3 min.
		b := w.binding("max")
		if !b.ExpiresAt.Equal(b.AcceptedAt.Add(3*time.Minute)) || !w.job(first.JobID).RunAt.Equal(b.ExpiresAt) {
			t.Errorf("accepted at %s, expires at %s, runs at %s", b.AcceptedAt, b.ExpiresAt, w.job(first.JobID).RunAt)
		}
		w.age(31 * time.Second)
		if res := w.enqueue(debounce("max", 9, queue.Debounce{Window: time.Minute, MaxWait: 3 * time.Minute})); res.Reason != queue.ReasonWindowElapsed {
			t.Errorf("after the longest wait: %+v, want window_elapsed", res)
		}
	})
	t.Run("without MaxWait a steady stream moves it for ever", func(t *testing.T) {
		first := w.enqueue(debounce("stream", 0, queue.Debounce{}))
		for i := range 20 {
			w.age(50 * time.Second)
			if res := w.enqueue(debounce("stream", i, queue.Debounce{})); res != (queue.Result{JobID: first.JobID, Outcome: queue.OutcomeReplaced}) {
				t.Fatalf("replacement %d: %+v", i, res)
			}
		}
		near(t, "run time", w.job(first.JobID).RunAt, time.Now().Add(time.Minute))
	})
	t.Run("FollowUp accepts a fresh job once the retained one has started or ended", func(t *testing.T) {
		for i, state := range []string{"running", "succeeded", "dead", "cancelled"} {
			key := "follow " + state
			first := w.enqueue(debounce(key, "v1", queue.Debounce{}))
			if state == "cancelled" {
				if _, err := w.client.Cancel(w.ctx, first.JobID, "a test"); err != nil {
					t.Fatal(err)
				}
			} else {
				w.start(first.JobID)
				if i > 0 {
					w.finish(first.JobID, i)
				}
			}
			old := w.enqueue(debounce(key, "v2", queue.Debounce{}))
			if old != (queue.Result{JobID: first.JobID, Outcome: queue.OutcomeNonReplaceable, Reason: queue.ReasonNotPending, Dead: state == "cancelled"}) {
				t.Errorf("%s: %+v, want not_pending", state, old)
			}
			fresh := w.enqueue(debounce(key, "v2", queue.Debounce{FollowUp: true}))
			if fresh.Outcome != queue.OutcomeAccepted || fresh.JobID == first.JobID || w.binding(key).JobID != fresh.JobID {
				t.Errorf("%s: %+v, want a fresh job that owns the key", state, fresh)
			}
			if b := w.binding(key); b.Dead {
				t.Errorf("%s: the fresh binding is marked dead", state)
			}
			near(t, "run time", w.job(fresh.JobID).RunAt, time.Now().Add(time.Minute))
			// The follow-up waits: it is replaced, and no third job appears.
			if res := w.enqueue(debounce(key, "v3", queue.Debounce{FollowUp: true})); res != (queue.Result{JobID: fresh.JobID, Outcome: queue.OutcomeReplaced}) {
				t.Errorf("%s: %+v, want the follow-up replaced", state, res)
			}
		}
	})
}

func TestDebounce_refusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cases := []struct {
		name, why string
		before    func(key string) queue.JobID
		want      queue.NonReplaceableReason // "": accepted
	}{
		{"idempotency", "another mode owns the key", func(k string) queue.JobID { return w.enqueue(idempotent(k, 1)).JobID }, queue.ReasonIncompatibleMode},
		{"throttle", "another mode owns the key", func(k string) queue.JobID { return w.enqueue(throttle(k, 1)).JobID }, queue.ReasonIncompatibleMode},
		{"expired idempotency", "an expired key of another mode is taken over", func(k string) queue.JobID {
			id := w.enqueue(idempotent(k, 1)).JobID
			w.age(25 * time.Hour)
			return id
		}, ""},
		{"running", "it has started", func(k string) queue.JobID {
			id := w.enqueue(debounce(k, 1, queue.Debounce{})).JobID
			w.start(id)
			return id
		}, queue.ReasonNotPending},
		{"waiting for a retry", "it has started before", func(k string) queue.JobID {
			id := w.enqueue(debounce(k, 1, queue.Debounce{})).JobID
			w.exec("UPDATE onceq.pending SET fence = 1, attempt = 1 WHERE job_id = $1", string(id))
			return id
		}, queue.ReasonNotPending},
		{"its row is gone", "retention can't free a live key", func(k string) queue.JobID {
			id := w.enqueue(debounce(k, 1, queue.Debounce{})).JobID
			w.exec("DELETE FROM onceq.pending WHERE job_id = $1", string(id))
			w.exec("DELETE FROM onceq.job WHERE id = $1", string(id))
			return id
		}, queue.ReasonNotPending},
		{"window over, still pending", "a second pending job must not appear", func(k string) queue.JobID {
			id := w.enqueue(debounce(k, 1, queue.Debounce{})).JobID
			w.age(61 * time.Second)
			return id
		}, queue.ReasonWindowElapsed},
		{"window over, running", "nothing waits any more", func(k string) queue.JobID {
			id := w.enqueue(debounce(k, 1, queue.Debounce{})).JobID
			w.start(id)
			w.age(61 * time.Second)
			return id
		}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for _, way := range []string{"single", "batch"} {
				key := c.name + " " + way
				id := c.before(key)
				tx := w.begin()
				var err error
				var res queue.Result
				if r := debounce(key, 2, queue.Debounce{}); way == "single" {
					res, err = w.client.EnqueueTx(w.ctx, tx, r)
				} else {
					var all []queue.Result
					if all, err = w.client.EnqueueManyTx(w.ctx, tx, []queue.Request{r}); err == nil {
						res = all[0]
					}
				}
				if err != nil {
					t.Fatalf("%s: %v", way, err)
				}
				if c.want == "" {
					if res.Outcome != queue.OutcomeAccepted || res.JobID == id {
						t.Errorf("%s: got %+v, want a fresh job: %s", way, res, c.why)
					}
				} else {
					if res != (queue.Result{JobID: id, Outcome: queue.OutcomeNonReplaceable, Reason: c.want}) {
						t.Errorf("%s: got %+v, want %s: %s", way, res, c.want, c.why)
					}
					wroteNothing(t, tx)
				}
				if err := tx.Commit(w.ctx); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// What can be refused for its fields is, also where the key would refuse it.
func TestDebounce_refusedInFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enqueue(idempotent("k", 1))
	for _, r := range []queue.Request{
		{Type: "", Admission: queue.Debounce{Key: "k", Window: time.Second}},
		{Type: "t", Admission: queue.Debounce{Key: "k"}},
		{Type: "t", Admission: queue.Debounce{Key: "k", Window: time.Second, MaxWait: time.Microsecond}},
		{Type: "t", RunAt: time.Now(), Admission: queue.Debounce{Key: "k", Window: time.Second}},
		{Type: "t", Payload: func() {}, Admission: queue.Debounce{Key: "k", Window: time.Second}},
		{Type: "t", Priority: 101, Admission: queue.Debounce{Key: "k", Window: time.Second}},
	} {
		if _, err := w.client.EnqueueWithResult(w.ctx, r); !errors.Is(err, queue.ErrInvalidRequest) {
			t.Errorf("%+v: got %v, want ErrInvalidRequest", r, err)
		}
		if _, err := w.client.EnqueueMany(w.ctx, []queue.Request{r}); !errors.Is(err, queue.ErrInvalidRequest) {
			t.Errorf("%+v in a batch: got %v, want ErrInvalidRequest", r, err)
		}
	}
}
