package queuetest_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/pkg/queue"
)

// withKey gives the request's admission the key.
func withKey(req queue.Request, key string) queue.Request {
	switch a := req.Admission.(type) {
	case queue.Throttle:
		a.Key = key
		req.Admission = a
	case queue.Idempotency:
		a.Key = key
		req.Admission = a
	}
	return req
}

// noon is an instant with no digits below the microsecond.
var noon = time.Date(2031, 5, 6, 12, 0, 0, 123456000, time.UTC)

// differences are pairs of requests that differ in one member only.
var differences = []struct {
	name       string
	field      queue.Field
	one, other queue.Request
}{
	{"another queue", queue.FieldQueue, queue.Request{Queue: "a"}, queue.Request{Queue: "b"}},
	{"a queue and the default one", queue.FieldQueue, queue.Request{Queue: "a"}, queue.Request{}},
	{"another case of the queue", queue.FieldQueue, queue.Request{Queue: "a"}, queue.Request{Queue: "A"}},
	{"another type", queue.FieldType, queue.Request{Type: "a"}, queue.Request{Type: "b"}},
	{"another payload", queue.FieldPayload, queue.Request{Payload: 1}, queue.Request{Payload: 2}},
	{"a payload and none", queue.FieldPayload, queue.Request{Payload: 0}, queue.Request{}},
	{"an empty payload and none", queue.FieldPayload, queue.Request{Payload: ""}, queue.Request{}},
	{"another priority", queue.FieldPriority, queue.Request{Priority: 1}, queue.Request{Priority: 100}},
	{"a priority and the default one", queue.FieldPriority, queue.Request{Priority: 1}, queue.Request{}},
	{"another concurrency key", queue.FieldConcurrencyKey, queue.Request{ConcurrencyKey: "a"}, queue.Request{ConcurrencyKey: "b"}},
	{"a concurrency key and none", queue.FieldConcurrencyKey, queue.Request{ConcurrencyKey: "a"}, queue.Request{}},
	{"another tag", queue.FieldTags, queue.Request{Tags: []string{"a"}}, queue.Request{Tags: []string{"b"}}},
	{"one tag more", queue.FieldTags, queue.Request{Tags: []string{"a"}}, queue.Request{Tags: []string{"a", "b"}}},
	{"a tag and none", queue.FieldTags, queue.Request{Tags: []string{"a"}}, queue.Request{}},
	{"two tags and their concatenation", queue.FieldTags, queue.Request{Tags: []string{"a", "bc"}}, queue.Request{Tags: []string{"ab", "c"}}},
	{"another attempt budget", queue.FieldMaxAttempts, queue.Request{MaxAttempts: 1}, queue.Request{MaxAttempts: 2}},
	{"an attempt budget and the default one", queue.FieldMaxAttempts, queue.Request{MaxAttempts: 24}, queue.Request{}},
	{"another retry policy", queue.FieldRetry, queue.Request{Retry: queue.Fixed{Delay: 15 * time.Second}}, queue.Request{Retry: queue.Exponential{}}},
	{"a retry policy and the default one", queue.FieldRetry, queue.Request{Retry: queue.Fixed{}}, queue.Request{}},
	{"another delay", queue.FieldRetry, queue.Request{Retry: queue.Fixed{Delay: time.Second}}, queue.Request{Retry: queue.Fixed{Delay: 2 * time.Second}}},
	{"another first delay", queue.FieldRetry, queue.Request{Retry: queue.Exponential{Initial: time.Second}}, queue.Request{}},
	{"another longest delay", queue.FieldRetry, queue.Request{Retry: queue.Exponential{Max: time.Hour}}, queue.Request{}},
	{"another multiplier", queue.FieldRetry, queue.Request{Retry: queue.Exponential{Multiplier: 2.5}}, queue.Request{}},
	{"jitter of another kind", queue.FieldRetry, queue.Request{Retry: queue.DecorrelatedJitter{}}, queue.Request{}},
	{"another base of the jitter", queue.FieldRetry, queue.Request{Retry: queue.DecorrelatedJitter{Base: time.Second}}, queue.Request{Retry: queue.DecorrelatedJitter{}}},
	{"another cap of the jitter", queue.FieldRetry, queue.Request{Retry: queue.DecorrelatedJitter{Max: time.Hour}}, queue.Request{Retry: queue.DecorrelatedJitter{}}},
	{"another run time", queue.FieldRunAt, queue.Request{RunAt: noon}, queue.Request{RunAt: noon.Add(time.Microsecond)}},
	{"a run time and none", queue.FieldRunAt, queue.Request{RunAt: noon}, queue.Request{}},
	{"a run time at the Unix epoch and none", queue.FieldRunAt, queue.Request{RunAt: time.Unix(0, 0)}, queue.Request{}},
	{"another deadline", queue.FieldDeadline, queue.Request{Deadline: noon}, queue.Request{Deadline: noon.Add(-time.Microsecond)}},
	{"a deadline and none", queue.FieldDeadline, queue.Request{Deadline: noon}, queue.Request{}},
	{"a deadline at the Unix epoch and none", queue.FieldDeadline, queue.Request{Deadline: time.Unix(0, 0)}, queue.Request{}},
	{"another timeout", queue.FieldExecutionTimeout, queue.Request{ExecutionTimeout: time.Second}, queue.Request{ExecutionTimeout: time.Second + time.Microsecond}},
	{"a timeout and none", queue.FieldExecutionTimeout, queue.Request{ExecutionTimeout: time.Millisecond}, queue.Request{}},
	{"another TTL", queue.FieldRetention, queue.Request{Admission: queue.Idempotency{TTL: time.Hour}}, queue.Request{Admission: queue.Idempotency{TTL: time.Hour + time.Millisecond}}},
	{"a TTL and the default one", queue.FieldRetention, queue.Request{Admission: queue.Idempotency{TTL: time.Hour}}, queue.Request{}},
	{"another release", queue.FieldRetention, queue.Request{Admission: queue.Idempotency{Release: queue.ReleaseDead}}, queue.Request{Admission: queue.Idempotency{Release: queue.ReleaseFinished}}},
	{"a release and the default one", queue.FieldRetention, queue.Request{Admission: queue.Idempotency{Release: queue.ReleaseDead}}, queue.Request{}},
	{"another window", queue.FieldRetention, queue.Request{Admission: queue.Throttle{Window: time.Hour}}, queue.Request{Admission: queue.Throttle{Window: 2 * time.Hour}}},
	{"a window of a day and another", queue.FieldRetention, queue.Request{Admission: queue.Throttle{Window: day}}, queue.Request{Admission: queue.Throttle{Window: time.Hour}}},
}

