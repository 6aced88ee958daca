package pgtest

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/onceq/onceq/internal/devpg"
)

func TestMain(m *testing.M) { Main(m) }

// envChild names the test that this binary was started again for.
const envChild = "ONCEQ_PGTEST_CHILD"

// child is this test binary, started again for one test, on the shared server.
func child(t *testing.T, test string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(),
		envChild+"="+test,
		devpg.EnvServer+"="+string(devpg.URL),
		devpg.EnvTestURL+"="+Shared(t).AdminURL,
	)
	return cmd
}

func TestMain_leak(t *testing.T) {
	if os.Getenv(envChild) == t.Name() {
		go func() { select {} }()
		return
	}
	t.Parallel()
	out, err := child(t, t.Name()).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("a binary that leaks a goroutine ended with %v, want exit code 1\n%s", err, out)
	}
	if !strings.Contains(string(out), "goroutines behind") || !strings.Contains(string(out), "TestMain_leak") {
		t.Errorf("the goroutine is not named:\n%s", out)
	}
}

func TestMain_signal(t *testing.T) {
	const announcement = "database is "
	if os.Getenv(envChild) == t.Name() {
		pool := NewEmpty(t)
		println(announcement + pool.Config().ConnConfig.Database)
		<-t.Context().Done()
		return
	}
	t.Parallel()
	cmd := child(t, t.Name())
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var name string
	lines := bufio.NewScanner(said)
	for name == "" && lines.Scan() {
		name, _ = strings.CutPrefix(lines.Text(), announcement)
	}
	if !exists(t, name) {
		t.Fatalf("the child has no database %q", name)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	if err := cmd.Wait(); err == nil {
		t.Error("an interrupted binary reports success")
	}
	// Another binary that ends at the same time may have begun to drop it.
	Await(t, "the database "+name+" of an interrupted binary to be gone", func() bool { return !exists(t, name) })
}

// exists says whether the shared server has the database.
func exists(t *testing.T, name string) bool {
	t.Helper()
	return existsOn(t, Shared(t), name)
}

func existsOn(t *testing.T, s *Server, name string) bool {
	t.Helper()
	var found bool
	err := s.admin.QueryRow(context.Background(), "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&found)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
