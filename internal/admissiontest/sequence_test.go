package admissiontest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// A batch is decided as if its requests were sent one after the other: two
// databases with the same history get the same random requests, one as a batch
// and one singly, and must give the same answers and end in the same state. A
// third one does it with batches while a secret is rotated.
func TestBatch_asOneAfterTheOther(t *testing.T) {
	t.Parallel()
	rotated := queue.Config{KeySecret: []byte("0123456789abcdef"), PreviousKeySecrets: [][]byte{nil, []byte("fedcba9876543210")}}
	worlds := []*world{newWorld(t), newWorld(t), newWorldWith(t, rotated, nil)}
	for round := range pgtest.Rounds(40) {
		rng := rand.New(rand.NewPCG(uint64(round), 4))
		h := history{t: t, round: round, worlds: worlds, names: make([]map[queue.JobID]string, len(worlds))}
		for i, w := range worlds {
			w.exec("TRUNCATE onceq.job, onceq.binding, onceq.pending, onceq.running, onceq.finished, onceq.event")
			h.names[i] = map[queue.JobID]string{"": ""}
		}
		for step := range 5 {
			h.batch(step, randomBatch(rng))
			h.change(rng)
			if t.Failed() {
				return
			}
		}
	}
}

// randomBatch is some requests over few keys, each under one admission only.
func randomBatch(rng *rand.Rand) []queue.Request {
	modes := map[string]int{}
	rs := make([]queue.Request, 1+rng.IntN(7))
	for i := range rs {
		key := fmt.Sprint("k", rng.IntN(3))
		if _, ok := modes[key]; !ok {
			modes[key] = rng.IntN(6)
		}
		payload := rng.IntN(100)
		switch modes[key] {
		case 0:
			rs[i] = idempotent(key, 1+payload/95)
		case 1:
			rs[i] = throttle(key, 1+payload/95)
		default:
			d := queue.Debounce{Window: time.Duration(1+rng.IntN(4)) * time.Minute, Hold: rng.IntN(3) == 0, FollowUp: rng.IntN(3) == 0}
			if rng.IntN(3) == 0 {
				d.MaxWait = time.Duration(1+rng.IntN(6)) * time.Minute
			}
			rs[i] = debounce(key, payload, d)
			rs[i].Priority, rs[i].Queue = rng.IntN(2), fmt.Sprint("q", rng.IntN(2))
		}
		rs[i].Tags = []string{key}
	}
	return rs
}

type history struct {
	t      *testing.T
	round  int
	worlds []*world
	names  []map[queue.JobID]string // of the jobs of each world, the same for the same job
	jobs   [][]queue.JobID          // by number, in each world
}

// batch hands the requests over and compares the answers.
func (h *history) batch(step int, rs []queue.Request) {
	var answers [3][]string
	var accepted [3][]queue.JobID
	for i, w := range h.worlds {
		ask := func(rs []queue.Request) ([]queue.Result, error) { return w.client.EnqueueMany(w.ctx, rs) }
		if i == 1 {
			ask = w.singly
		}
		got, err := ask(rs)
		if e, ok := errors.AsType[*queue.EnqueueIdempotencyConflictError](err); ok {
			answers[i] = append(answers[i], fmt.Sprint("conflict ", e.Fields))
			continue
		}
		if err != nil {
			h.t.Fatalf("round %d: %v", h.round, err)
		}
		for _, res := range got {
			if res.Outcome == queue.OutcomeAccepted {
				h.names[i][res.JobID] = fmt.Sprintf("job %d of step %d", len(accepted[i]), step)
				accepted[i] = append(accepted[i], res.JobID)
			}
			answers[i] = append(answers[i], fmt.Sprintf("%s %s dead=%t", short(res), h.names[i][res.JobID], res.Dead))
		}
	}
	for i := range h.worlds {
		if fmt.Sprint(answers[i]) != fmt.Sprint(answers[1]) {
			for _, r := range rs {
				h.t.Logf("%v %+v", r.Payload, r.Admission)
			}
			h.t.Fatalf("round %d, step %d, world %d:\n got %q\nwant %q", h.round, step, i, answers[i], answers[1])
		}
		if len(accepted[i]) != len(accepted[1]) {
			h.t.Fatalf("round %d: jobs differ", h.round)
		}
	}
	for n := range accepted[1] {
		h.jobs = append(h.jobs, []queue.JobID{accepted[0][n], accepted[1][n], accepted[2][n]})
	}
	h.compare(step)
}