// equals are pairs of requests that are the same by the rules of the members.
var equals = []struct {
	name, why  string
	one, other queue.Request
}{
	{"the default queue", "absent equals the default given", queue.Request{}, queue.Request{Queue: "default"}},
	{"the default payload", "absent is JSON null", queue.Request{}, queue.Request{Payload: json.RawMessage(`null`)}},
	{"the default payload, spaced", "spacing does not matter", queue.Request{}, queue.Request{Payload: json.RawMessage(" null\n")}},
	{"the default attempt budget", "absent equals the default given", queue.Request{}, queue.Request{MaxAttempts: 25}},
	{"the default retry policy", "nil is Exponential{}", queue.Request{}, queue.Request{Retry: queue.Exponential{}}},
	{"the default retry policy, spelled out", "15 s, 6 h, 2", queue.Request{}, queue.Request{Retry: queue.Exponential{Initial: 15 * time.Second, Max: 6 * time.Hour, Multiplier: 2}}},
	{"the default jitter, spelled out", "15 s, 6 h", queue.Request{Retry: queue.DecorrelatedJitter{}}, queue.Request{Retry: queue.DecorrelatedJitter{Base: 15 * time.Second, Max: 6 * time.Hour}}},
	{"the default TTL", "absent equals the default given", queue.Request{}, queue.Request{Admission: queue.Idempotency{TTL: 24 * time.Hour}}},
	{"the default scope", "absent equals the default given", queue.Request{}, queue.Request{Admission: queue.Idempotency{Scope: "default"}}},
	{"the default release", "absent equals the default given", queue.Request{}, queue.Request{Admission: queue.Idempotency{Release: queue.ReleaseExpiry}}},
	{"no tags", "nil and empty are no tags", queue.Request{}, queue.Request{Tags: []string{}}},
	{"tags reordered", "tags are a set", queue.Request{Tags: []string{"a", "b", "é"}}, queue.Request{Tags: []string{"é", "b", "a"}}},
	{"tags repeated", "tags are a set", queue.Request{Tags: []string{"a", "b"}}, queue.Request{Tags: []string{"b", "a", "b", "a"}}},
	{"a run time in another zone", "an instant has no zone", queue.Request{RunAt: noon}, queue.Request{RunAt: noon.In(time.FixedZone("X", 5*3600+45*60))}},
	{"a run time with finer digits", "cut to microseconds", queue.Request{RunAt: noon}, queue.Request{RunAt: noon.Add(999 * time.Nanosecond)}},
	{"a run time before 1970 with finer digits", "digits are cut, not rounded towards zero", queue.Request{RunAt: time.Date(1969, 12, 31, 23, 59, 59, 999999000, time.UTC)}, queue.Request{RunAt: time.Date(1969, 12, 31, 23, 59, 59, 999999999, time.UTC)}},
	{"a run time with a monotonic reading", "an instant is its wall time", queue.Request{RunAt: stamped}, queue.Request{RunAt: stamped.Round(0)}},
	{"a deadline in another zone", "an instant has no zone", queue.Request{Deadline: noon}, queue.Request{Deadline: noon.In(time.FixedZone("", -11*3600))}},
	{"a deadline with finer digits", "cut to microseconds", queue.Request{Deadline: noon}, queue.Request{Deadline: noon.Add(time.Nanosecond)}},
	{"an equal throttle", "the same window", queue.Request{Admission: queue.Throttle{Window: time.Hour}}, queue.Request{Admission: queue.Throttle{Window: 60 * time.Minute}}},
	{"the default scope of a throttle", "absent equals the default given", queue.Request{Admission: queue.Throttle{Window: time.Hour}}, queue.Request{Admission: queue.Throttle{Window: time.Hour, Scope: "default"}}},
}

