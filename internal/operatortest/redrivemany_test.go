package operatortest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onceq/onceq/pkg/queue"
)

// lot makes so many dead letters, oldest death first, straight in the tables.
func (w *world) lot(n int) {
	w.t.Helper()
	const id = `('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid`
	w.exec(`INSERT INTO onceq.job (id, accepted_at, run_at, priority, max_attempts, queue, type, payload, tags)
		SELECT `+id+`, now() - interval '1 hour', now() - interval '1 hour', 0, 25, 'queue ' || n % 2, 'type ' || n % 3, to_jsonb(n), ARRAY['tag ' || n % 5] FROM generate_series(1, $1::int) AS n`, n)
	w.exec(`INSERT INTO onceq.finished (finished_at, claimed_at, job_id, state, attempt, worker_id, error)
		SELECT now() - interval '1 hour' + n * interval '1 second', now() - interval '1 hour', `+id+`, 2, 25, 'past', 'error ' || n % 7 FROM generate_series(1, $1::int) AS n`, n)
}

func lotID(n int) queue.JobID { return queue.JobID(fmt.Sprintf("00000000-0000-7000-8000-%012x", n)) }

// redriven are the payloads of the jobs that were made, in the order of making.
func redriven(w *world) []string {
	return texts(w, `SELECT j.payload::text FROM onceq.redrive AS r JOIN onceq.job AS j ON j.id = r.target_id ORDER BY r.at, j.payload::int`)
}

func numbers(from, to int) []string {
	var all []string
	for n := from; n <= to; n++ {
		all = append(all, fmt.Sprint(n))
	}
	return all
}

func TestRedriveMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lot(450)
	dry := queue.RedriveManyRequest{DryRun: true}

	t.Run("a dry run tells and writes nothing", func(t *testing.T) {
		before := snapshotOf(w)
		var steps []queue.RedriveManyResult
		dry.Progress = func(r queue.RedriveManyResult) { steps = append(steps, r) }
		want := queue.RedriveManyResult{Redriven: 450, LookedAt: 450}
		if diff := cmp.Diff(want, w.many(dry)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if len(steps) != 3 || steps[0].Redriven != 200 || steps[2] != want {
			t.Errorf("progress is told after each step: %+v", steps)
		}
		if diff := cmp.Diff(before, snapshotOf(w)); diff != "" {
			t.Errorf("a dry run wrote or locked something:\n%s", diff)
		}
	})
	t.Run("the oldest first, up to the limit", func(t *testing.T) {
		got := w.many(queue.RedriveManyRequest{RequestID: "a", Limit: 210})
		if want := (queue.RedriveManyResult{Redriven: 210, LookedAt: 210, AtLimit: true}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if diff := cmp.Diff(numbers(1, 210), redriven(w)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("the same request again replays and makes nothing", func(t *testing.T) {
		before := snapshotOf(w)
		got := w.many(queue.RedriveManyRequest{RequestID: "a", Limit: 210})
		if want := (queue.RedriveManyResult{Replayed: 210, LookedAt: 210, AtLimit: true}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if diff := cmp.Diff(before, snapshotOf(w)); diff != "" {
			t.Errorf("a replay wrote or locked something:\n%s", diff)
		}
	})
	t.Run("a higher limit goes on", func(t *testing.T) {
		got := w.many(queue.RedriveManyRequest{RequestID: "a", Limit: 220})
		if want := (queue.RedriveManyResult{Redriven: 10, Replayed: 210, LookedAt: 220, AtLimit: true}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
	t.Run("another request passes by what has been redriven", func(t *testing.T) {
		for _, dryRun := range []bool{true, false} {
			got := w.many(queue.RedriveManyRequest{RequestID: "b", Limit: 230, DryRun: dryRun})
			if want := (queue.RedriveManyResult{Redriven: 230, Skipped: 220, LookedAt: 450}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
	})
	t.Run("unless Again", func(t *testing.T) {
		got := w.many(queue.RedriveManyRequest{RequestID: "c", Limit: 5, Again: true})
		if want := (queue.RedriveManyResult{Redriven: 5, LookedAt: 5, AtLimit: true}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		got = w.many(queue.RedriveManyRequest{RequestID: "a", Limit: 220})
		if want := (queue.RedriveManyResult{Replayed: 220, LookedAt: 220, AtLimit: true}); got != want {
			t.Errorf("another order in between changes nothing for the first: got %+v, want %+v", got, want)
		}
	})
	t.Run("another actor is a conflict before anything is made", func(t *testing.T) {
		before := snapshotOf(w)
		for _, dryRun := range []bool{true, false} {
			r := manyOf(queue.RedriveManyRequest{RequestID: "a", DryRun: dryRun, Again: true})
			r.Actor = "night shift"
			_, err := w.client.RedriveMany(w.ctx, r)
			conflict, ok := errors.AsType[*queue.RedriveConflictError](err)
			if !ok || conflict.Source != lotID(1) || !slices.Equal(conflict.Fields, []string{"actor"}) {
				t.Errorf("want a conflict about the first source, got %v", err)
			}
		}
		if diff := cmp.Diff(before, snapshotOf(w)); diff != "" {
			t.Errorf("a conflict wrote or locked something:\n%s", diff)
		}
	})
	t.Run("a single order of the same id is part of it", func(t *testing.T) {
		id := w.dead("no paper", queue.Request{Queue: "other"})[0]
		target := w.redrive(id, "d", queue.Redriven)
		got := w.many(queue.RedriveManyRequest{RequestID: "d", Filter: queue.JobFilter{Queue: "other"}})
		if want := (queue.RedriveManyResult{Replayed: 1, LookedAt: 451}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		w.start(target)
		w.finish(2, "again", target)
		got = w.many(queue.RedriveManyRequest{RequestID: "d", Filter: queue.JobFilter{Queue: "other"}})
		if want := (queue.RedriveManyResult{Replayed: 1, LookedAt: 452}); got != want {
			t.Errorf("an order does not redrive the failures that it made itself: got %+v, want %+v", got, want)
		}
		got = w.many(queue.RedriveManyRequest{RequestID: "e", Filter: queue.JobFilter{Queue: "other"}})
		if want := (queue.RedriveManyResult{Redriven: 1, Skipped: 1, LookedAt: 452}); got != want {
			t.Errorf("another order does: got %+v, want %+v", got, want)
		}
	})
}

func TestRedriveMany_filters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lot(210)
	began := scan[time.Time](w, `SELECT finished_at FROM onceq.finished WHERE job_id = $1`, string(lotID(1)))
	fits := func(f func(n int) bool) []string {
		var all []string
		for n := 1; n <= 210; n++ {
			if f(n) {
				all = append(all, fmt.Sprint(n))
			}
		}
		return all
	}
	for i, c := range []struct {
		name   string
		filter queue.JobFilter
		want   []string
	}{
		{"nothing", queue.JobFilter{}, numbers(1, 210)},
		{"queue", queue.JobFilter{Queue: "queue 1"}, fits(func(n int) bool { return n%2 == 1 })},
		{"type", queue.JobFilter{Type: "type 2"}, fits(func(n int) bool { return n%3 == 2 })},
		{"tag", queue.JobFilter{Tag: "tag 4"}, fits(func(n int) bool { return n%5 == 4 })},
		{"error", queue.JobFilter{Error: "ror 6"}, fits(func(n int) bool { return n%7 == 6 })},
		{"since", queue.JobFilter{Since: began.Add(200 * time.Second)}, numbers(201, 210)},
		{"until", queue.JobFilter{Until: began.Add(3 * time.Second)}, numbers(1, 3)},
		{"the state, which is ignored", queue.JobFilter{State: queue.StateReady, Until: began.Add(time.Second)}, numbers(1, 1)},
		{"everything", queue.JobFilter{Queue: "queue 0", Type: "type 0", Tag: "tag 1", Error: "error 3", Since: began, Until: began.Add(time.Hour)},
			fits(func(n int) bool { return n%2 == 0 && n%3 == 0 && n%5 == 1 && n%7 == 3 })},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.exec(`TRUNCATE onceq.redrive`)
			if res := w.many(queue.RedriveManyRequest{RequestID: fmt.Sprint(i), Filter: c.filter}); int(res.Redriven) != len(c.want) {
				t.Errorf("%d jobs were made, want %d", res.Redriven, len(c.want))
			}
			if diff := cmp.Diff(c.want, redriven(w)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for name, r := range map[string]queue.RedriveManyRequest{
		"limit":  {Limit: -1},
		"queue":  {Filter: queue.JobFilter{Queue: " "}},
		"error":  {Filter: queue.JobFilter{Error: "a\x00b"}},
		"until":  {Filter: queue.JobFilter{Since: began, Until: began}},
		"limit:": {Limit: 1_000_001},
	} {
		if _, err := w.client.RedriveMany(w.ctx, manyOf(r)); !errors.Is(err, queue.ErrInvalidRequest) {
			t.Errorf("%s: want ErrInvalidRequest, got %v", name, err)
		}
	}
	r := manyOf(queue.RedriveManyRequest{})
	r.Limit = 0
	if _, err := w.client.RedriveMany(w.ctx, r); !errors.Is(err, queue.ErrInvalidRequest) {
		t.Errorf("no limit: want ErrInvalidRequest, got %v", err)
	}
}

// A run that was broken off, at whatever step, is finished by the next call with
// its request id: each dead letter has one target in the end.
func TestRedriveMany_brokenOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lot(1000)
	total := int64(0)
	for call := 0; ; call++ {
		ctx, cancel := context.WithCancelCause(w.ctx)
		r := manyOf(queue.RedriveManyRequest{Limit: 900})
		steps := 0
		r.Progress = func(queue.RedriveManyResult) {
			if steps++; steps == call+1 {
				cancel(errors.New("the operator went home"))
			}
		}
		res, err := w.client.RedriveMany(ctx, r)
		cancel(nil)
		total += res.Redriven
		if res.Redriven+res.Replayed > 900 {
			t.Fatalf("the limit is for all calls together: %+v", res)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, context.Canceled) || res.Redriven == 0 {
			t.Fatalf("call %d: %+v, %v", call, res, err)
		}
	}
	if total != 900 {
		t.Errorf("the calls say that they made %d jobs in all, want 900", total)
	}
	if diff := cmp.Diff(numbers(1, 900), redriven(w)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Runs of one order at once share the work.
func TestRedriveMany_atOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lot(600)
	var made, replayed [4]int64
	together(4, func(i int) {
		res, err := w.client.RedriveMany(w.ctx, manyOf(queue.RedriveManyRequest{}))
		if err != nil {
			t.Error(err)
		}
		made[i], replayed[i] = res.Redriven, res.Replayed
		if res.Redriven+res.Replayed != 600 {
			t.Errorf("each run answers for all: %+v", res)
		}
	})
	if sum := made[0] + made[1] + made[2] + made[3]; sum != 600 {
		t.Errorf("the runs made %d jobs, want 600: %v", sum, made)
	}
	if n := scan[int](w, `SELECT count(*) FROM onceq.pending`); n != 600 {
		t.Errorf("%d jobs wait, want 600", n)
	}
}
