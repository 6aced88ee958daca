package operatortest

import (
	"errors"
	"testing"
	"time"

	"github.com/onceq/onceq/pkg/queue"
)

const day = 24 * time.Hour

// The record of a redrive stays for as long as one of its jobs is there: until
// then the order is replayed, and each job names the other.
func TestRetention_ofRedrives(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	records := func(want int) {
		t.Helper()
		if n := scan[int](w, `SELECT count(*) FROM onceq.redrive`); n != want {
			t.Fatalf("%d records of redrives, want %d", n, want)
		}
	}
	// Two sources that die today; the target of one ends on day 20, that of the other
	// is purged.
	source, other := w.dead("no paper", queue.Request{})[0], w.dead("no paper", queue.Request{Queue: "other"})[0]
	target := w.redrive(source, "order", queue.Redriven)
	w.redrive(other, "order", queue.Redriven)
	if n, err := w.client.Purge(w.ctx, queue.PurgeFilter{Queue: "other"}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	purged := w.job(other).RedrivenAs
	if got := w.redrive(other, "order", queue.RedriveReplayed); got != purged || purged == "" {
		t.Errorf("the order is answered with the purged target %q, got %q", purged, got)
	}
	w.redrive(other, "another", queue.RedriveAlready)
	w.maintain()
	records(2)

	w.age(20 * day)
	w.start(target)
	w.finish(2, "again", target)
	w.age(10*day + time.Hour) // the sources' retention has passed
	w.maintain()
	w.maintain()
	records(1)
	for _, id := range []queue.JobID{source, other} {
		if _, err := w.client.Job(w.ctx, id); !errors.Is(err, queue.ErrJobNotFound) {
			t.Fatalf("the source must have gone: %v", err)
		}
	}
	if got := w.redrive(source, "order", queue.RedriveReplayed); got != target {
		t.Errorf("the order is replayed while its target is there: got %s", got)
	}
	w.redrive(source, "another", queue.RedriveNotFound)
	w.redrive(other, "order", queue.RedriveNotFound)
	if job := w.job(target); job.RedriveOf != source {
		t.Errorf("the target names its source: %+v", job)
	}

	w.age(20 * day)
	w.maintain()
	w.maintain()
	records(0)
	w.redrive(source, "order", queue.RedriveNotFound)
	if n := scan[int](w, `SELECT count(*) FROM onceq.job`); n != 0 {
		t.Errorf("%d jobs are left", n)
	}
}

// Redrives don't keep their sources from being deleted, and a record younger than
// any retention is not looked at.
func TestRetention_walksOnByRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lot(2500)
	if res := w.many(queue.RedriveManyRequest{Limit: 5000}); res.Redriven != 2500 {
		t.Fatalf("%+v", res)
	}
	w.age(31 * day)
	w.maintain()
	if n := scan[int](w, `SELECT count(*) FROM onceq.finished`); n != 0 {
		t.Errorf("%d ended jobs are past their retention, and still there", n)
	}
	if n := scan[int](w, `SELECT count(*) FROM onceq.redrive`); n != 2500 {
		t.Errorf("%d records are there, want 2,500: their targets wait", n)
	}
	w.exec(`DELETE FROM onceq.job`)
	w.exec(`DELETE FROM onceq.pending`)
	w.exec(`UPDATE onceq.redrive SET at = clock_timestamp() - interval '6 days' WHERE ordinal = 1 AND target_id IN (SELECT target_id FROM onceq.redrive LIMIT 10)`)
	w.maintain()
	if n := scan[int](w, `SELECT count(*) FROM onceq.redrive`); n != 10 {
		t.Errorf("%d records are there, want the 10 that are younger than the shortest retention", n)
	}
}

// The one exception to the limit of an order of many: a dead letter that retention
// has deleted counts no longer. Nothing is made twice even so.
func TestRetention_ofSourcesOfAnOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lot(6)
	order := queue.RedriveManyRequest{RequestID: "order", Limit: 2}
	again := func(want queue.RedriveManyResult) {
		t.Helper()
		if got := w.many(order); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	again(queue.RedriveManyResult{Redriven: 2, LookedAt: 2, AtLimit: true})
	w.exec(`UPDATE onceq.finished SET finished_at = finished_at - interval '31 days' WHERE job_id = $1`, string(lotID(1)))
	again(queue.RedriveManyResult{Replayed: 2, LookedAt: 2, AtLimit: true})
	w.maintain()
	again(queue.RedriveManyResult{Redriven: 1, Replayed: 1, LookedAt: 2, AtLimit: true})
	again(queue.RedriveManyResult{Replayed: 2, LookedAt: 2, AtLimit: true})
	if n := scan[int](w, `SELECT count(*) FROM onceq.redrive AS r JOIN onceq.job AS j ON j.id = r.target_id`); n != 3 {
		t.Errorf("%d jobs were made, want 3: of the one that is gone, and of two that count", n)
	}
	if n := scan[int](w, `SELECT count(DISTINCT source_id) FROM onceq.redrive`); n != 3 {
		t.Errorf("3 jobs were made of %d dead letters: one was redriven twice", n)
	}
}

// The summary of a purge and the events of redrives go with the events'
// retention, also of jobs that are there still.
func TestRetention_ofEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.dead("no paper", queue.Request{Queue: "kept"})[0]
	w.redrive(id, "order", queue.Redriven)
	w.accept(queue.Request{Queue: "other"})
	if n, err := w.client.Purge(w.ctx, queue.PurgeFilter{Queue: "other"}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	count := func(want int) {
		t.Helper()
		w.maintain()
		if n := scan[int](w, `SELECT count(*) FROM onceq.event`); n != want {
			t.Errorf("%d events, want %d", n, want)
		}
	}
	count(3)
	w.age(30*day - time.Hour)
	count(3)
	w.age(2 * time.Hour)
	count(0)
}
