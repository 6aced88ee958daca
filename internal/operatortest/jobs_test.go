package operatortest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// zoo has a few jobs in every state, in two queues.
func zoo(w *world) map[queue.State][]queue.JobID {
	w.t.Helper()
	all := map[queue.State][]queue.JobID{}
	for i := range 12 {
		r := queue.Request{Queue: []string{"a", "b"}[i%2], Tags: []string{fmt.Sprint("tag ", i%3)}, Type: fmt.Sprint("type ", i/6), Payload: i}
		ready := w.accept(r)
		running, succeeded, dead, cancelled := w.accept(r), w.accept(r), w.accept(r), w.accept(r)
		w.start(running, succeeded, dead, cancelled)
		w.finish(1, "", succeeded)
		w.finish(2, fmt.Sprint("no paper ", i), dead)
		w.finish(3, "no need", cancelled)
		r.RunAt = time.Now().Add(time.Hour)
		for state, id := range map[queue.State]queue.JobID{
			queue.StateReady: ready, queue.StateRunning: running, queue.StateSucceeded: succeeded, queue.StateDead: dead,
			queue.StateCancelled: cancelled, queue.StateScheduled: w.accept(r),
		} {
			all[state] = append(all[state], id)
		}
	}
	return all
}

func TestJobs_filters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	states := zoo(w)
	var all []queue.JobInfo
	for _, list := range states {
		for _, id := range list {
			job := w.job(id)
			job.Payload = nil
			all = append(all, job)
		}
	}
	slices.SortFunc(all, func(a, b queue.JobInfo) int { return strings.Compare(string(b.ID), string(a.ID)) })
	middle := all[36].AcceptedAt

	for state := range states {
		for name, c := range map[string]struct {
			filter queue.JobFilter
			fits   func(queue.JobInfo) bool
		}{
			"all":   {queue.JobFilter{}, func(queue.JobInfo) bool { return true }},
			"queue": {queue.JobFilter{Queue: "b"}, func(j queue.JobInfo) bool { return j.Queue == "b" }},
			"type":  {queue.JobFilter{Type: "type 1"}, func(j queue.JobInfo) bool { return j.Type == "type 1" }},
			"tag":   {queue.JobFilter{Tag: "tag 2"}, func(j queue.JobInfo) bool { return slices.Contains(j.Tags, "tag 2") }},
			"since": {queue.JobFilter{Since: middle}, func(j queue.JobInfo) bool { return !j.AcceptedAt.Before(middle) }},
			"until": {queue.JobFilter{Until: middle}, func(j queue.JobInfo) bool { return j.AcceptedAt.Before(middle) }},
			"error": {queue.JobFilter{Error: "paper 1"}, func(j queue.JobInfo) bool { return strings.Contains(j.LastError, "paper 1") }},
			"everything": {queue.JobFilter{Queue: "a", Type: "type 0", Tag: "tag 0", Since: all[71].AcceptedAt, Until: middle}, func(j queue.JobInfo) bool {
				return j.Queue == "a" && j.Type == "type 0" && slices.Contains(j.Tags, "tag 0") && j.AcceptedAt.Before(middle)
			}},
			"nothing":    {queue.JobFilter{Queue: "c"}, func(queue.JobInfo) bool { return false }},
			"the future": {queue.JobFilter{Since: middle.Add(300 * 24 * time.Hour)}, func(queue.JobInfo) bool { return false }},
			"prehistory": {queue.JobFilter{Until: time.Date(-4000, 1, 1, 0, 0, 0, 0, time.UTC)}, func(queue.JobInfo) bool { return false }},
		} {
			for _, s := range []queue.State{state, ""} {
				t.Run(fmt.Sprintf("%s %s", name, s), func(t *testing.T) {
					c.filter.State = s
					var want []queue.JobInfo
					for _, job := range all {
						if c.fits(job) && (s == "" || job.State == s) {
							want = append(want, job)
						}
					}
					if diff := cmp.Diff(want, jobsOf(t, w.client.Jobs(w.ctx, c.filter))); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
				})
			}
		}
	}
	t.Run("with payloads", func(t *testing.T) {
		for _, job := range jobsOf(t, w.client.Jobs(w.ctx, queue.JobFilter{WithPayload: true})) {
			if len(job.Payload) == 0 {
				t.Fatalf("job %s has no payload", job.ID)
			}
		}
	})
}

