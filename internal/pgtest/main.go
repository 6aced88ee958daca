package pgtest

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// Main runs a package's tests, gives the server back, and fails the package if
// a goroutine is left. It does not return.
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
func Main(m *testing.M) {
	stopWatching := closeOnSignal()
	code := m.Run()
	stopWatching()
	if err := closeShared(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest: stop the server:", err)
		code = 1
	}
	// A failed test may well have left goroutines: that is no further news.
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest: the tests left goroutines behind:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// closeOnSignal cleans up when the tests are interrupted, and ends them. The
// function that it returns ends the watch.
func closeOnSignal() (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case got := <-signals:
			signal.Stop(signals) // A second one ends us at once.
			fmt.Fprintf(os.Stderr, "pgtest: %v: cleaning up\n", got)
			if err := closeShared(); err != nil {
				fmt.Fprintln(os.Stderr, "pgtest: stop the server:", err)
			}
			os.Exit(1)
		case <-done:
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
		<-ended
	}
}
