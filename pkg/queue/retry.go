package queue

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// RetryPolicy says how long a job waits after an attempt that failed: Fixed,
// Exponential or DecorrelatedJitter, passed by value. Delays are 0 to 365 days,
// counted in whole microseconds.
type RetryPolicy interface {
	retryPolicy() retryPolicy
}

// Fixed waits the same time after every attempt. Zero retries at once.
type Fixed struct{ Delay time.Duration }

// Exponential waits Initial after the first attempt and Multiplier times longer
// after each further one, up to Max, each with up to ten per cent more or less,
// derived from the job's id and the attempt so that it can be recomputed. So
// a wait may be up to ten per cent longer than Max.
type Exponential struct {
	// Initial is the first delay. Zero is 15 seconds.
	Initial time.Duration
	// Max caps every delay. Zero is 6 hours.
	Max time.Duration
	// Multiplier is 1 to 1000. Zero is 2.
	Multiplier float64
}

// DecorrelatedJitter waits a time between Base and three times the wait before
// it, up to Max. The choice is derived from the job's id and the attempt. The
// algorithm is the one of that name in "Exponential Backoff And Jitter"
// (AWS Architecture Blog, 2015).
type DecorrelatedJitter struct {
	// Base is the shortest delay. Zero is 15 seconds.
	Base time.Duration
	// Max is the longest. Zero is 6 hours.
	Max time.Duration
}

const (
	defaultRetryInitial = 15 * time.Second
	defaultRetryMax     = 6 * time.Hour
	defaultMultiplier   = 2.0
	maxDelay            = 365 * 24 * time.Hour
	maxMultiplier       = 1000.0
)

// retryKind is the first byte of a policy in a fingerprint; a stored format.
type retryKind byte

const (
	retryFixed retryKind = iota + 1
	retryExponential
	retryDecorrelated
)

// retryPolicy is the common shape of the three, with defaults filled in.
type retryPolicy struct {
	kind           retryKind
	initial, limit time.Duration // microsecond precision
	multiplier     float64
}

var defaultRetry = Exponential{}.retryPolicy()

func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return wholeMicroseconds(d)
}

// wholeMicroseconds cuts finer digits; what is negative stays so, to be refused.
func wholeMicroseconds(d time.Duration) time.Duration {
	if d < 0 {
		return d
	}
	return d.Truncate(time.Microsecond)
}

func (p Fixed) retryPolicy() retryPolicy {
	return retryPolicy{kind: retryFixed, initial: wholeMicroseconds(p.Delay)}
}

func (p Exponential) retryPolicy() retryPolicy {
	if p.Multiplier == 0 {
		p.Multiplier = defaultMultiplier
	}
	return retryPolicy{kind: retryExponential, initial: orDefault(p.Initial, defaultRetryInitial),
		limit: orDefault(p.Max, defaultRetryMax), multiplier: p.Multiplier}
}

func (p DecorrelatedJitter) retryPolicy() retryPolicy {
	return retryPolicy{kind: retryDecorrelated, initial: orDefault(p.Base, defaultRetryInitial), limit: orDefault(p.Max, defaultRetryMax)}
}

// check reports what is wrong with the policy, or nil.
func (p retryPolicy) check() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"the delay", p.initial}, {"the longest delay", p.limit}} {
		if d.value < 0 || d.value > maxDelay {
			return fmt.Errorf("%s is %s; allowed are 0 to 365 days", d.name, d.value)
		}
	}
	if p.kind != retryFixed && p.initial > p.limit {
		return fmt.Errorf("the first delay, %s, is longer than the longest, %s", p.initial, p.limit)
	}
	if p.kind == retryExponential && !(p.multiplier >= 1 && p.multiplier <= maxMultiplier) {
		return fmt.Errorf("the multiplier is %v; allowed are 1 to %v", p.multiplier, maxMultiplier)
	}
	return nil
}

// storedRetry is job.retry; a stored format.
type storedRetry struct {
	Policy     string  `json:"policy"`
	DelayUS    int64   `json:"delay_us"`
	MaxUS      int64   `json:"max_us,omitempty"`
	Multiplier float64 `json:"multiplier,omitempty"`
}

// stored is the text for job.retry, nil for the default policy.
func (p retryPolicy) stored() *string {
	if p == defaultRetry {
		return nil
	}
	name := map[retryKind]string{retryFixed: "fixed", retryExponential: "exponential", retryDecorrelated: "decorrelated_jitter"}[p.kind]
	text, err := json.Marshal(storedRetry{Policy: name, DelayUS: p.initial.Microseconds(), MaxUS: p.limit.Microseconds(), Multiplier: p.multiplier})
	if err != nil {
		panic("queue: a checked retry policy did not marshal: " + err.Error())
	}
	return new(string(text))
}

// fingerprint is the policy's value in a fingerprint; a stored format.
func (p retryPolicy) fingerprint(dst []byte) []byte {
	dst = append(dst, byte(p.kind))
	dst = appendInt(dst, p.initial.Microseconds())
	dst = appendInt(dst, p.limit.Microseconds())
	return appendInt(dst, int64(math.Float64bits(p.multiplier)))
}
