package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onceq/onceq/internal/devpg"
)

// envSelf makes this test binary be the command itself.
const envSelf = "ONCEQ_TESTSERVER_SELF"

func TestMain(m *testing.M) {
	if os.Getenv(envSelf) != "" {
		main()
	}
	os.Exit(m.Run())
}

func testserver(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), envSelf+"=1")
	return cmd
}

// exit runs cmd and returns its exit code and what it printed.
func exit(t *testing.T, cmd *exec.Cmd) (code int, out string) {
	t.Helper()
	b, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}

func TestMain_exitCode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"the command's own", []string{"--", "sh", "-c", "exit 7"}, 7, ""},
		{"success, with the server in the environment", []string{"sh", "-c", "echo at $" + devpg.EnvTestURL}, 0, "at postgres"},
		{"a command ended by a signal", []string{"sh", "-c", "kill -9 $$"}, 137, ""},
		{"no such command", []string{"--", "no-such-command"}, 1, "no-such-command"},
		{"no command", nil, 2, "usage"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			code, out := exit(t, testserver(t, test.args...))
			if code != test.code || !strings.Contains(out, test.says) {
				t.Errorf("exit code %d, want %d saying %q:\n%s", code, test.code, test.says, out)
			}
		})
	}
}

// TestMain_signal checks that a signal reaches what the command has started,
// and that the server stays until that has ended, too.
func TestMain_signal(t *testing.T) {
	t.Parallel()
	note := filepath.Join(t.TempDir(), "note")
	// The inner shell stands for a test binary that cleans up, the outer one
	// for `go test`, which just ends.
	const inner = `trap 'sleep 0.3; echo cleaned >"$0"; exit' TERM; echo ready; while :; do sleep 0.05; done`
	cmd := testserver(t, "sh", "-c", `sh -c "$1" "$0"; exit 0`, note, inner)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the command says %q, %v", lines.Text(), lines.Err())
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() // The exit code is looked at below.
	if code := cmd.ProcessState.ExitCode(); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
	if said, err := os.ReadFile(note); err != nil || string(said) != "cleaned\n" {
		t.Errorf("what the command had started did not end in peace: %q, %v", said, err)
	}
}

func TestChildEnv(t *testing.T) {
	t.Parallel()
	server := &devpg.Server{URL: "postgres://here"}
	for forced, want := range map[string][]string{
		"":          {"ONCEQ_TEST_DATABASE_URL=postgres://here"},
		"container": {"ONCEQ_TEST_DATABASE_URL=postgres://here", "ONCEQ_TEST_SERVER=url,container"},
	} {
		if diff := cmp.Diff(want, childEnv(server, forced)); diff != "" {
			t.Errorf("forced %q (-want +got):\n%s", forced, diff)
		}
	}
}
