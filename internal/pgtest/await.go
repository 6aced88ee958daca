package pgtest

import (
	"fmt"
	"testing"
	"time"
)

// Await polls until cond holds.
func Await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	AwaitFor(t, Patience, what, cond)
}

// AwaitFor is Await for conditions that may take longer.
func AwaitFor(t testing.TB, patience time.Duration, what string, cond func() bool) {
	t.Helper()
	for give := time.Now().Add(patience); !cond(); time.Sleep(3 * time.Millisecond) {
		if time.Now().After(give) {
			t.Fatalf("waited %v in vain for: %s", patience, what)
		}
	}
}

// AwaitClock waits until PostgreSQL's clock has passed the instant.
func AwaitClock(t testing.TB, q Querier, at time.Time) {
	t.Helper()
	Await(t, fmt.Sprintf("PostgreSQL's clock to pass %s", at), func() bool { return Clock(t, q).After(at) })
}

// AwaitBlocked waits until so many sessions are blocked.
func AwaitBlocked(t testing.TB, q Querier, n int) {
	t.Helper()
	Await(t, fmt.Sprintf("%d session(s) to wait for a lock", n), func() bool { return Blocked(t, q) >= n })
}

// Blocked is how many sessions of the database wait for locks of others'
// transactions. Locks for a moment, as to add a page to a table, don't count.
func Blocked(t testing.TB, q Querier) int {
	t.Helper()
	return Scan[int](t, q, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
		AND backend_type = 'client backend' AND wait_event_type = 'Lock' AND wait_event NOT IN ('extend', 'page', 'frozenid')`)
}
