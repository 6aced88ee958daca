package queue

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// What makes two admissions differ is printed, and the key isn't.
func TestAdmission_printing(t *testing.T) {
	t.Parallel()
	const key = "order-1234567890"
	for _, row := range []struct {
		admission Admission
		text      string
		options   string
	}{
		{Idempotency{Key: key}, `idempotency{key "orde…0", 16 characters, scope "default", 24h0m0s}`, ""},
		{Idempotency{Key: key, TTL: time.Hour, Release: ReleaseDead},
			`idempotency{key "orde…0", 16 characters, scope "default", 1h0m0s, release dead}`, "release dead"},
		{Debounce{Key: key, Window: time.Minute, Hold: true, MaxWait: time.Hour, FollowUp: true},
			`debounce{key "orde…0", 16 characters, scope "default", 1m0s, hold, max wait 1h0m0s, follow up}`, "hold, max wait 1h0m0s, follow up"},
		{Throttle{Key: key, Scope: "alarms", Window: time.Second}, `throttle{key "orde…0", 16 characters, scope "alarms", 1s}`, ""},
	} {
		if got := fmt.Sprintf("%+v", row.admission); got != row.text {
			t.Errorf("printed as %s, want %s", got, row.text)
		}
		text, err := json.Marshal(row.admission)
		if err != nil {
			t.Fatal(err)
		}
		var document struct{ Options string }
		if err := json.Unmarshal(text, &document); err != nil || document.Options != row.options {
			t.Errorf("as JSON it is %s (%v), want the options %q", text, err, row.options)
		}
	}
	if got := Release(7).String(); got != "Release(7)" {
		t.Errorf("a release that doesn't exist is printed as %s", got)
	}
}
