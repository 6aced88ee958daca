package operatortest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/onceq/onceq/pkg/queue"
)

// full is a request with a value in every field that a redrive keeps or drops.
func full() queue.Request {
	return queue.Request{
		Type: "print.page", Queue: "printers", Payload: map[string]any{"page": 9007199254740993, "copies": []int{1, 2}}, Priority: 7,
		Deadline: time.Now().Add(time.Hour), ExecutionTimeout: 1500 * time.Millisecond, MaxAttempts: 3, Retry: queue.Fixed{Delay: 2 * time.Second},
		ConcurrencyKey: "printer 1", Tags: []string{"blue", "a4"}, Admission: queue.Idempotency{Key: "page 1"},
	}
}

func TestRedrive_makesANewJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.accept(full())
	w.exec(`INSERT INTO onceq.checkpoint (saved_at, job_id, attempt, name, value) VALUES (now(), $1, 1, 'stage', '1')`, string(id))
	w.exec(`WITH taken AS (DELETE FROM onceq.pending RETURNING *)
		INSERT INTO onceq.finished (finished_at, claimed_at, job_id, state, attempt, error) SELECT clock_timestamp(), clock_timestamp(), job_id, 2, 3, 'out of paper' FROM taken`)
	source := w.job(id)

	target := w.redrive(id, "order 1", queue.Redriven)
	if target == id {
		t.Fatal("a redriven job has an id of its own")
	}
	if diff := cmp.Diff(queue.JobInfo{
		ID: target, Type: source.Type, Queue: source.Queue, State: queue.StateReady, Priority: source.Priority, Payload: source.Payload,
		Tags: source.Tags, ConcurrencyKey: source.ConcurrencyKey, MaxAttempts: source.MaxAttempts, RedriveOf: id,
	}, w.job(target), cmpopts.IgnoreFields(queue.JobInfo{}, "AcceptedAt", "RunAt")); diff != "" {
		t.Errorf("the target is not the source's work anew (-want +got):\n%s", diff)
	}
	if got := scan[string](w, `SELECT concat_ws(' ', execution_timeout, retry, deadline, key_hash, key_mode) FROM onceq.job WHERE id = $1`, string(target)); !strings.HasPrefix(got, `00:00:01.5 {`) || strings.Contains(got, `}`+" ") {
		t.Errorf("timeout and retry policy are kept, deadline and key are not: %s", got)
	}
	if n := scan[int](w, `SELECT count(*) FROM onceq.checkpoint WHERE job_id = $1`, string(target)); n != 0 {
		t.Error("a redriven job begins without checkpoints")
	}
	if got := scan[string](w, `SELECT concat_ws(' ', queue, type, priority, attempt, fence, concurrency_key, deadline) FROM onceq.pending WHERE job_id = $1`, string(target)); got != "printers print.page 7 0 0 printer 1" {
		t.Errorf("the place in the queue is another than the definition's: %s", got)
	}
	source.RedrivenAs = target
	if diff := cmp.Diff(source, w.job(id)); diff != "" {
		t.Errorf("the source stays as it was (-want +got):\n%s", diff)
	}
	binding, err := w.client.Binding(w.ctx, "", "page 1")
	if err != nil || binding.JobID != id {
		t.Errorf("the key stays the source's: %+v, %v", binding, err)
	}

	if got := kinds(t, w, id); got != "accepted redriven" {
		t.Errorf("the source's timeline: %s", got)
	}
	if got := kinds(t, w, target); got != "accepted redrive_created" {
		t.Errorf("the target's timeline: %s", got)
	}
	on, of := eventOf(t, w, id, queue.EventRedriven), eventOf(t, w, target, queue.EventRedriveCreated)
	if on["target"] != string(target) || of["source"] != string(id) {
		t.Errorf("the events name the other job: %v, %v", on, of)
	}
	for _, e := range []map[string]any{on, of} {
		request, _ := e["request"].(map[string]any)
		if e["actor"] != "oncall" || e["reason"] != "the printer is mended" || request["scope"] != "redrive" || request["length"] != 7.0 {
			t.Errorf("the events say who, why and under which request: %v", e)
		}
	}
}