// singly sends requests one after the other; a conflict undoes them all.
func (w *world) singly(rs []queue.Request) (results []queue.Result, err error) {
	err = pgx.BeginFunc(w.ctx, w.pool, func(tx pgx.Tx) error {
		for _, r := range rs {
			res, err := w.client.EnqueueTx(w.ctx, tx, r)
			if err != nil {
				return err
			}
			results = append(results, res)
		}
		return nil
	})
	return results, err
}

// compare fails where a job differs between the worlds.
func (h *history) compare(step int) {
	for _, ids := range h.jobs {
		var states [3]string
		var infos [3]queue.JobInfo
		for i, w := range h.worlds {
			job := w.job(ids[i])
			infos[i] = job
			events, err := w.client.Events(w.ctx, ids[i])
			if err != nil {
				h.t.Fatal(err)
			}
			kinds := ""
			for _, e := range events {
				kinds += string(e.Kind) + " "
			}
			owner, mode := "", ""
			if b, err := w.client.Binding(w.ctx, "", keyOf(job)); err == nil {
				owner, mode = h.names[i][b.JobID], b.Mode
				if b.JobID == job.ID && mode == "debounce" && !b.ExpiresAt.Equal(job.RunAt) && job.Attempt == 0 {
					h.t.Errorf("round %d, step %d, world %d: window ends at %s, run time is %s", h.round, step, i, b.ExpiresAt, job.RunAt)
				}
			}
			states[i] = fmt.Sprintf("%s %s %s %d %s %s owner=%s mode=%s", h.names[i][job.ID], job.Payload, job.Queue, job.Priority, job.State, kinds, owner, mode)
		}
		for i := range h.worlds {
			if d := infos[i].RunAt.Sub(infos[1].RunAt).Abs(); states[i] != states[1] || d > 15*time.Second {
				h.t.Errorf("round %d, step %d, world %d:\n got %s\nwant %s\nrun times %s apart", h.round, step, i, states[i], states[1], d)
			}
		}
	}
	for _, w := range h.worlds {
		w.whole()
	}
}

// keyOf is the key that a job of these tests was accepted under.
func keyOf(job queue.JobInfo) string {
	for _, key := range []string{"k0", "k1", "k2"} {
		if job.Tags != nil && job.Tags[0] == key {
			return key
		}
	}
	return "none"
}

// change lets time pass, starts jobs, ends or cancels them, alike in all worlds.
func (h *history) change(rng *rand.Rand) {
	for range rng.IntN(3) {
		what, n, by := rng.IntN(4), 0, time.Duration(30+60*rng.IntN(4))*time.Second
		if len(h.jobs) > 0 {
			n = rng.IntN(len(h.jobs))
		}
		for i, w := range h.worlds {
			if what == 0 || len(h.jobs) == 0 {
				w.age(by)
				continue
			}
			id := h.jobs[n][i]
			switch state := w.job(id).State; {
			case state == queue.StateRunning:
				w.finish(id, 1)
			case (state == queue.StateReady || state == queue.StateScheduled) && what == 1:
				if _, err := w.client.Cancel(w.ctx, id, "a test"); err != nil {
					h.t.Fatal(err)
				}
			case state == queue.StateReady || state == queue.StateScheduled:
				w.start(id)
			}
		}
	}
}