var stamped = time.Now()

// completed fills in what a table leaves out.
func completed(req queue.Request, key string) queue.Request {
	if req.Type == "" {
		req.Type = "t"
	}
	if req.Admission == nil {
		req.Admission = queue.Idempotency{}
	}
	return withKey(req, key)
}

func fingerprint(t testing.TB, req queue.Request) queue.Fingerprint {
	t.Helper()
	f, err := req.Fingerprint()
	if err != nil {
		t.Fatalf("a valid request has a fingerprint: %v", err)
	}
	return f
}

func TestFingerprint_membersThatDiffer(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	for _, row := range differences {
		t.Run(row.name, func(t *testing.T) {
			for i, pair := range [][2]queue.Request{{row.one, row.other}, {row.other, row.one}} {
				key := fmt.Sprint(t.Name(), i)
				one, other := completed(pair[0], key), completed(pair[1], key)
				diff := fingerprint(t, one).Diff(fingerprint(t, other))
				if d := cmp.Diff([]queue.Field{row.field}, diff); d != "" {
					t.Errorf("Diff names other members than the one that differs (-want +got):\n%s", d)
				}
				id := accept(t, c, one)
				_, err := c.EnqueueWithResult(t.Context(), other)
				wantConflict(t, err, id, row.field)
				_, err = c.EnqueueMany(t.Context(), []queue.Request{other})
				wantConflict(t, err, id, row.field)
			}
		})
	}
}

func TestFingerprint_membersThatAreEqual(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	c := newClient(t, pool, queue.Config{})

	for _, row := range equals {
		t.Run(row.name, func(t *testing.T) {
			for i, pair := range [][2]queue.Request{{row.one, row.other}, {row.other, row.one}} {
				key := fmt.Sprint(t.Name(), i)
				one, other := completed(pair[0], key), completed(pair[1], key)
				if a, b := fingerprint(t, one), fingerprint(t, other); a != b || len(a.Diff(b)) != 0 {
					t.Errorf("equal requests have different fingerprints, in %v: %s", a.Diff(b), row.why)
				}
				id := accept(t, c, one)
				want := queue.Result{JobID: id, Outcome: queue.OutcomeReplayed}
				if _, ok := other.Admission.(queue.Throttle); ok {
					want.Outcome = queue.OutcomeCoalesced
				}
				wantResult(t, enqueue(t, c, other), want)
				results, err := c.EnqueueMany(t.Context(), []queue.Request{other})
				if err != nil {
					t.Fatal(err)
				}
				wantResult(t, results[0], want)
			}
		})
	}
}

// material tells of every field of a request, and of every admission, which
// member of the fingerprint it is; "" is none.
var material = map[reflect.Type]map[string]queue.Field{
	reflect.TypeFor[queue.Request](): {
		"Type": queue.FieldType, "Payload": queue.FieldPayload, "Queue": queue.FieldQueue, "Priority": queue.FieldPriority,
		"RunAt": queue.FieldRunAt, "Deadline": queue.FieldDeadline, "ExecutionTimeout": queue.FieldExecutionTimeout,
		"MaxAttempts": queue.FieldMaxAttempts, "Retry": queue.FieldRetry, "ConcurrencyKey": queue.FieldConcurrencyKey,
		"Tags": queue.FieldTags, "Admission": queue.FieldAdmission,
	},
	reflect.TypeFor[queue.Idempotency](): {"Key": "", "Scope": "", "TTL": queue.FieldRetention, "Release": queue.FieldRetention},
	reflect.TypeFor[queue.Throttle]():    {"Key": "", "Scope": "", "Window": queue.FieldRetention},
	reflect.TypeFor[queue.Debounce](): {
		"Key": "", "Scope": "", "Window": queue.FieldRetention, "Hold": queue.FieldRetention,
		"MaxWait": queue.FieldRetention, "FollowUp": queue.FieldRetention,
	},
}

// A field added to a request must be a member with a constant, or be told here
// that it is none; and every member must have been tried above.
func TestFingerprint_everyFieldIsAMember(t *testing.T) {
	t.Parallel()
	for typ, fields := range material {
		got := []string{}
		for f := range typ.Fields() {
			got = append(got, f.Name)
			if _, ok := fields[f.Name]; !ok {
				t.Errorf("%s.%s is not known as a member of the fingerprint: give it a Field constant and a place in the tables of this file", typ, f.Name)
			}
		}
		if len(got) != len(fields) {
			t.Errorf("%s has the fields %v, the tests know %d", typ, got, len(fields))
		}
	}
	for name, field := range material[reflect.TypeFor[queue.Request]()] {
		tried := slices.ContainsFunc(differences, func(row struct {
			name       string
			field      queue.Field
			one, other queue.Request
		}) bool {
			return row.field == field
		})
		if !tried && field != queue.FieldAdmission {
			t.Errorf("no pair of requests differs in %s alone", name)
		}
	}
}
