package main

import (
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/onceq/onceq/pkg/queue"
)

// colours is the environment of a terminal that has them.
const colours = "TERM=xterm-256color"

// visible makes what only a terminal acts on readable in a golden file.
func visible(screen string) string {
	return strings.ReplaceAll(strings.ReplaceAll(screen, "\r\n", "\n"), "\x1b", "␛")
}

// watch runs a command with stdout and stderr on a terminal.
func (s *transcript) watch(code int, env string, args ...string) string {
	s.t.Helper()
	c := newCommand(s.t, s.url(), args...).with(strings.Fields(env)...)
	screen := watch(s.t, c, true, code)
	s.typed(c)
	s.text.WriteString(visible(screen))
	s.exit(code)
	return screen
}

// dialogue is a command that asks on a terminal.
type dialogue struct {
	*command
	screen, line *os.File
	shown        strings.Builder
}

// converse starts a command with all its streams on a terminal and waits for
// its question.
func (s *transcript) converse(question, env string, args ...string) *dialogue {
	s.t.Helper()
	d := &dialogue{command: newCommand(s.t, s.url(), args...).with(strings.Fields(env)...)}
	d.screen, d.line = terminal(s.t)
	d.Stdin, d.Stdout, d.Stderr = d.line, d.line, d.line
	if err := d.Start(); err != nil {
		s.t.Fatal(err)
	}
	d.await(s.t, question)
	return d
}

// await reads the screen until it shows a text.
func (d *dialogue) await(t *testing.T, text string) {
	t.Helper()
	for buf := make([]byte, 4096); !strings.Contains(d.shown.String(), text); {
		n, err := d.screen.Read(buf)
		if err != nil {
			t.Fatalf("%v; the terminal shows:\n%s", err, d.shown.String())
		}
		d.shown.Write(buf[:n])
	}
}

