package modeltest

import (
	"fmt"
	"strings"

	"github.com/onceq/onceq/pkg/queue"
)

// action is what an operation does.
type action int8

const (
	nothing     action = iota
	enqueue            // one request
	enqueueMany        // a batch
	pass               // time passes
	claim
	succeed
	fail
	handBack
	cancel
	purge
	maintain
	look // at all that is stored
)

func (a action) String() string {
	return [...]string{"nothing", "enqueue", "enqueue many", "pass", "claim", "succeed", "fail", "hand back", "cancel", "purge", "maintain", "look"}[a]
}

// way is how requests are handed over.
type way int8

const (
	byClient way = iota
	committed
	rolledBack
)

func (w way) String() string {
	return [...]string{"", " in a transaction", " in a transaction that is rolled back"}[w]
}

// operation is one step of a history.
type operation struct {
	action   action
	requests []request
	way      way
	by       tick // pass: how far
	queue    int8 // claim
	most     int  // claim
	early    bool // claim: by a clock that is ahead, as after an operator's "run now"
	everyday bool // claim and succeed: by the statement for the everyday case
	attempt  attempt
	again    bool          // fail: another attempt is to follow
	jobs     []queue.JobID // cancel: the one; purge: the only ones, unless nil
	only     definition    // purge: the queue and the type where byQueue and byType say so
	byQueue  bool
	byType   bool
}

// attempt is a claim of a job, as its worker remembers it.
type attempt struct {
	job   queue.JobID
	fence int32
	frees bool // success frees the key
}

func (o operation) String() string {
	switch o.action {
	case enqueue, enqueueMany:
		parts := make([]string, len(o.requests))
		for i, r := range o.requests {
			parts[i] = r.String()
		}
		return fmt.Sprintf("%s%s [%s]", o.action, o.way, strings.Join(parts, " | "))
	case pass:
		return fmt.Sprintf("pass %d", o.by)
	case claim:
		early := ""
		if o.early {
			early = " early"
		}
		if o.everyday {
			early += " plain"
		}
		return fmt.Sprintf("claim%s %d of %s", early, o.most, queues[o.queue][1])
	case succeed, handBack:
		return fmt.Sprintf("%s %s/%d", o.action, o.attempt.job, o.attempt.fence)
	case fail:
		return fmt.Sprintf("fail %s/%d again=%t", o.attempt.job, o.attempt.fence, o.again)
	case cancel:
		return fmt.Sprintf("cancel %s", o.jobs[0])
	case purge:
		filter := fmt.Sprint(o.jobs)
		if o.byQueue {
			filter += " queue " + queues[o.only.queue][1]
		}
		if o.byType {
			filter += " type " + kinds[o.only.kind]
		}
		return "purge " + filter
	}
	return o.action.String()
}

// GoString is how rapid shows what it has drawn.
func (o operation) GoString() string { return o.String() }

// answer is what an operation was told. Only what belongs to its action is set.
type answer struct {
	results   []queue.Result
	conflicts []conflict
	invalid   []int // indexes of requests
	claimed   []claimed
	told      string  // how an attempt or a cancel ended; what is stored
	counts    []int64 // of a purge or a maintenance pass
	err       error   // what no operation may answer
}

// conflict is an EnqueueIdempotencyConflictError. The other request may stand
// in the same batch: then it has no job, and no expiry.
type conflict struct {
	index   int
	job     queue.JobID
	key     string // its scope
	fields  []queue.Field
	expires tick
}

// claimed is a job as its worker gets it.
type claimed struct {
	attempt attempt
	number  int // of the attempt
	def     string
}

func (a answer) String() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	for _, r := range a.results {
		text := fmt.Sprintf("%s %s", r.Outcome, r.JobID)
		if r.Reason != "" {
			text += " " + string(r.Reason)
		}
		if r.Dead {
			text += " dead"
		}
		add("%s", text)
	}
	for _, c := range a.conflicts {
		if c.job == "" {
			add("conflict at %d with the batch on %s in %v", c.index, c.key, c.fields)
		} else {
			add("conflict at %d with %s on %s until %d in %v", c.index, c.job, c.key, c.expires, c.fields)
		}
	}
	for _, i := range a.invalid {
		add("invalid at %d", i)
	}
	for _, c := range a.claimed {
		add("%s/%d attempt %d frees=%t: %s", c.attempt.job, c.attempt.fence, c.number, c.attempt.frees, c.def)
	}
	if a.told != "" {
		add("%s", a.told)
	}
	if a.counts != nil {
		add("%v", a.counts)
	}
	if a.err != nil {
		add("error: %v", a.err)
	}
	return strings.Join(parts, "; ")
}
