//go:build unix

package crashtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/devpg"
	"github.com/onceq/onceq/internal/pgtest"
	"github.com/onceq/onceq/schema"
)

// server is a durable PostgreSQL that a test may stop and start. devpg makes it
// and removes it; what goes on in between it need not know.
type server struct {
	url     string
	data    string
	program string   // postgres
	args    []string // what it was started with
	account *syscall.Credential
}

// newServer starts a durable server with the schema in its database. It is one
// of programs on this machine, not a container: its processes must be in reach.
func newServer(t *testing.T) *server {
	t.Helper()
	t.Setenv(devpg.EnvServer, string(devpg.Local)+","+string(devpg.Download))
	dev, err := devpg.Start(t.Context(), devpg.Private(), devpg.Durable())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if said, err := dev.Log(context.Background()); err == nil && t.Failed() {
			t.Logf("the server's log:\n%s", said)
		}
		if err := dev.Stop(context.Background()); err != nil {
			t.Errorf("remove the server: %v", err)
		}
	})
	pool := connect(t, dev.URL, 2)
	if err := schema.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	for setting, want := range map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"} {
		if got := pgtest.Scan[string](t, pool, `SELECT current_setting($1)`, setting); got != want {
			t.Fatalf("the server is not durable: %s is %s", setting, got)
		}
	}
	s := &server{url: dev.URL, data: pgtest.Scan[string](t, pool, `SHOW data_directory`)}
	s.readOptions(t)
	t.Cleanup(func() { s.stop(t, syscall.SIGINT) })
	return s
}

// connect opens a pool that lasts as long as the test.
func connect(t *testing.T, url string, conns int32) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

var quotedOption = regexp.MustCompile(`"([^"]*)"`)

// readOptions reads how the server was started, and by whom.
func (s *server) readOptions(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.data, "postmaster.opts"))
	if err != nil {
		t.Fatal(err)
	}
	s.program, _, _ = strings.Cut(string(text), " ")
	for _, match := range quotedOption.FindAllStringSubmatch(string(text), -1) {
		s.args = append(s.args, match[1])
	}
	info, err := os.Stat(s.data)
	if err != nil {
		t.Fatal(err)
	}
	if owner := info.Sys().(*syscall.Stat_t); int(owner.Uid) != os.Geteuid() {
		s.account = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	}
}

// pid is the process id of the running server.
func (s *server) pid(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.data, "postmaster.pid"))
	if err != nil {
		t.Fatalf("the server does not run: %v", err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// stop ends the server: SIGINT is a fast shutdown, SIGQUIT an immediate one, and
// SIGKILL what happens to a machine. It returns when nothing of it is left.
func (s *server) stop(t *testing.T, how syscall.Signal) {
	t.Helper()
	pid := s.pid(t)
	family := append(children(t, pid), pid)
	if how == syscall.SIGKILL {
		// The parent first, so that it can't tidy up after the others.
		if err := syscall.Kill(pid, how); err != nil {
			t.Fatal(err)
		}
		for _, child := range family {
			_ = syscall.Kill(child, how) // It may have noticed by itself.
		}
	} else if err := syscall.Kill(pid, how); err != nil {
		t.Fatal(err)
	}
	for _, member := range family {
		pgtest.Await(t, "the server to end", func() bool { return !alive(member) })
	}
}

// start starts the server again and returns when it answers.
func (s *server) start(t *testing.T) {
	t.Helper()
	out, err := os.OpenFile(filepath.Join(filepath.Dir(s.data), "log"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close() // The server has its own copy.
	cmd := exec.Command(s.program, s.args...)
	cmd.Dir = s.data
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = attributes()
	cmd.SysProcAttr.Credential = s.account
	started := make(chan error)
	go func() {
		// Where the kernel ends a child with its parent, the parent is this thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // The server's log says more.
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	pgtest.Await(t, "the server to answer", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, s.url)
		if err != nil {
			return false
		}
		return conn.Close(ctx) == nil
	})
}

// children are the processes that the server has forked.
func children(t *testing.T, parent int) (pids []int) {
	t.Helper()
	out, err := exec.Command("ps", "-e", "-o", "pid=,ppid=").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		var pid, ppid int
		if _, err := fmt.Sscan(line, &pid, &ppid); err == nil && ppid == parent {
			pids = append(pids, pid)
		}
	}
	return pids
}

// alive tells whether a process is there and has not ended.
func alive(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}
