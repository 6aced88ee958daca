package queue

import (
	"errors"
	"strings"
	"testing"
)

// What is told of a request that is wrong has a bound, however much is wrong.
func TestRequest_refusalHasABound(t *testing.T) {
	huge := strings.Repeat("\xff\x00", 1<<20)
	for name, r := range map[string]Request{
		"tags that are wrong": {Tags: make([]string, 1_000_000)},
		"all that is wrong": {
			Type: huge, Queue: huge, Payload: huge, Priority: -1, MaxAttempts: -1, ConcurrencyKey: huge, Tags: []string{huge, huge},
			Admission: Idempotency{Key: huge, Scope: huge},
		},
	} {
		_, err := r.Fingerprint()
		if !errors.Is(err, ErrInvalidRequest) {
			t.Errorf("%s: want ErrInvalidRequest, got %v", name, err)
		} else if n := len(err.Error()); n > 4096 {
			t.Errorf("%s: the error has %d bytes", name, n)
		}
	}
	_, err := Request{Type: "a", Tags: make([]string, 21)}.Fingerprint()
	if err == nil || !strings.HasSuffix(err.Error(), "tags: 21 tags; allowed are at most 20") {
		t.Errorf("want the number of tags alone, got %v", err)
	}
}
