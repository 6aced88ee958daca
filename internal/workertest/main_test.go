// Package workertest_test holds the promises of the worker, one file a noun,
// each tried from outside on a real PostgreSQL. It is a folder of its own so
// that what tests need never reaches a program that imports pkg/queue.
package workertest_test

import (
	"flag"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/pgtest"
)

// shortLease is the shortest lease that tests expect a worker to keep. Heartbeats
// come three times as often, and a machine may stand still for two or three
// seconds, or the server, or its disk.
const shortLease = 5 * time.Second

func TestMain(m *testing.M) {
	// The tests mostly wait, for leases to end and deadlines to pass, so more of
	// them go at once than there are processors.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	pgtest.Main(m) // parses the command line, which has the last word
}
