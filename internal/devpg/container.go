package devpg

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
)

const defaultImage = "postgres:17-alpine"

// startContainer runs an image of PostgreSQL through testcontainers.
func startContainer(ctx context.Context, cfg *config) (*Server, error) {
	e, err := findEngine(ctx)
	if err != nil {
		return nil, err
	}
	defer e.close()
	e.removeAbandoned(ctx)
	image := cmp.Or(os.Getenv(EnvImage), defaultImage)
	if err := e.need(ctx, image); err != nil {
		return nil, err
	}
	steerTestcontainers(e)

	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("the container took longer than %v to start", startLimit))
	defer cancel()
	f, err := newFolder("")
	if err != nil {
		return nil, err
	}
	env := map[string]string{"POSTGRES_INITDB_ARGS": "--no-sync"}
	tmpfs := map[string]string{}
	if !cfg.durable {
		// A folder inside the mount, since initdb wants one of its own.
		env["PGDATA"] = "/memory/data"
		tmpfs["/memory"] = "rw"
	}
	c, err := postgres.Run(ctx, image,
		postgres.WithDatabase("postgres"),
		postgres.WithUsername("postgres"),
		postgres.WithPassword(cfg.password),
		testcontainers.WithEnv(env),
		testcontainers.WithTmpfs(tmpfs),
		testcontainers.WithCmd(append([]string{"postgres"}, cfg.arguments()...)...),
		testcontainers.WithHostConfigModifier(e.hostConfig),
		testcontainers.WithAdditionalLifecycleHooks(testcontainers.ContainerLifecycleHooks{
			PostCreates: []testcontainers.ContainerHook{f.rememberContainer},
		}),
	)
	server := &Server{
		How:     fmt.Sprintf("a container of %s (testcontainers)", image),
		destroy: func(ctx context.Context) error { return errors.Join(destroyContainer(ctx, c), f.remove()) },
	}
	server.log = func(ctx context.Context) ([]byte, error) { return currentLog(ctx, server.URL, c) }
	if err == nil {
		server.URL, err = c.ConnectionString(ctx, "sslmode=disable")
	}
	if err == nil {
		err = awaitAnswer(ctx, server.URL, func(ctx context.Context) error { return containerAlive(ctx, c) })
	}
	if err != nil {
		return nil, errors.Join(err, server.Stop(ctx))
	}
	return server, nil
}

// steerTestcontainers sets, where the user has not, what testcontainers reads
// from the environment, so that a bare `go test` works.
func steerTestcontainers(e *engine) {
	steer.Do(func() {
		log.SetDefault(log.NewNoopLogger())
		setDefault("DOCKER_HOST", e.host)
		// Its helper container would need a registry; folders and their locks
		// do its work here.
		setDefault("TESTCONTAINERS_RYUK_DISABLED", "true")
		// On a machine that looks like a container itself, it would look for
		// the published port at the default gateway.
		if e.local() {
			setDefault("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")
		}
	})
}

var steer sync.Once

func setDefault(name, value string) {
	if os.Getenv(name) == "" {
		os.Setenv(name, value)
	}
}

// hostConfig publishes the port to this machine alone, and gives parallel
// queries more shared memory than an engine's 64 MB.
func (e *engine) hostConfig(hc *container.HostConfig) {
	hc.ShmSize = 256 << 20
	if e.local() {
		hc.PortBindings = network.PortMap{
			network.MustParsePort("5432/tcp"): {{HostIP: netip.MustParseAddr("127.0.0.1")}},
		}
	}
}

// rememberContainer notes whose folder this is before the container starts.
func (f *folder) rememberContainer(_ context.Context, c testcontainers.Container) error {
	return os.WriteFile(f.file(containerName), []byte(c.GetContainerID()), 0o600)
}

func containerAlive(ctx context.Context, c *postgres.PostgresContainer) error {
	state, err := c.State(ctx)
	if err != nil {
		return fmt.Errorf("ask after the container: %w", err)
	}
	if state.Running {
		return nil
	}
	said, _ := containerLog(ctx, c)
	return fmt.Errorf("the container ended with exit code %d:\n%s", state.ExitCode, tail(said))
}

// currentLog returns the log up to now. An engine is some way behind with what
// it has collected, so a last word is written and waited for.
func currentLog(ctx context.Context, url string, c *postgres.PostgresContainer) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("the Docker engine is too far behind"))
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("read the container's log: %w", err)
	}
	defer conn.Close(ctx)
	word := "devpg: " + rand.Text()
	if _, err := conn.Exec(ctx, "DO $$ BEGIN RAISE LOG '"+word+"'; END $$"); err != nil {
		return nil, fmt.Errorf("read the container's log: %w", err)
	}
	for {
		said, err := containerLog(ctx, c)
		if err != nil || bytes.Contains(said, []byte(word)) {
			return said, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("read the container's log: %w", context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func containerLog(ctx context.Context, c *postgres.PostgresContainer) ([]byte, error) {
	stream, err := c.Logs(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the container's log: %w", err)
	}
	defer stream.Close()
	var said bytes.Buffer
	if _, err := io.Copy(&said, stream); err != nil {
		return nil, fmt.Errorf("read the container's log: %w", err)
	}
	return said.Bytes(), nil
}

// destroyContainer removes the container, even if ctx is done. Nobody needs
// its data, so it is not asked to save them first.
func destroyContainer(ctx context.Context, c *postgres.PostgresContainer) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if c == nil {
		return nil
	}
	return testcontainers.TerminateContainer(c, testcontainers.StopContext(ctx), testcontainers.StopTimeout(0))
}
