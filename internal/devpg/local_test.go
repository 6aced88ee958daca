package devpg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// startOn starts a server on one rung and stops it after the test.
func startOn(t *testing.T, rung Rung, opts ...Option) *Server {
	t.Helper()
	t.Setenv(EnvServer, string(rung))
	server, err := Start(t.Context(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return server
}

func TestStart_local(t *testing.T) {
	forget(t)
	server := startOn(t, Local, Setting("log_statement", "all"))
	if server.Rung != Local || !strings.Contains(server.How, "PostgreSQL") {
		t.Errorf("rung %s, how %q", server.Rung, server.How)
	}
	for name, want := range map[string]string{
		"listen_addresses":        "127.0.0.1",
		"unix_socket_directories": "",
		"fsync":                   "off",
		"log_statement":           "all",
	} {
		if got := setting(t, server, name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	said, err := server.Log(t.Context())
	if err != nil || !strings.Contains(string(said), "unix_socket_directories") {
		t.Errorf("the log lacks the statements: %v\n%s", err, said)
	}

	folder := filepath.Dir(setting(t, server, "data_directory"))
	stranger, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	stranger.User = url.UserPassword("postgres", "guess")
	if conn, err := pgx.Connect(t.Context(), stranger.String()); err == nil {
		t.Error("any user of this machine may connect as superuser")
		conn.Close(t.Context())
	}

	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder %s is left: %v", folder, err)
	}
	if conn, err := net.Dial("tcp", stranger.Host); err == nil {
		t.Error("somebody still listens on the port")
		conn.Close()
	}
	if err := server.Stop(t.Context()); err != nil {
		t.Errorf("a second Stop: %v", err)
	}
}

func TestStart_localDurable(t *testing.T) {
	forget(t)
	server := startOn(t, Local, Durable())
	if got := setting(t, server, "fsync"); got != "on" {
		t.Errorf("fsync = %s", got)
	}
	if data := setting(t, server, "data_directory"); strings.HasPrefix(data, memoryMount) {
		t.Errorf("the data of a durable server are in memory: %s", data)
	}
	// Stopping is not left out when there is no time for it.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := server.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestStart_localRefusedSetting(t *testing.T) {
	forget(t)
	t.Setenv(EnvServer, string(Local))
	_, err := Start(t.Context(), Setting("no_such_setting", "1"))
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("error %v does not repeat what the server said", err)
	}
}

// folders are the folders of all servers on this machine.
func folders(t *testing.T) []string {
	t.Helper()
	var paths []string
	for _, parent := range []string{os.TempDir(), memoryMount} {
		found, err := filepath.Glob(filepath.Join(parent, folderPattern))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	return paths
}

// envOrphan makes this test binary start a server and wait to be killed.
const envOrphan = "ONCEQ_DEVPG_ORPHAN"

func beOrphaned() {
	server, err := Start(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(server.URL)
	select {}
}

// TestStart_localKilled kills a process that has started a server.
func TestStart_localKilled(t *testing.T) {
	forget(t)
	t.Setenv(EnvServer, string(Local))
	server, kill := startElsewhere(t)
	left := &folder{path: filepath.Dir(setting(t, server, "data_directory"))}
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	kill()
	within(t, 20*time.Second, "the server outlives its owner", func() bool {
		conn, err := net.Dial("tcp", at.Host)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	makeOld(t, left)
	within(t, 20*time.Second, "its folder is left for good", func() bool {
		clearAbandoned()
		_, err := os.Stat(left.path)
		return errors.Is(err, os.ErrNotExist)
	})
}

// startElsewhere starts a server in another process, which kill kills.
func startElsewhere(t *testing.T) (server *Server, kill func()) {
	t.Helper()
	owner := exec.CommandContext(t.Context(), os.Args[0])
	owner.Env = append(os.Environ(), envOrphan+"=1")
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	return &Server{URL: lines.Text()}, func() {
		t.Helper()
		if err := owner.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		owner.Wait() // It reports the kill, which is no news.
	}
}

// makeOld makes a folder old enough to be judged.
func makeOld(t *testing.T, f *folder) {
	t.Helper()
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(f.file(lockName), old, old); err != nil {
		t.Fatal(err)
	}
}

// within waits for something that another process does.
func within(t *testing.T, limit time.Duration, complaint string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(complaint)
		}
	}
}