func jobsOf(t testing.TB, list iter.Seq2[queue.JobInfo, error]) []queue.JobInfo {
	t.Helper()
	var all []queue.JobInfo
	for job, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, job)
	}
	return all
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	zoo(w)
	w.exec(`DELETE FROM onceq.finished WHERE state = 2`)
	w.lot(2350)
	began := scan[time.Time](w, `SELECT finished_at FROM onceq.finished WHERE job_id = $1`, string(lotID(1)))
	w.exec(`UPDATE onceq.finished SET finished_at = $1 WHERE job_id >= $2 AND job_id <= $3`, began, string(lotID(1)), string(lotID(300)))
	for _, c := range []struct {
		name   string
		filter queue.JobFilter
		fits   func(n int) bool
	}{
		{"all", queue.JobFilter{}, func(int) bool { return true }},
		{"whatever the state", queue.JobFilter{State: queue.StateReady}, func(int) bool { return true }},
		{"queue", queue.JobFilter{Queue: "queue 1"}, func(n int) bool { return n%2 == 1 }},
		{"type", queue.JobFilter{Type: "type 2"}, func(n int) bool { return n%3 == 2 }},
		{"tag", queue.JobFilter{Tag: "tag 4"}, func(n int) bool { return n%5 == 4 }},
		{"error", queue.JobFilter{Error: "ror 6"}, func(n int) bool { return n%7 == 6 }},
		{"few", queue.JobFilter{Queue: "queue 1", Type: "type 2", Tag: "tag 4", Error: "error 6"}, func(n int) bool { return n%2 == 1 && n%3 == 2 && n%5 == 4 && n%7 == 6 }},
		{"no wildcards", queue.JobFilter{Error: "%"}, func(int) bool { return false }},
		{"since", queue.JobFilter{Since: began.Add(2000 * time.Second)}, func(n int) bool { return n >= 2001 }},
		{"until", queue.JobFilter{Until: began.Add(400 * time.Second)}, func(n int) bool { return n <= 400 }},
		{"an instant", queue.JobFilter{Since: began, Until: began.Add(time.Microsecond)}, func(n int) bool { return n <= 300 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var want []queue.JobID
			for n := 2350; n >= 1; n-- {
				if c.fits(n) {
					want = append(want, lotID(n))
				}
			}
			if diff := cmp.Diff(want, ids(t, w.client.DeadLetters(w.ctx, c.filter))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// No job is shown twice and none that stays is missed, whatever comes and goes
// between the pages.
func TestJobs_whileOthersComeAndGo(t *testing.T) {
	t.Parallel()
	for name, list := range map[string]func(w *world) iter.Seq2[queue.JobInfo, error]{
		"all": func(w *world) iter.Seq2[queue.JobInfo, error] { return w.client.Jobs(w.ctx, queue.JobFilter{}) },
		"dead": func(w *world) iter.Seq2[queue.JobInfo, error] {
			return w.client.Jobs(w.ctx, queue.JobFilter{State: queue.StateDead})
		},
		"some": func(w *world) iter.Seq2[queue.JobInfo, error] {
			return w.client.Jobs(w.ctx, queue.JobFilter{Tag: "tag 1"})
		},
		"dead letters": func(w *world) iter.Seq2[queue.JobInfo, error] { return w.client.DeadLetters(w.ctx, queue.JobFilter{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.lot(1000)
			gone := map[queue.JobID]bool{}
			seen := map[queue.JobID]bool{}
			n := 0
			for job, err := range list(w) {
				if err != nil {
					t.Fatal(err)
				}
				if seen[job.ID] || gone[job.ID] && n > 100 {
					t.Fatalf("job %s is shown twice, or long after it has gone", job.ID)
				}
				seen[job.ID] = true
				if n++; n%50 == 1 {
					w.dead("new", queue.Request{Tags: []string{"tag 1"}})
					for _, victim := range []int{1000 - 2*n, n} {
						if victim > 0 && victim%5 == 0 {
							gone[lotID(victim)] = true
							w.exec(`WITH f AS (DELETE FROM onceq.finished WHERE job_id = $1) DELETE FROM onceq.job WHERE id = $1`, string(lotID(victim)))
						}
					}
				}
			}
			for i := 1; i <= 1000; i++ {
				if id := lotID(i); !seen[id] && !gone[id] && (name != "some" || i%5 == 1) {
					t.Errorf("job %d stayed all the time and was not shown", i)
				}
			}
		})
	}
}

// A job that has left its state between the look at the index and the look at
// the job is not shown as what it no longer is.
func TestJobs_moveBetweenPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var waiting []queue.JobID
	for range 250 {
		waiting = append(waiting, w.accept(queue.Request{}))
	}
	n := 0
	for job, err := range w.client.Jobs(w.ctx, queue.JobFilter{State: queue.StateReady}) {
		if err != nil || job.State != queue.StateReady {
			t.Fatalf("%+v, %v", job, err)
		}
		if n++; n == 1 {
			w.start(waiting[:100]...)
		}
	}
	if n != 150 {
		t.Errorf("%d jobs were shown, want the 150 that were ready when their page was read", n)
	}
}

// While the caller looks at a job no connection is held, and breaking out leaves
// none behind; a list can be read again.
func TestJobs_connections(t *testing.T) {
	t.Parallel()
	w := worldOf(t, pgtest.NewWith(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 1 }), queue.Config{})
	w.lot(250)
	for name, list := range map[string]iter.Seq2[queue.JobInfo, error]{
		"jobs": w.client.Jobs(w.ctx, queue.JobFilter{WithPayload: true}), "dead letters": w.client.DeadLetters(w.ctx, queue.JobFilter{}),
	} {
		for n := range 3 {
			for job, err := range list {
				if err != nil {
					t.Fatal(err)
				}
				if got := w.pool.Stat().AcquiredConns(); got != 0 {
					t.Fatalf("%s: %d connections are held while the caller looks at a job", name, got)
				}
				w.job(job.ID) // with the only connection
				if n < 2 {
					break
				}
			}
		}
		if got := len(ids(t, list)); got != 250 {
			t.Errorf("%s: a list that was broken off is read again: %d jobs, want 250", name, got)
		}
		next, stop := iter.Pull2(list)
		if _, err, ok := next(); err != nil || !ok {
			t.Fatal(err)
		}
		stop()
		if got := w.pool.Stat().AcquiredConns(); got != 0 {
			t.Errorf("%s: %d connections are held after a stop", name, got)
		}
	}
}

func TestJobs_errors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lot(250)
	lists := map[string]func(context.Context, *queue.Client, queue.JobFilter) iter.Seq2[queue.JobInfo, error]{
		"jobs": func(ctx context.Context, c *queue.Client, f queue.JobFilter) iter.Seq2[queue.JobInfo, error] {
			return c.Jobs(ctx, f)
		},
		"dead letters": func(ctx context.Context, c *queue.Client, f queue.JobFilter) iter.Seq2[queue.JobInfo, error] {
			return c.DeadLetters(ctx, f)
		},
	}
	for name, list := range lists {
		t.Run(name, func(t *testing.T) {
			for field, f := range map[string]queue.JobFilter{
				"queue: ": {Queue: "a\x00"}, "type: ": {Type: strings.Repeat("t", 256)}, "tags: ": {Tag: strings.Repeat("é", 101)}, "error: ": {Error: strings.Repeat("e", 1001)},
				"since: ": {Since: time.Date(300000, 1, 1, 0, 0, 0, 0, time.UTC)}, "until: ": {Since: time.Now(), Until: time.Now().Add(-time.Hour)},
			} {
				if err := firstError(t, list(w.ctx, w.client, f)); !errors.Is(err, queue.ErrInvalidRequest) || !strings.Contains(err.Error(), field) {
					t.Errorf("want ErrInvalidRequest naming %s got %v", field, err)
				}
			}
			if err := firstError(t, w.client.Jobs(w.ctx, queue.JobFilter{State: "asleep"})); !errors.Is(err, queue.ErrInvalidRequest) {
				t.Errorf("want ErrInvalidRequest, got %v", err)
			}
			if err := firstError(t, list(w.ctx, clientOf(t, pgtest.NewEmpty(t), queue.Config{}), queue.JobFilter{})); !errors.Is(err, queue.ErrSchemaOutdated) {
				t.Errorf("want ErrSchemaOutdated, got %v", err)
			}
			ctx, cancel := context.WithCancel(w.ctx)
			n := 0
			var last error
			for _, err := range list(ctx, w.client, queue.JobFilter{}) {
				if n++; n == 100 {
					cancel()
				}
				last = err
			}
			cancel()
			if !errors.Is(last, context.Canceled) || n != 101 {
				t.Errorf("the page that was read is shown, then the context's error ends the list: %d items, %v", n, last)
			}
		})
	}
}
