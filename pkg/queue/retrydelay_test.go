package queue

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// The vectors were computed apart from this package, from the documentation of
// the policies, with Python. An operator who recomputes a decision of last month
// must get last month's delay, so there is no way to write them anew.
func TestRetryDelay_golden(t *testing.T) {
	t.Parallel()
	type vector struct {
		Why     string
		Retry   json.RawMessage
		Job     JobID
		Attempt int
		DelayUS int64 `json:"delay_us"`
	}
	for _, v := range golden[vector](t, "retrydelay.json") {
		p, err := parseRetry(string(v.Retry))
		if err != nil {
			t.Fatalf("%s: %v", v.Why, err)
		}
		if got := p.delay(v.Job, v.Attempt).Microseconds(); got != v.DelayUS {
			t.Errorf("%s: the delay follows from the job and the attempt alone, and it has changed: got %d µs, want %d", v.Why, got, v.DelayUS)
		}
	}
}

// someJobs are ids that have nothing in common.
func someJobs(n int) (ids []JobID) {
	for i := range n {
		ids = append(ids, JobID(fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", i*7919)))
	}
	return ids
}

// The default policy doubles from 15 s up to 6 h, each delay with up to ten per
// cent more or less, spread over that range.
func TestRetryDelay_bounds(t *testing.T) {
	t.Parallel()
	stored, err := parseRetry("")
	if err != nil || stored != defaultRetry {
		t.Fatalf("no policy is stored for the default one, and read back as %+v, %v", stored, err)
	}
	for attempt := 1; attempt <= maxAttemptsAllowed; attempt++ {
		middle := 6 * time.Hour
		if attempt <= 20 { // then the shift would overflow
			middle = min(middle, 15*time.Second<<(attempt-1))
		}
		low, high := false, false
		for _, id := range someJobs(100) {
			d := defaultRetry.delay(id, attempt)
			if d < middle*9/10 || d > middle*11/10 {
				t.Fatalf("attempt %d waits %v, want %v with ten per cent more or less", attempt, d, middle)
			}
			if again := defaultRetry.delay(id, attempt); again != d {
				t.Fatalf("attempt %d waits %v or %v: a decision must be the same when it is made again", attempt, d, again)
			}
			if d%time.Microsecond != 0 {
				t.Fatalf("attempt %d waits %v: delays are whole microseconds", attempt, d)
			}
			low, high = low || d < middle*92/100, high || d > middle*108/100
		}
		if !low || !high {
			t.Errorf("attempt %d: the delays of 100 jobs do not spread over the range", attempt)
		}
	}
}

func TestRetryDelay_decorrelated(t *testing.T) {
	t.Parallel()
	p := DecorrelatedJitter{Base: time.Minute, Max: 2 * time.Hour}.retryPolicy()
	capped := false
	for _, id := range someJobs(200) {
		before := time.Minute
		for attempt := 1; attempt <= maxAttemptsAllowed; attempt++ {
			d := p.delay(id, attempt)
			if d < time.Minute || d > 2*time.Hour || d > 3*before+time.Microsecond {
				t.Fatalf("attempt %d waits %v after %v: want between a minute and three times the wait before it, up to 2 h", attempt, d, before)
			}
			capped = capped || d == 2*time.Hour
			before = d
		}
	}
	if !capped {
		t.Error("no delay ever reaches the longest one")
	}
}

// What is stored for a policy is the policy.
func TestRetryDelay_storedPolicies(t *testing.T) {
	t.Parallel()
	for _, policy := range []RetryPolicy{
		Fixed{}, Fixed{Delay: 90 * time.Second}, Fixed{Delay: maxDelay},
		Exponential{}, Exponential{Initial: time.Second, Max: time.Hour, Multiplier: 1.5}, Exponential{Multiplier: 1000, Max: maxDelay},
		DecorrelatedJitter{}, DecorrelatedJitter{Base: time.Microsecond, Max: maxDelay},
	} {
		want, text := policy.retryPolicy(), ""
		if stored := want.stored(); stored != nil {
			text = *stored
		}
		if got, err := parseRetry(text); err != nil || got != want {
			t.Errorf("%#v comes back as %+v, %v; want %+v", policy, got, err, want)
		}
	}
	for _, text := range []string{"{", `{"policy":"lottery"}`, `[]`} {
		if _, err := parseRetry(text); err == nil {
			t.Errorf("%s must not be taken for a policy", text)
		}
	}
}
