package admissiontest

import (
	"fmt"
	"testing"
	"time"

	"github.com/onceq/onceq/pkg/queue"
)

// While a secret is rotated, a process with the old secret alone moves a job that
// one with both has accepted, and its own binding with it. The job's run time,
// which both can see, is the end of the window for both.
func TestDebounce_movedByAnOlderProcess(t *testing.T) {
	t.Parallel()
	// The order of the two hashes is by chance, but always the same for a key.
	keys := []string{"a", "b", "c", "d", "e", "f"}
	older, newer := []byte("the older secret"), []byte("the newer secret")
	hold := queue.Debounce{Hold: true}
	for _, way := range []string{"alone", "batch"} {
		for name, c := range map[string]struct {
			accepted, moved, since time.Duration // the windows of the first request and of the older process's; the time since
			ran                    bool
			ask                    queue.Debounce
			want                   string
		}{
			"lengthened":                {time.Minute, time.Hour, 0, false, hold, "replaced "},
			"lengthened, first is over": {time.Minute, time.Hour, 2 * time.Minute, false, hold, "replaced "},
			"lengthened, and moved":     {time.Minute, time.Hour, 2 * time.Minute, false, queue.Debounce{Window: 2 * time.Hour}, "replaced "},
			"shortened":                 {time.Hour, time.Minute, 0, false, hold, "replaced "},
			"shortened, and over":       {time.Hour, time.Minute, 2 * time.Minute, false, hold, "non_replaceable window_elapsed"},
			"shortened, and run":        {time.Hour, time.Minute, 2 * time.Minute, true, hold, "accepted "},
		} {
			t.Run(fmt.Sprintf("%s, %s", way, name), func(t *testing.T) {
				t.Parallel()
				w := newWorldWith(t, queue.Config{KeySecret: newer, PreviousKeySecrets: [][]byte{older}}, nil)
				client, err := queue.New(w.pool, queue.Config{KeySecret: older})
				if err != nil {
					t.Fatal(err)
				}
				behind := *w
				behind.client = client
				ids := map[string]queue.JobID{}
				for _, key := range keys {
					ids[key] = w.enqueue(debounce(key, 1, queue.Debounce{Window: c.accepted})).JobID
					if res := behind.enqueue(debounce(key, 2, queue.Debounce{Window: c.moved})); res != (queue.Result{JobID: ids[key], Outcome: queue.OutcomeReplaced}) {
						t.Fatalf("the older process does not find the job: %+v", res)
					}
				}
				w.age(c.since)
				for _, id := range ids {
					if c.ran {
						w.start(id)
						w.finish(id, 1)
					}
				}
				for _, key := range keys {
					before := w.job(ids[key]).RunAt
					res, err := w.send(way, debounce(key, 3, c.ask))
					if err != nil || short(res) != c.want {
						t.Errorf("key %s: the job's run time decides, got %q, %v, want %q", key, short(res), err, c.want)
						continue
					}
					if after := w.job(ids[key]).RunAt; c.ask.Hold && !after.Equal(before) {
						t.Errorf("key %s: Hold keeps the run time, but it moved by %s", key, after.Sub(before))
					}
					n := w.count("SELECT count(*) FROM onceq.binding AS b JOIN onceq.job AS j ON j.id = b.job_id AND j.run_at = b.expires_at WHERE j.id = $1", string(res.JobID))
					if res.Outcome != queue.OutcomeNonReplaceable && n != 2 {
						t.Errorf("key %s: %d of the job's two bindings end at its run time", key, n)
					}
				}
				if n := w.count(`
					SELECT count(*) FROM (
						SELECT details->>'before' AS before, lag(details->>'fingerprint') OVER (PARTITION BY job_id ORDER BY at) AS last
						FROM onceq.event WHERE kind = 'replaced') AS e
					WHERE e.last <> e.before`); n != 0 {
					t.Errorf("%d replacements don't tell what they replaced", n)
				}
			})
		}
	}
}

// A job that waits for another attempt has a run time after its window, which has
// ended all the same.
func TestDebounce_windowOfARetriedJob(t *testing.T) {
	t.Parallel()
	for _, cfg := range []queue.Config{{}, {KeySecret: []byte("0123456789abcdef"), PreviousKeySecrets: [][]byte{nil}}} {
		w := newWorldWith(t, cfg, nil)
		for _, way := range []string{"alone", "batch"} {
			id := w.enqueue(debounce(way, 1, queue.Debounce{})).JobID
			w.age(2 * time.Minute)
			w.exec(`
				WITH failed AS (UPDATE onceq.job SET run_at = now() + interval '1 hour' WHERE id = $1 RETURNING id, run_at)
				UPDATE onceq.pending AS p SET fence = 1, attempt = 1, ready_at = f.run_at FROM failed AS f WHERE p.job_id = f.id`, string(id))
			if res, err := w.send(way, debounce(way, 2, queue.Debounce{})); err != nil || res.Outcome != queue.OutcomeAccepted {
				t.Errorf("%s, %d hashes: the window is over and the job has run once, got %+v, %v, want accepted", way, 1+len(cfg.PreviousKeySecrets), res, err)
			}
		}
	}
}
