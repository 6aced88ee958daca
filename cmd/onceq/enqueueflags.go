package main

import (
	"errors"
	"slices"
	"time"

	"github.com/onceq/onceq/cmd/onceq/internal/handover"
	"github.com/onceq/onceq/cmd/onceq/internal/member"
	"github.com/onceq/onceq/pkg/queue"
)

// enqueueFlags are the flags of onceq enqueue.
type enqueueFlags struct {
	file      string
	jobType   string
	typeField string
	keyField  string
	queue     string
	scope     string
	ttl       time.Duration
	release   string
	debounce  time.Duration
	hold      bool
	maxWait   time.Duration
	followUp  bool
	throttle  time.Duration
	priority  int
	tags      []string
	batch     int
	workers   int
}

// releaseNames are the values of --release, in the order of queue.Release.
var releaseNames = []string{"expiry", "finished", "dead"}

// source names the input.
func (f enqueueFlags) source() string {
	if f.file == "" {
		return "stdin"
	}
	return f.file
}

// template is the flags as what all lines have in common; given tells whether a
// flag was.
func (f enqueueFlags) template(given func(flag string) bool) (handover.Template, error) {
	var t handover.Template
	var err error
	if t.KeyField, err = member.ParsePath(f.keyField); err != nil {
		return t, usagef("--key-field: %w", err)
	}
	if f.typeField != "" {
		if t.TypeField, err = member.ParsePath(f.typeField); err != nil {
			return t, usagef("--type-field: %w", err)
		}
	}
	t.Request.Type, t.Request.Queue = f.jobType, f.queue
	t.Request.Priority, t.Request.Tags = f.priority, f.tags
	if t.Admission, err = f.admission(given); err != nil {
		return t, err
	}
	if err := t.Check(); err != nil {
		return t, usageError{errors.New(reason(err))}
	}
	switch {
	case f.batch < 1 || f.batch > 1000:
		return t, usagef("--batch: %d; allowed are 1 to 1000", f.batch)
	case f.workers < 1 || f.workers > 16:
		return t, usagef("--workers: %d; allowed are 1 to 16", f.workers)
	}
	return t, nil
}

// admission is how each key is admitted.
func (f enqueueFlags) admission(given func(flag string) bool) (func(key string) queue.Admission, error) {
	if !given("debounce") {
		for _, flag := range []string{"hold", "max-wait", "follow-up"} {
			if given(flag) {
				return nil, usagef("--%s is for --debounce", flag)
			}
		}
	}
	release := slices.Index(releaseNames, f.release)
	switch {
	case given("max-wait") && f.maxWait == 0:
		return nil, usagef("--max-wait: 0s; it must be 1ms to 365 days")
	case given("debounce"):
		return func(key string) queue.Admission {
			return queue.Debounce{Key: key, Scope: f.scope, Window: f.debounce, Hold: f.hold, MaxWait: f.maxWait, FollowUp: f.followUp}
		}, nil
	case given("throttle"):
		return func(key string) queue.Admission {
			return queue.Throttle{Key: key, Scope: f.scope, Window: f.throttle}
		}, nil
	case f.ttl == 0:
		return nil, usagef("--ttl: 0s; a key must live for 1ms to 365 days")
	case release < 0:
		return nil, usagef("--release: allowed are expiry, finished and dead")
	}
	return func(key string) queue.Admission {
		return queue.Idempotency{Key: key, Scope: f.scope, TTL: f.ttl, Release: queue.Release(release)}
	}, nil
}
