// Package modeltest checks PostgreSQL against a plain model of keyed admission:
// generated histories, one operation after the other, must be answered as the
// model answers them, and histories of several callers at once as it could have
// in some order.
package modeltest

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/onceq/onceq/internal/pgtest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	// The log of a failure tells its seed and its history; a file would lie about in the sources.
	for name, value := range map[string]string{
		"rapid.checks":     strconv.Itoa(sequentialHistories / lanes),
		"rapid.nofailfile": "true",
	} {
		if given[name] {
			fewer = fewer || name == "rapid.checks"
			continue
		}
		if err := flag.Set(name, value); err != nil {
			fmt.Fprintln(os.Stderr, "modeltest:", err)
			os.Exit(2)
		}
	}
	pgtest.Main(m)
}

// fewer tells that somebody asked for another number of histories.
var fewer bool

// lanes is how many histories are under way at once, each in a database of its own.
const lanes = 4