func (d *dialogue) typeIn(t *testing.T, text string) {
	t.Helper()
	if _, err := d.screen.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// answer types a line and returns what the terminal showed in all.
func (s *transcript) answer(d *dialogue, text string, code int) string {
	s.t.Helper()
	d.typeIn(s.t, text+"\n")
	return s.over(d, code)
}

// over waits for the end of a dialogue and keeps it.
func (s *transcript) over(d *dialogue, code int) string {
	s.t.Helper()
	rest := make(chan string, 1)
	go func() {
		var text strings.Builder
		buf := make([]byte, 4096)
		for {
			// A terminal whose last writer is gone ends with an error.
			n, err := d.screen.Read(buf)
			text.Write(buf[:n])
			if err != nil {
				rest <- text.String()
				return
			}
		}
	}()
	d.ends(s.t, code)
	d.line.Close()
	d.shown.WriteString(<-rest)
	s.typed(d.command)
	s.text.WriteString(visible(d.shown.String()))
	s.exit(code)
	return d.shown.String()
}

func TestTablesOnATerminal(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	shop := s.open()
	s.wait("order.ship", "50 h 10 min")
	s.watch(exitOK, colours, "jobs", "list")
	s.watch(exitOK, colours, "jobs", "show", string(shop.dead))
	s.watch(exitOK, colours, "dead", "list")
	s.watch(exitOK, colours, "stats")
	s.watch(exitOK, colours, "queues", "pause", "mail")
	s.watch(exitOK, colours, "queues", "list")
	s.watch(exitOK, colours, "keys", "show", "--key", "document-77")
	s.watch(exitOK, colours+" NO_COLOR=1", "jobs", "list", "--state", "dead")
	s.watch(exitOK, "TERM=dumb", "jobs", "list", "--state", "dead")
	s.watch(exitOK, colours, "jobs", "list", "--state", "dead", "--json")
	s.golden("terminal_tables.txt")
}

func TestDoctorOnATerminal(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	s.open()
	s.wait("order.ship", "2 h")
	screen := s.watch(exitWarning, colours, "doctor")
	lines := strings.Split(regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(screen, ""), "\r\n")
	for _, line := range lines {
		if n := len([]rune(line)); strings.HasPrefix(line, "│") && n > 120 {
			t.Errorf("a line has %d columns on a terminal of 120:\n%s", n, line)
		}
	}
	for _, want := range []string{"\x1b[32mok\x1b[0m", "\x1b[33mwarning\x1b[0m", "\x1b[36mnotice\x1b[0m"} {
		if !strings.Contains(screen, want) {
			t.Errorf("the terminal lacks %q:\n%q", want, screen)
		}
	}
}

// On a terminal that has no room for the other columns, the long one is as narrow as it gets.
func TestDoctorOnANarrowTerminal(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	s.open()
	for _, columns := range []uint16{20, 40, 60} {
		screen := watchOf(t, columns, newCommand(t, s.url(), "doctor").with("TERM=xterm", "NO_COLOR=1"), true, exitOK)
		for line := range strings.Lines(screen) {
			if n := len([]rune(strings.TrimSpace(line))); strings.HasPrefix(line, "│") && n > 60 {
				t.Errorf("a line has %d columns on a terminal of %d:\n%s", n, columns, line)
			}
		}
	}
}

func TestConfirmation(t *testing.T) {
	t.Parallel()
	const question = "to go on: "
	s := newTranscript(t)
	shop := s.open()
	database := s.pool.Config().ConnConfig.Database
	waiting := func() int { return queryRow[int](t, s.pool, "SELECT count(*) FROM onceq.pending") }

	s.answer(s.converse(question, "TERM=dumb", "purge", "--all"), "yes", exitFailure)
	s.answer(s.converse(question, "TERM=dumb", "purge", "--all"), "", exitFailure)
	if n := waiting(); n != 3 {
		t.Errorf("without the database's name %d jobs are left, want 3", n)
	}
	d := s.converse(question, "TERM=dumb", "purge", "--all")
	d.typeIn(t, "\x04") // the end of the input
	s.over(d, exitFailure)
	s.answer(s.converse(question, "TERM=dumb", "purge", "--queue", "mail"), database, exitOK)
	s.answer(s.converse(question, "TERM=dumb", order("--all")...), database, exitOK)
	s.hideOrder()
	s.golden("terminal_confirm.txt")
	if n := waiting(); n != 3 {
		t.Errorf("%d jobs wait, want the 2 that were left and the redriven one", n)
	}

	t.Run("Ctrl-C at the question changes nothing", func(t *testing.T) {
		d := s.converse(question, "TERM=dumb", "purge", "--all")
		if err := d.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if shown := s.over(d, exitFailure); !strings.Contains(shown, "onceq: interrupted") {
			t.Errorf("the terminal shows:\n%s", shown)
		}
	})
	t.Run("JSON asks nobody", func(t *testing.T) {
		c := newCommand(t, s.url(), "purge", "--all", "--json")
		screen, line := terminal(t)
		c.Stdin, c.Stderr = line, line
		// An end of input, in case that it asks all the same.
		if _, err := screen.WriteString("\x04"); err != nil {
			t.Fatal(err)
		}
		c.ends(t, exitUsage)
	})
	if n := waiting(); n != 3 {
		t.Errorf("%d jobs wait, want 3", n)
	}
	if job, err := shop.client.Job(t.Context(), shop.ready); err != nil || job.State != queue.StateReady {
		t.Errorf("the ready job is %s: %v", job.State, err)
	}
}

func TestKeyIsAskedFor(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	s.open()
	s.answer(s.converse("key: ", "TERM=dumb", "keys", "show", "--scope", "orders"), "order-1001-confirmation-mail", exitOK)
	s.golden("terminal_key.txt")
	if strings.Contains(s.text.String(), "confirmation-mail") {
		t.Error("the terminal shows the key")
	}
	d := s.converse("key: ", "TERM=dumb", "keys", "show", "--scope", "orders")
	if err := d.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	s.over(d, exitFailure)
	for name, key := range map[string]string{"Ctrl-C": "\x03", "Ctrl-D": "\x04"} {
		d := s.converse("key: ", "TERM=dumb", "keys", "show", "--scope", "orders")
		d.typeIn(t, key)
		if shown := s.over(d, exitFailure); !strings.Contains(shown, "\r\nonceq: interrupted\r\n") {
			t.Errorf("after %s the terminal shows %q", name, shown)
		}
	}
}

func TestProgressOfLongWork(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	s.open()
	for what, screen := range map[string]string{
		"1 jobs ... done [": s.watch(exitOK, colours, order("--all", "--yes")...),
		"4 jobs ... done [": s.watch(exitOK, colours, "purge", "--all", "--yes"),
	} {
		if !strings.Contains(regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(screen, ""), what) {
			t.Errorf("the terminal lacks %q:\n%q", what, screen)
		}
	}
	if screen := s.watch(exitOK, colours+" NO_COLOR=1", "purge", "--all", "--yes"); regexp.MustCompile("\x1b\\[[0-9;]*m").MatchString(screen) {
		t.Errorf("NO_COLOR is not respected:\n%q", screen)
	}
}