func TestRedrive_statuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.dead("no paper", queue.Request{})[0]
	first := w.redrive(id, "order 1", queue.Redriven)

	t.Run("the same request is replayed and writes nothing", func(t *testing.T) {
		before := snapshotOf(w)
		for range 3 {
			if got := w.redrive(id, "order 1", queue.RedriveReplayed); got != first {
				t.Errorf("a replay names the first target %s, got %s", first, got)
			}
		}
		if diff := cmp.Diff(before, snapshotOf(w)); diff != "" {
			t.Errorf("a replay wrote or locked something:\n%s", diff)
		}
	})
	t.Run("another request is refused and writes nothing", func(t *testing.T) {
		before := snapshotOf(w)
		if got := w.redrive(id, "order 2", queue.RedriveAlready); got != first {
			t.Errorf("the refusal names the target %s, got %s", first, got)
		}
		if diff := cmp.Diff(before, snapshotOf(w)); diff != "" {
			t.Errorf("a refusal wrote or locked something:\n%s", diff)
		}
	})
	t.Run("another request with Again makes another job", func(t *testing.T) {
		second := w.order(queue.RedriveRequest{JobID: id, RequestID: "order 2", Again: true}, queue.Redriven)
		if second == first {
			t.Fatal("no new job was made")
		}
		for request, want := range map[string]queue.JobID{"order 1": first, "order 2": second} {
			for _, again := range []bool{true, false} {
				if got := w.order(queue.RedriveRequest{JobID: id, RequestID: request, Again: again}, queue.RedriveReplayed); got != want {
					t.Errorf("%s is answered with %s, want its own target %s", request, got, want)
				}
			}
		}
		if got := w.redrive(id, "order 3", queue.RedriveAlready); got != second {
			t.Errorf("the refusal names the newest target %s, got %s", second, got)
		}
		if got := w.job(id).RedrivenAs; got != second {
			t.Errorf("RedrivenAs is the newest target %s, got %s", second, got)
		}
	})
	t.Run("another actor or reason is a conflict", func(t *testing.T) {
		before := snapshotOf(w)
		for _, c := range []struct {
			actor, reason string
			fields        []string
		}{
			{"night shift", "the printer is mended", []string{"actor"}}, {"oncall", "because", []string{"reason"}}, {"night shift", "because", []string{"actor", "reason"}},
		} {
			_, err := w.client.Redrive(w.ctx, queue.RedriveRequest{JobID: id, RequestID: "order 1", Actor: c.actor, Reason: c.reason, Again: true})
			conflict, ok := errors.AsType[*queue.RedriveConflictError](err)
			if !ok {
				t.Fatalf("want a conflict, got %v", err)
			}
			if diff := cmp.Diff(&queue.RedriveConflictError{Source: id, Target: first, Fields: c.fields, Request: conflict.Request}, conflict); diff != "" {
				t.Errorf("the conflict (-want +got):\n%s", diff)
			}
			if r := conflict.Request; r.Scope != "redrive" || r.Length != 7 || r.Preview != "o…" || len(r.Digest) != 12 {
				t.Errorf("the conflict shows the request id as a KeyRef: %+v", r)
			}
		}
		if diff := cmp.Diff(before, snapshotOf(w)); diff != "" {
			t.Errorf("a conflict wrote or locked something:\n%s", diff)
		}
	})
	t.Run("one request id serves several sources", func(t *testing.T) {
		other := w.dead("no paper", queue.Request{})[0]
		if got := w.redrive(other, "order 1", queue.Redriven); got == first {
			t.Error("another source has a target of its own")
		}
	})
	t.Run("what is not dead is not redriven", func(t *testing.T) {
		ready, scheduled := w.accept(queue.Request{}), w.accept(queue.Request{RunAt: time.Now().Add(time.Hour)})
		running, succeeded, cancelled := w.accept(queue.Request{}), w.accept(queue.Request{}), w.accept(queue.Request{})
		w.start(running, succeeded)
		w.finish(1, "", succeeded)
		if status, err := w.client.Cancel(w.ctx, cancelled, "no need"); status != queue.CancelledNow || err != nil {
			t.Fatal(status, err)
		}
		for _, id := range []queue.JobID{ready, scheduled, running, succeeded, cancelled} {
			if got := w.redrive(id, "order 1", queue.RedriveNotDead); got != "" {
				t.Errorf("a refusal has no target, got %s", got)
			}
		}
	})
	t.Run("what is not there is not found", func(t *testing.T) {
		for _, id := range []queue.JobID{queue.JobID(uuid.NewString()), "", "no uuid", "\x00", queue.JobID(strings.Repeat("f", 5000))} {
			w.redrive(id, "order 1", queue.RedriveNotFound)
		}
	})
	t.Run("an id in another spelling is the same", func(t *testing.T) {
		for _, spelling := range []string{strings.ToUpper(string(id)), "{" + string(id) + "}", "urn:uuid:" + string(id), strings.ReplaceAll(string(id), "-", "")} {
			w.redrive(queue.JobID(spelling), "order 1", queue.RedriveReplayed)
			if got := w.job(queue.JobID(spelling)).ID; got != id {
				t.Errorf("job %q is read as %s", spelling, got)
			}
		}
	})
	t.Run("a target that died is redriven as itself", func(t *testing.T) {
		w.start(first)
		w.finish(2, "again", first)
		third := w.redrive(first, "order 1", queue.Redriven)
		if job := w.job(first); job.RedriveOf != id || job.RedrivenAs != third {
			t.Errorf("the job in the middle of the chain: %+v", job)
		}
	})
}

