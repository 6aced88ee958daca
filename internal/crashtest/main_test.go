//go:build unix

package crashtest

import (
	"flag"
	"os"
	"testing"

	"github.com/onceq/onceq/internal/pgtest"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(envWorker); spec != "" {
		os.Exit(runWorker(spec))
	}
	// The tests mostly wait, so more of them go at once than there are processors.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	pgtest.Main(m) // parses the command line, which has the last word
}
