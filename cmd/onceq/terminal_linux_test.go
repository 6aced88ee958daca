package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/onceq/onceq/internal/pgtest"
)

// terminal is a pseudo-terminal. What a command writes to it can be read from
// screen once the command is over.
func terminal(t *testing.T) (screen, line *os.File) {
	t.Helper()
	return terminalOf(t, 120)
}

// terminalOf is a terminal of so many columns.
func terminalOf(t *testing.T, columns uint16) (screen, line *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	line, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { line.Close() })
	if err := unix.IoctlSetWinsize(int(line.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	return screen, line
}

// watch runs the command with stderr, and with both also stdout, on a terminal
// and returns what is shown there.
func watch(t *testing.T, c *command, both bool, code int) string {
	t.Helper()
	return watchOf(t, 120, c, both, code)
}

// watchOf is watch on a terminal of so many columns.
func watchOf(t *testing.T, columns uint16, c *command, both bool, code int) string {
	t.Helper()
	screen, line := terminalOf(t, columns)
	c.Stderr = line
	if both {
		c.Stdout = line
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	shown := make(chan string, 1)
	go func() {
		// A terminal whose last writer is gone ends with an error.
		text, _ := io.ReadAll(screen)
		shown <- string(text)
	}()
	c.ends(t, code)
	line.Close()
	return <-shown
}

func TestProgressOnATerminal(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	text := strings.Repeat("x", 400)
	var input strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&input, "{\"id\":%d,\"text\":%q}\n", i, text)
	}
	input.WriteString("bad\n")
	run := func(args ...string) *command {
		return newCommand(t, pool.Config().ConnString(), append([]string{"enqueue", "--type", "t", "--key-field", "id"}, args...)...).with("TERM=xterm")
	}
	contains := func(t *testing.T, shown string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(shown, w) {
				t.Errorf("the terminal lacks %q:\n%q", w, shown)
			}
		}
	}
	const bar, up = "█", "\x1b[A"

	t.Run("a file shows how much of it is done", func(t *testing.T) {
		t.Parallel()
		shown := watch(t, run("--file", write(t, input.String())), true, exitInvalid)
		contains(t, shown, "3001 lines ... done [1.", "MB in ", "line 3001: invalid: ", "│ accepted", "╭──")
	})
	t.Run("a pipe shows the lines so far", func(t *testing.T) {
		t.Parallel()
		c := run("--scope", "pipe").reading(input.String())
		shown := watch(t, c, false, exitInvalid)
		contains(t, shown, "3001 lines ... done [", "line 3001: invalid: ")
		if strings.Contains(shown, "MB") || strings.Contains(shown, "%") {
			t.Errorf("a share of an unknown whole is shown:\n%q", shown)
		}
		if strings.ContainsAny(c.stdout.String(), "\x1b│") {
			t.Errorf("what goes into a pipe is not plain:\n%s", c.stdout.String())
		}
	})
	t.Run("the bar moves while lines go on", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.New(t)
		commit := hold(t, pool, "1")
		c := newCommand(t, pool.Config().ConnString(), "enqueue", "--type", "t", "--key-field", "id").with("TERM=xterm").reading(`{"id":1}`)
		screen, line := terminal(t)
		c.Stderr = line
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		// Two drawings: the second one first goes back up over the first.
		var shown strings.Builder
		for buf := make([]byte, 4096); !strings.Contains(shown.String(), up); {
			n, err := screen.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			shown.Write(buf[:n])
		}
		commit()
		c.ends(t, exitOK)
		contains(t, shown.String(), bar, "0 lines")
	})
	t.Run("JSON on a terminal is left alone", func(t *testing.T) {
		t.Parallel()
		shown := watch(t, run("--scope", "json", "--json").reading(`{"id":1}`), true, exitOK)
		if !strings.HasPrefix(shown, `{"kind":"summary"`) || strings.Count(shown, "\n") != 1 {
			t.Errorf("the terminal shows more than the summary:\n%q", shown)
		}
	})
	t.Run("a dumb terminal gets no bar", func(t *testing.T) {
		t.Parallel()
		shown := watch(t, run("--scope", "dumb").with("TERM=dumb").reading("bad\n"), false, exitInvalid)
		if !strings.Contains(shown, "\nline 1: invalid: ") || strings.Contains(shown, "\x1b") {
			t.Errorf("the terminal shows:\n%q", shown)
		}
	})
	t.Run("an end before the end is shown", func(t *testing.T) {
		t.Parallel()
		c := newCommand(t, pgtest.EmptyURL(t), "enqueue", "--type", "t", "--key-field", "id").with("TERM=xterm").reading(`{"id":1}`)
		contains(t, watch(t, c, false, exitFailure), "0 lines ... stopped [", "onceq: enqueue: ")
	})
}

// What could not be written is no success.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	s.open()
	for _, args := range [][]string{
		{"jobs", "list"}, {"stats"}, {"queues", "list"}, {"maintain"}, {"keys", "show", "--scope", "orders", "--key", "order-1001-confirmation-mail"},
		{"jobs", "list", "--json"}, {"stats", "--json"},
	} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer full.Close()
		c := newCommand(t, s.url(), args...)
		c.Stdout = full
		c.ends(t, exitFailure)
		if said := c.stderr.String(); !strings.Contains(said, "no space left on device") {
			t.Errorf("%q ends with %q", args, said)
		}
	}
}
