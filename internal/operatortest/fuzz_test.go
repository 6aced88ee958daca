package operatortest

import (
	"errors"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// FuzzRedrive looks for an order that PostgreSQL refuses after we have let it
// pass, or that is not known again.
func FuzzRedrive(f *testing.F) {
	for _, text := range []string{"", "a", "\x00", "é", "\xff", "𝄞", "'; DROP TABLE onceq.job; --", "a\u2028b", `{"a": 1}`, "\ufffd", "\u202e"} {
		f.Add("", text, text, text)
		f.Add("01890000-0000-7000-8000-000000000001", "x"+text, "y"+text, "z"+text)
	}
	w := worldOf(f, pgtest.New(f), queue.Config{KeySecret: []byte("a secret of 16 b"), PreviousKeySecrets: [][]byte{nil}})
	source := w.dead("no paper", queue.Request{})[0]
	f.Fuzz(func(t *testing.T, id, request, actor, reason string) {
		for _, r := range []queue.RedriveRequest{
			{JobID: queue.JobID(id), RequestID: request, Actor: actor, Reason: reason, Again: true},
			{JobID: source, RequestID: request, Actor: actor, Reason: reason, Again: true},
		} {
			first, err := w.client.Redrive(w.ctx, r)
			if _, conflict := errors.AsType[*queue.RedriveConflictError](err); conflict || errors.Is(err, queue.ErrInvalidRequest) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			again, err := w.client.Redrive(w.ctx, r)
			if err != nil || again.Target != first.Target || r.JobID == source && again.Status != queue.RedriveReplayed {
				t.Fatalf("first %+v, then %+v, %v", first, again, err)
			}
		}
	})
}

// FuzzJobs looks for a filter that PostgreSQL refuses after we have let it pass,
// or that finds a job which does not fit.
func FuzzJobs(f *testing.F) {
	f.Add("a", "type 0", "tag 1", "no paper", "", int64(0), int64(1))
	f.Add("", "", "", "", "dead", int64(-1<<62), int64(1<<62))
	f.Add("%", "\x00", "\xff", "_", "ready", int64(1), int64(0))
	w := worldOf(f, pgtest.New(f), queue.Config{})
	zoo(w)
	f.Fuzz(func(t *testing.T, name, kind, tag, text, state string, since, until int64) {
		filter := queue.JobFilter{Queue: name, Type: kind, Tag: tag, Error: text, State: queue.State(state)}
		if since != 0 {
			filter.Since = time.Unix(since, since%1e9)
		}
		if until != 0 {
			filter.Until = time.Unix(until, until%1e9)
		}
		for _, list := range []func() (queue.JobInfo, error){
			func() (queue.JobInfo, error) { return last(w.client.Jobs(w.ctx, filter)) },
			func() (queue.JobInfo, error) { return last(w.client.DeadLetters(w.ctx, filter)) },
		} {
			job, err := list()
			if err != nil && !errors.Is(err, queue.ErrInvalidRequest) {
				t.Fatal(err)
			}
			if job.ID != "" && (name != "" && job.Queue != name || kind != "" && job.Type != kind || !utf8.ValidString(tag)) {
				t.Fatalf("%+v does not fit %+v", job, filter)
			}
		}
	})
}
