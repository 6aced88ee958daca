package pgtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// recorder stands for a test that may fail without failing the real one.
type recorder struct {
	testing.TB
	failed   bool
	lines    []string
	cleanups []func()
}

func newRecorder(tb testing.TB) *recorder { return &recorder{TB: tb} }

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Failed() bool     { return r.failed }

func (r *recorder) Logf(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failed = true
	r.Logf(format, args...)
}

// end does what the testing package does after a test.
func (r *recorder) end() {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
	r.cleanups = nil
}

func (r *recorder) said() string { return strings.Join(r.lines, "\n") }