func TestRedrive_bounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.dead("no paper", queue.Request{})[0]
	good := queue.RedriveRequest{JobID: id, RequestID: "r", Actor: "a", Reason: "b"}
	for name, c := range map[string]struct {
		change func(*queue.RedriveRequest)
		field  string
	}{
		"no request id":                 {func(r *queue.RedriveRequest) { r.RequestID = "" }, "request_id"},
		"a request id of 513 bytes":     {func(r *queue.RedriveRequest) { r.RequestID = strings.Repeat("é", 256) + "x" }, "request_id"},
		"a request id that is no UTF-8": {func(r *queue.RedriveRequest) { r.RequestID = "\xff" }, "request_id"},
		"no actor":                      {func(r *queue.RedriveRequest) { r.Actor = "" }, "actor"},
		"an actor of 201 characters":    {func(r *queue.RedriveRequest) { r.Actor = strings.Repeat("é", 201) }, "actor"},
		"an actor with a NUL":           {func(r *queue.RedriveRequest) { r.Actor = "a\x00" }, "actor"},
		"no reason":                     {func(r *queue.RedriveRequest) { r.Reason = "" }, "reason"},
		"a reason of 2,001 characters":  {func(r *queue.RedriveRequest) { r.Reason = strings.Repeat("é", 2001) }, "reason"},
		"a reason that is no UTF-8":     {func(r *queue.RedriveRequest) { r.Reason = "\xc3" }, "reason"},
		"a bad id too":                  {func(r *queue.RedriveRequest) { r.JobID, r.Actor = "no uuid", "" }, "actor"},
	} {
		t.Run(name, func(t *testing.T) {
			r := good
			c.change(&r)
			if _, err := w.client.Redrive(w.ctx, r); !errors.Is(err, queue.ErrInvalidRequest) || !strings.Contains(err.Error(), c.field+": ") {
				t.Errorf("want ErrInvalidRequest naming %s, got %v", c.field, err)
			}
			if _, err := w.client.RedriveMany(w.ctx, queue.RedriveManyRequest{RequestID: r.RequestID, Actor: r.Actor, Reason: r.Reason, Limit: 1}); !errors.Is(err, queue.ErrInvalidRequest) || !strings.Contains(err.Error(), c.field+": ") {
				t.Errorf("many: want ErrInvalidRequest naming %s, got %v", c.field, err)
			}
		})
	}
	t.Run("all at once", func(t *testing.T) {
		_, err := w.client.Redrive(w.ctx, queue.RedriveRequest{JobID: id})
		for _, field := range []string{"request_id: ", "actor: ", "reason: "} {
			if err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("the error must name %s: %v", field, err)
			}
		}
	})
	t.Run("the longest of everything", func(t *testing.T) {
		r := queue.RedriveRequest{JobID: id, RequestID: "\x00" + strings.Repeat("é", 255) + "x", Actor: strings.Repeat("é", 200), Reason: strings.Repeat("𝄞", 2000)}
		w.order(r, queue.Redriven)
		w.order(r, queue.RedriveReplayed)
		if got, _ := eventOf(t, w, id, queue.EventRedriven)["reason"].(string); got != strings.Repeat("𝄞", 1000) {
			t.Errorf("an event holds the first 1,000 characters of the reason, got %d bytes", len(got))
		}
		r.Reason = strings.Repeat("𝄞", 1999) + "x"
		if _, err := w.client.Redrive(w.ctx, r); err == nil {
			t.Error("the whole reason counts")
		}
	})
	t.Run("a cancelled context", func(t *testing.T) {
		gone, cancel := context.WithCancel(w.ctx)
		cancel()
		if _, err := w.client.Redrive(gone, good); !errors.Is(err, context.Canceled) {
			t.Errorf("want the context's error, got %v", err)
		}
	})
}

// While a secret is rotated, clients that share any one secret know each other's
// request ids.
func TestRedrive_rotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old, middle, young := []byte("the old secret of 1"), []byte("the middle secret"), []byte("the young secret")
	chain := []queue.Config{{}, {KeySecret: old, PreviousKeySecrets: [][]byte{nil}}, {KeySecret: middle, PreviousKeySecrets: [][]byte{old}}, {KeySecret: young, PreviousKeySecrets: [][]byte{middle}}}
	for i := range chain {
		for j := range chain {
			id := w.dead("no paper", queue.Request{})[0]
			a, b := worldOf(t, w.pool, chain[i]), worldOf(t, w.pool, chain[j])
			want := queue.RedriveReplayed
			if i-j > 1 || j-i > 1 {
				want = queue.RedriveAlready // no secret in common: still no second target
			}
			target := a.redrive(id, "order", queue.Redriven)
			if got := b.redrive(id, "order", want); got != target {
				t.Errorf("configuration %d answers an order of %d with %s, want %s", j, i, got, target)
			}
		}
	}
}
