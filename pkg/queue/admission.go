package queue

import (
	"fmt"
	"time"
)

// Admission is how a request with a key is admitted: Idempotency, Debounce or
// Throttle, passed by value. It is one field of Request, so a request can't
// carry two.
//
// All three name a key and a scope. A key is 1 to 512 bytes of valid UTF-8 and
// is compared byte for byte: no case folding, no trimming, no Unicode
// normalisation. A scope is 1 to 256 bytes of valid UTF-8 without NUL; empty
// means "default". Scopes keep features, and tenants, apart; the three
// admissions share one key space, so one key in one scope has one owner. Queue
// and type are not part of a key's identity.
//
// Printing an admission (fmt, slog, encoding/json) never shows the key. What no
// method can prevent: fmt looks into unexported fields without asking, so don't
// print a struct of yours that keeps a request or an admission in one.
type Admission interface {
	admission() admission
}

// DefaultTTL is how long an idempotent request's key is kept when TTL is zero.
const DefaultTTL = 24 * time.Hour

// Idempotency accepts the first request with a key; every equal repeat until
// the key is free again is replayed, and a different request is an
// [EnqueueIdempotencyConflictError].
type Idempotency struct {
	Key, Scope string
	// TTL is how long the key answers, counted by PostgreSQL's clock from the
	// acceptance: 1 ms to 365 days. Zero is 24 hours. A replay never extends it.
	TTL time.Duration
	// Release says when the key is free again. Zero is after the TTL only.
	Release Release
}

// Release says when an idempotent request's key is free again. The TTL is
// always the cap.
type Release int

const (
	// ReleaseExpiry frees the key after its TTL only.
	ReleaseExpiry Release = iota
	// ReleaseFinished frees the key as soon as its job has ended, however.
	ReleaseFinished
	// ReleaseDead frees the key as soon as its job has died or been cancelled,
	// so that the caller may try again; a job that succeeded keeps it.
	ReleaseDead
)

// String is "expiry", "finished" or "dead".
func (r Release) String() string {
	if r < ReleaseExpiry || r > ReleaseDead {
		return fmt.Sprintf("Release(%d)", int(r))
	}
	return [...]string{"expiry", "finished", "dead"}[r]
}

// Debounce keeps one pending job for a key and lets every request until it
// starts replace its definition: the latest wins. The window sets the run time,
// so the request must not have a RunAt.
type Debounce struct {
	Key, Scope string
	// Window is how long the job waits for another request: 1 ms to 365 days.
	// Required.
	Window time.Duration
	// Hold keeps the first request's run time. False moves it to a window
	// after each replacement.
	Hold bool
	// MaxWait caps how far replacements can move the run time, counted from the
	// first acceptance: 1 ms to 365 days. Zero is no cap.
	MaxWait time.Duration
	// FollowUp accepts a fresh job, a window away, when the retained one has
	// already started or ended.
	FollowUp bool
}

// Throttle accepts the first request of a window; equal ones in the window are
// coalesced with it, and a different one is a conflict.
type Throttle struct {
	Key, Scope string
	// Window starts at the acceptance and does not slide: 1 ms to 365 days.
	// Required.
	Window time.Duration
}

// mode is how an admission is stored: the numbers of binding.mode in schema/.
type mode int16

const (
	modeNone mode = iota
	modeIdempotency
	modeDebounce
	modeThrottle
)

func (m mode) String() string {
	return [...]string{"none", "idempotency", "debounce", "throttle"}[m]
}

// admission is the common shape of the three, with defaults filled in.
type admission struct {
	mode       mode
	key, scope string
	// retention is how long the binding lives: TTL or Window.
	retention time.Duration
	release   Release
	hold      bool
	maxWait   time.Duration
	followUp  bool
}

func defaultScope(scope string) string {
	if scope == "" {
		return "default"
	}
	return scope
}

func (a Idempotency) admission() admission {
	if a.TTL == 0 {
		a.TTL = DefaultTTL
	}
	return admission{mode: modeIdempotency, key: a.Key, scope: defaultScope(a.Scope), retention: a.TTL, release: a.Release}
}

func (a Debounce) admission() admission {
	return admission{mode: modeDebounce, key: a.Key, scope: defaultScope(a.Scope), retention: a.Window,
		hold: a.Hold, maxWait: a.MaxWait, followUp: a.FollowUp}
}

func (a Throttle) admission() admission {
	return admission{mode: modeThrottle, key: a.Key, scope: defaultScope(a.Scope), retention: a.Window}
}
