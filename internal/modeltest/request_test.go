package modeltest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceq/onceq/pkg/queue"
)

// tick is the unit of the model's clock. It is so long that the time a history
// really takes is nothing beside it.
type tick int

const (
	tickLength = 6 * time.Minute
	// Every window is a multiple of window, and every step of time is one tick
	// more than a multiple of it, so that nothing ends at the very moment at
	// which it is looked at: a history has fewer steps than a window has ticks.
	window tick = 20
)

func (d tick) duration() time.Duration { return time.Duration(d) * tickLength }

// mode is how a request is admitted.
type mode int8

const (
	plain mode = iota
	idempotency
	debounce
	throttle
)

func (m mode) String() string {
	return [...]string{"plain", "idempotency", "debounce", "throttle"}[m]
}

// definition is what a job is to do: the place of each value in its list.
type definition struct {
	queue, kind, payload, priority, tags, maxAttempts, retry, timeout int8
	// timed gives a run time, and due a deadline; both are the same instants in
	// every request of a history.
	timed, due bool
}

// What the definitions are made of. Every value can be spelt in two ways, which
// must make no difference.
var (
	queues     = [...][2]string{{"", "default"}, {"slow", "slow"}}
	kinds      = [...]string{"report.build", "mail.send"}
	payloads   = [...][2]string{{`{"a":1,"b":2}`, `{ "b": 2, "a": 1 }`}, {`{"a":1}`, `{"a":0,"a":1}`}, {`null`, ` null`}}
	priorities = [...]int{0, 7}
	tagSets    = [...][2][]string{{nil, {}}, {{"x", "y"}, {"y", "x", "x"}}}
	budgets    = [...][2]int{{0, 25}, {1, 1}}
	retries    = [...][2]queue.RetryPolicy{{nil, queue.Exponential{}}, {queue.Fixed{}, queue.Fixed{}}}
	timeouts   = [...]time.Duration{0, time.Hour}
)

const (
	runAfter      = window // where timed requests lie, seen from now
	deadlineAfter = 2 * window
)

// request is what a caller asks for.
type request struct {
	key       int // -1 without an admission
	mode      mode
	def       definition
	respelt   bool // spelt the other way
	retention tick // TTL or Window
	maxWait   tick
	release   queue.Release
	hold      bool
	followUp  bool
}

// differences are the members in which two requests of one mode differ, in
// their order.
func (r request) differences(o request) []queue.Field {
	var fields []queue.Field
	for _, member := range []struct {
		field queue.Field
		same  bool
	}{
		{queue.FieldQueue, r.def.queue == o.def.queue},
		{queue.FieldType, r.def.kind == o.def.kind},
		{queue.FieldPayload, r.def.payload == o.def.payload},
		{queue.FieldPriority, r.def.priority == o.def.priority},
		{queue.FieldTags, r.def.tags == o.def.tags},
		{queue.FieldMaxAttempts, r.def.maxAttempts == o.def.maxAttempts},
		{queue.FieldRetry, r.def.retry == o.def.retry},
		{queue.FieldRunAt, r.def.timed == o.def.timed},
		{queue.FieldDeadline, r.def.due == o.def.due},
		{queue.FieldExecutionTimeout, r.def.timeout == o.def.timeout},
		{queue.FieldRetention, r.retention == o.retention && r.release == o.release},
	} {
		if !member.same {
			fields = append(fields, member.field)
		}
	}
	return fields
}

// real is the request as the library gets it. began is when the history began,
// by which its instants are told.
func (r request) real(began time.Time) queue.Request {
	spelling := 0
	if r.respelt {
		spelling = 1
	}
	d := r.def
	real := queue.Request{
		Queue: queues[d.queue][spelling], Type: kinds[d.kind], Payload: json.RawMessage(payloads[d.payload][spelling]),
		Priority: priorities[d.priority], Tags: slices.Clone(tagSets[d.tags][spelling]), MaxAttempts: budgets[d.maxAttempts][spelling],
		Retry: retries[d.retry][spelling], ExecutionTimeout: timeouts[d.timeout],
	}
	if d.timed {
		real.RunAt = began.Add(runAfter.duration())
	}
	if d.due {
		real.Deadline = began.Add(deadlineAfter.duration())
	}
	key, scope := "of a customer", keyName(r.key)
	switch r.mode {
	case idempotency:
		real.Admission = queue.Idempotency{Key: key, Scope: scope, TTL: r.retention.duration(), Release: r.release}
	case debounce:
		real.Admission = queue.Debounce{Key: key, Scope: scope, Window: r.retention.duration(), Hold: r.hold, MaxWait: r.maxWait.duration(), FollowUp: r.followUp}
	case throttle:
		real.Admission = queue.Throttle{Key: key, Scope: scope, Window: r.retention.duration()}
	}
	return real
}

// keyName is the scope of a key: each has its own, so that a binding tells whose it is.
func keyName(key int) string { return fmt.Sprintf("key-%d", key) }

func (r request) String() string {
	var b strings.Builder
	b.WriteString(r.mode.String())
	if r.mode != plain {
		fmt.Fprintf(&b, " %s for %d", keyName(r.key), r.retention)
	}
	if r.release != queue.ReleaseExpiry {
		fmt.Fprintf(&b, " release=%d", r.release)
	}
	for _, option := range []struct {
		name  string
		given bool
	}{{"hold", r.hold}, {"follow-up", r.followUp}, {"timed", r.def.timed}, {"due", r.def.due}, {"respelt", r.respelt}} {
		if option.given {
			b.WriteString(" " + option.name)
		}
	}
	if r.maxWait > 0 {
		fmt.Fprintf(&b, " max-wait=%d", r.maxWait)
	}
	for _, member := range []struct {
		name  string
		value int8
	}{
		{"queue", r.def.queue}, {"type", r.def.kind}, {"payload", r.def.payload}, {"priority", r.def.priority}, {"tags", r.def.tags},
		{"max-attempts", r.def.maxAttempts}, {"retry", r.def.retry}, {"timeout", r.def.timeout},
	} {
		if member.value > 0 {
			fmt.Fprintf(&b, " %s#%d", member.name, member.value)
		}
	}
	return b.String()
}
