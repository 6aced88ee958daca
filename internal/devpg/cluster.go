package devpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// startLimit bounds initdb and the start together. They take a second on an
// idle machine.
const startLimit = 90 * time.Second

// errPortTaken says that another program took the port between our choosing
// it and PostgreSQL's opening it.
var errPortTaken = errors.New("the port is taken")

// cluster is one data folder and the server that runs on it. It listens on
// loopback only, and has no Unix socket: the path of one may not be longer
// than 107 bytes, which a temporary folder's name can exceed.
type cluster struct {
	programs
	*folder
	cfg *config
	who *account
}

// startCluster makes a data folder with the programs given and starts a server
// on it.
func startCluster(ctx context.Context, cfg *config, p programs) (*Server, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("PostgreSQL took longer than %v to start", startLimit))
	defer cancel()
	clearAbandoned()
	who, err := serverAccount()
	if err != nil {
		return nil, err
	}
	parent := ""
	if !cfg.durable {
		parent = memoryFolder()
	}
	f, err := newFolder(parent)
	if err != nil {
		return nil, err
	}
	c := &cluster{programs: p, folder: f, cfg: cfg, who: who}
	server, err := c.start(ctx)
	if err != nil {
		return nil, errors.Join(err, f.remove())
	}
	return server, nil
}

// clearAbandoned removes the folders of local servers whose owners were
// killed. Those of containers are left to the container rung.
func clearAbandoned() {
	for _, left := range abandoned() {
		if left.containerID() == "" {
			left.remove()
		} else {
			left.lock.Close()
		}
	}
}

func (c *cluster) start(ctx context.Context) (*Server, error) {
	if err := c.who.own(c.folder.path); err != nil {
		return nil, err
	}
	if err := c.initialise(ctx); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		server, err := c.serve(ctx)
		if err == nil || try == 10 || !errors.Is(err, errPortTaken) {
			return server, err
		}
	}
}

// command is one of the programs, run by the right account in the folder.
func (c *cluster) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.programs.path(name), args...)
	cmd.Dir = c.folder.path
	// libpq's variables would steer initdb and the server, too; and their
	// messages must be the ones that this package looks for.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PG") })
	cmd.Env = append(cmd.Env, "LC_ALL=C")
	prepare(cmd, c.who, c.lock)
	return cmd
}

func (c *cluster) initialise(ctx context.Context) error {
	secret := c.file("password")
	if err := os.WriteFile(secret, []byte(c.cfg.password+"\n"), 0o600); err != nil {
		return err
	}
	defer os.Remove(secret)
	if err := c.who.own(secret); err != nil {
		return err
	}
	out, err := run(c.command(ctx, "initdb", "--pgdata="+c.file("data"), "--username=postgres", "--pwfile="+secret,
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"))
	if err != nil {
		return fmt.Errorf("initdb: %w\n%s(it ran as %s, which must be able to enter %s and %s)",
			err, tail(out), c.who, c.folder.path, c.programs.bin)
	}
	return nil
}

// serve starts the server on a port that is free now.
func (c *cluster) serve(ctx context.Context) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(c.file("log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // The server has its own copy.

	// Ours come last, where the caller's settings cannot undo them.
	args := append([]string{"-D", c.file("data")}, c.cfg.arguments()...)
	args = append(args, "-c", "listen_addresses=127.0.0.1", "-c", "port="+strconv.Itoa(port), "-c", "unix_socket_directories=")
	cmd := c.command(context.Background(), "postgres", args...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := launch(cmd)
	if err != nil {
		return nil, err
	}

	server := &Server{
		URL: (&url.URL{
			Scheme:   "postgres",
			User:     url.UserPassword("postgres", c.cfg.password),
			Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
			Path:     "/postgres",
			RawQuery: "sslmode=disable",
		}).String(),
		log: func(context.Context) ([]byte, error) { return os.ReadFile(c.file("log")) },
		destroy: func(ctx context.Context) error {
			p.end(ctx)
			return c.folder.remove()
		},
	}
	err = awaitAnswer(ctx, server.URL, func(context.Context) error {
		if !p.ended() {
			return nil
		}
		said, _ := os.ReadFile(c.file("log"))
		if bytes.Contains(said, []byte("could not bind")) {
			return errPortTaken
		}
		return fmt.Errorf("postgres ended at once:\n%s", tail(said))
	})
	if err != nil {
		p.end(ctx)
		return nil, err
	}
	return server, nil
}

// freePort returns a port on loopback that nobody listens on. It keeps below
// the ports that systems hand out by themselves (32768 and up on Linux), or
// some program's outgoing connection would sooner or later be sitting on it.
func freePort() (int, error) {
	var last error
	for range 100 {
		port := 20000 + rand.IntN(12000)
		listener, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, listener.Close()
		}
		last = err
	}
	return 0, fmt.Errorf("find a free port on 127.0.0.1: %w", last)
}

// tail is the end of what a program printed.
func tail(out []byte) string {
	lines := bytes.SplitAfter(bytes.TrimSpace(out), []byte("\n"))
	if len(lines) > 15 {
		lines = lines[len(lines)-15:]
	}
	return string(bytes.Join(lines, nil)) + "\n"
}
