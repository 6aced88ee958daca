package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onceq/onceq/internal/pgtest"
)

// asCommand makes this test binary the command itself, so that tests run the
// whole of it as a process of its own.
const asCommand = "ONCEQ_TEST_AS_COMMAND"

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	pgtest.Main(m)
}

// command is a run of onceq that has not yet begun. Its environment holds
// nothing but what a test gives it.
type command struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
	code           int // once it has ended
}

func newCommand(t *testing.T, databaseURL string, args ...string) *command {
	t.Helper()
	c := &command{Cmd: exec.CommandContext(t.Context(), os.Args[0], args...)}
	c.Env = []string{asCommand + "=1", "HOME=" + t.TempDir(), "ONCEQ_DATABASE_URL=" + databaseURL}
	c.Stdout, c.Stderr = &c.stdout, &c.stderr
	return c
}

// with adds variables to the environment.
func (c *command) with(env ...string) *command {
	c.Env = append(c.Env, env...)
	return c
}

// reading sets what the command reads.
func (c *command) reading(text string) *command {
	c.Stdin = strings.NewReader(text)
	return c
}

// ends runs the command, or waits for one that runs, and checks its exit code.
func (c *command) ends(t *testing.T, want int) *command {
	t.Helper()
	var err error
	if c.Process == nil {
		err = c.Run()
	} else {
		err = c.Wait()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	c.code = c.ProcessState.ExitCode()
	return c.ended(t, want)
}

// ended checks the exit code of a command that is over.
func (c *command) ended(t *testing.T, want int) *command {
	t.Helper()
	if c.code != want {
		t.Fatalf("onceq %s ended with %d, want %d\nstdout:\n%s\nstderr:\n%s", strings.Join(c.Args[1:], " "), c.code, want, c.stdout.String(), c.stderr.String())
	}
	return c
}

// said is what the command wrote to stderr after it had announced what it
// would do.
func (c *command) said() string {
	text := c.stderr.String()
	for strings.HasPrefix(text, "onceq will ") {
		_, text, _ = strings.Cut(text, "\n")
	}
	return text
}

// oneError checks that stderr is one line, after the announcement, and holds
// the words.
func (c *command) oneError(t *testing.T, words ...string) {
	t.Helper()
	text := c.said()
	if strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "onceq: ") {
		t.Errorf("stderr is not one line of onceq:\n%s", text)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("stderr lacks %q:\n%s", w, text)
		}
	}
}

// here runs the command in this process, where starting another one would show
// nothing more.
func here(t *testing.T, databaseURL string, args ...string) *command {
	t.Helper()
	c := newCommand(t, databaseURL, args...).reading(`{"id":1}`)
	a := &app{stdin: c.Stdin, stdout: c.Stdout, stderr: c.Stderr, getenv: func(name string) string {
		return map[string]string{"ONCEQ_DATABASE_URL": databaseURL}[name]
	}}
	c.code = a.run(t.Context(), args)
	return c
}

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// write makes a file and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "input.ndjson")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
