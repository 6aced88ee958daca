package queuetest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

func TestClient_EnqueueManyConflict(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	different := func(key string) queue.Request {
		req := invoice(key)
		req.Payload, req.Priority = "other", 1
		return req
	}
	fields := []queue.Field{queue.FieldPayload, queue.FieldPriority}

	t.Run("a conflict with what exists leaves nothing of the batch", func(t *testing.T) {
		id := accept(t, c, invoice("exists"))
		binding, err := c.Binding(t.Context(), "", "exists")
		if err != nil {
			t.Fatal(err)
		}
		for _, position := range []int{0, 250, 499} {
			reqs := batch("nothing-", 0, 500)
			reqs[position] = different("exists")
			before := allRows(t, pool, "onceq")
			results, err := c.EnqueueMany(t.Context(), reqs)
			conflict := wantConflict(t, err, id, fields...)
			if results != nil {
				t.Errorf("a refused batch has results: %v", results)
			}
			if conflict.Index != position {
				t.Errorf("the conflict names request %d, it is %d", conflict.Index, position)
			}
			if diff := cmp.Diff(binding.Key, conflict.Key); diff != "" {
				t.Errorf("the conflict shows another key (-want +got):\n%s", diff)
			}
			if !conflict.ExpiresAt.Equal(binding.ExpiresAt) {
				t.Errorf("the conflict says the key is free at %s, it is at %s", conflict.ExpiresAt, binding.ExpiresAt)
			}
			wantSameRows(t, pool, before)
		}
		for _, res := range enqueueMany(t, c, batch("nothing-", 0, 500)) {
			if res.Outcome != queue.OutcomeAccepted {
				t.Fatalf("after the refusal a request of the batch is %s", res.Outcome)
			}
		}
	})

	t.Run("a conflict inside the batch names the later request", func(t *testing.T) {
		reqs := batch("inside-", 0, 1000)
		reqs[700] = reqs[3]
		reqs[700].Priority = 1
		before := allRows(t, pool, "onceq")
		_, err := c.EnqueueMany(t.Context(), reqs)
		var id queue.JobID
		if found := errorsOf[*queue.EnqueueIdempotencyConflictError](err); len(found) == 1 {
			id = found[0].JobID // B-053: the id that request 3 would have had
		}
		conflict := wantConflict(t, err, id, queue.FieldPriority)
		if conflict.Index != 700 || conflict.JobID == "" || conflict.Key.Length != len("inside-3") {
			t.Errorf("want a conflict of request 700 with the job that request 3 would have been: %+v", conflict)
		}
		wantSameRows(t, pool, before)
	})

	t.Run("a conflict inside is judged against the first, or against what exists", func(t *testing.T) {
		id := accept(t, c, invoice("judged"))
		_, err := c.EnqueueMany(t.Context(), []queue.Request{invoice("judged"), different("judged"), invoice("judged")})
		if conflict := wantConflict(t, err, id, fields...); conflict.Index != 1 {
			t.Errorf("the conflict names request %d, want 1", conflict.Index)
		}
		pgtest.Exec(t, pool, `UPDATE onceq.binding SET expires_at = clock_timestamp() WHERE job_id = $1`, string(id))
		_, err = c.EnqueueMany(t.Context(), []queue.Request{different("judged"), invoice("judged")})
		found := errorsOf[*queue.EnqueueIdempotencyConflictError](err)
		if len(found) != 1 || found[0].Index != 1 || found[0].JobID == id {
			t.Errorf("an expired key's old job decides nothing; request 1 conflicts with request 0: %v", err)
		}
	})

	t.Run("several conflicts are all named, replays among them are not", func(t *testing.T) {
		ids := map[int]queue.JobID{}
		for _, i := range []int{7, 8, 9, 250, 499} {
			ids[i] = accept(t, c, invoice(fmt.Sprint("several-", i)))
		}
		reqs := batch("several-fresh-", 0, 500)
		for i := range ids {
			reqs[i] = invoice(fmt.Sprint("several-", i))
			if i != 8 && i != 9 {
				reqs[i] = different(fmt.Sprint("several-", i))
			}
		}
		before := allRows(t, pool, "onceq")
		_, err := c.EnqueueMany(t.Context(), reqs)
		got := map[int]queue.JobID{}
		for _, conflict := range errorsOf[*queue.EnqueueIdempotencyConflictError](err) {
			got[conflict.Index] = conflict.JobID
			if diff := cmp.Diff(fields, conflict.Fields); diff != "" {
				t.Errorf("request %d (-want +got):\n%s", conflict.Index, diff)
			}
		}
		if diff := cmp.Diff(map[int]queue.JobID{7: ids[7], 250: ids[250], 499: ids[499]}, got); diff != "" {
			t.Errorf("the conflicts of the batch by position (-want +got):\n%s", diff)
		}
		wantSameRows(t, pool, before)
	})

	t.Run("very many conflicts are a bounded list, the first ones first", func(t *testing.T) {
		first := batch("bounded-", 0, 300)
		enqueueMany(t, c, first)
		second := slices.Clone(first)
		for i := range second {
			second[i].Priority = 1
		}
		_, err := c.EnqueueMany(t.Context(), second)
		found := errorsOf[*queue.EnqueueIdempotencyConflictError](err)
		if len(found) == 0 || len(found) > 20 || len(err.Error()) > 20_000 {
			t.Fatalf("300 conflicts gave a list of %d in %d bytes of text, want 1 to 20", len(found), len(err.Error()))
		}
		for i, conflict := range found {
			if conflict.Index != i {
				t.Errorf("conflict %d of the list is about request %d", i, conflict.Index)
			}
		}
	})
}

func TestEnqueueIdempotencyConflictError(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	t.Run("carries job, key, fields and expiry", func(t *testing.T) {
		id := accept(t, c, invoice("order-1234567890-capture"))
		binding, err := c.Binding(t.Context(), "", "order-1234567890-capture")
		if err != nil {
			t.Fatal(err)
		}
		other := invoice("order-1234567890-capture")
		other.Type, other.Tags = "invoice.refund", []string{"a"}
		before := allRows(t, pool, "onceq")
		_, err = c.EnqueueWithResult(t.Context(), other)
		conflict := wantConflict(t, err, id, queue.FieldType, queue.FieldTags) // B-072
		if diff := cmp.Diff(binding.Key, conflict.Key); diff != "" {
			t.Errorf("the conflict shows another key (-want +got):\n%s", diff)
		}
		if !conflict.ExpiresAt.Equal(binding.ExpiresAt) || conflict.Index != 0 {
			t.Errorf("the key is free at %s: %+v", binding.ExpiresAt, conflict)
		}
		wantSameRows(t, pool, before)
		replay(t, c, invoice("order-1234567890-capture"), id)
	})

	t.Run("names job and fields in its text", func(t *testing.T) {
		id := accept(t, c, invoice("text"))
		other := invoice("text")
		other.Priority = 1
		_, err := c.EnqueueWithResult(t.Context(), other)
		for _, word := range []string{string(id), "priority"} {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("the text does not name %q: %v", word, err)
			}
		}
	})
}
