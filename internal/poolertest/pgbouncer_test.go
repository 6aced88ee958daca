//go:build pgbouncer && linux

// Package poolertest runs the library through a real PgBouncer in transaction
// mode, where a session is nobody's own. It wants the program pgbouncer, so it
// has a build tag: make pooler-test.
package poolertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// serverConns is how many sessions PgBouncer has for a database.
const serverConns = 4

// startPgBouncer starts one in front of pool's server and returns its address.
// Every database can be reached through it.
func startPgBouncer(t *testing.T, pool *pgxpool.Pool) (host string, port uint16) {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/pgbouncer") // not everybody's PATH has it
	}
	if err != nil {
		t.Fatalf("the program pgbouncer is wanted: %v", err)
	}
	dir, err := os.MkdirTemp("", "onceq-pgbouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	port = freePort(t)
	behind := pool.Config().ConnConfig
	config := fmt.Sprintf(`[databases]
* = host=%s port=%d user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %d
max_client_conn = 500
log_connections = 0
log_disconnections = 0
`, behind.Host, behind.Port, behind.User, behind.Password, port, serverConns)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, file)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if os.Getuid() == 0 { // which it refuses to run as
		const nobody = 65534
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		for _, path := range []string{dir, file} {
			if err := os.Chown(path, nobody, nobody); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("pgbouncer said:\n%s", said.String())
		}
	})
	address := net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			return "127.0.0.1", port
		}
		if time.Now().After(deadline) {
			t.Fatalf("pgbouncer does not listen: %v", err)
		}
	}
}

// freePort is one below those that outgoing connections take.
func freePort(t *testing.T) uint16 {
	t.Helper()
	for range 100 {
		port := uint16(20_000 + rand.IntN(12_000))
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(port)))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// through opens a pool on direct's database through PgBouncer.
func through(t *testing.T, direct *pgxpool.Pool, mode pgx.QueryExecMode, host string, port uint16) *pgxpool.Pool {
	t.Helper()
	cfg := direct.Config()
	cfg.ConnConfig.Host, cfg.ConnConfig.Port = host, port
	cfg.ConnConfig.Fallbacks, cfg.ConnConfig.TLSConfig = nil, nil
	// PgBouncer refuses settings at the start of a session that it does not know.
	cfg.ConnConfig.RuntimeParams = map[string]string{}
	cfg.ConnConfig.DefaultQueryExecMode = mode
	cfg.MaxConns = 40
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
