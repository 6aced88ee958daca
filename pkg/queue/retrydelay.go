package queue

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// delay is the wait after attempt number n (from 1) of a job. It depends on
// nothing else, so that anybody can recompute it.
func (p retryPolicy) delay(id JobID, n int) time.Duration {
	switch p.kind {
	case retryExponential:
		d := min(float64(p.initial)*math.Pow(p.multiplier, float64(n-1)), float64(p.limit))
		return bounded(d*(0.9+0.2*chance(id, n)), maxDelay)
	case retryDecorrelated:
		d := float64(p.initial)
		for k := 1; k <= n; k++ {
			d = min(float64(p.initial)+chance(id, k)*(3*d-float64(p.initial)), float64(p.limit))
		}
		return bounded(d, p.limit)
	}
	return p.initial
}

func bounded(d float64, most time.Duration) time.Duration {
	return min(time.Duration(d), most).Truncate(time.Microsecond)
}

// chance is a number in [0, 1) that looks random and is the same for the same
// job and attempt.
func chance(id JobID, n int) float64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "onceq.retry.v1/%s/%d", id, n))
	return float64(binary.BigEndian.Uint64(sum[:])>>11) / (1 << 53)
}

// parseRetry reads job.retry; "" is the default policy.
func parseRetry(stored string) (retryPolicy, error) {
	if stored == "" {
		return defaultRetry, nil
	}
	var s storedRetry
	if err := json.Unmarshal([]byte(stored), &s); err != nil {
		return retryPolicy{}, fmt.Errorf("read the retry policy: %w", err)
	}
	p := retryPolicy{initial: time.Duration(s.DelayUS) * time.Microsecond, limit: time.Duration(s.MaxUS) * time.Microsecond, multiplier: s.Multiplier}
	switch s.Policy {
	case "fixed":
		p.kind = retryFixed
	case "exponential":
		p.kind = retryExponential
	case "decorrelated_jitter":
		p.kind = retryDecorrelated
	default:
		return retryPolicy{}, fmt.Errorf("unknown retry policy %q", s.Policy)
	}
	return p, nil
}
