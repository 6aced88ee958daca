package devpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/moby/client"
)

const (
	// probeLimit bounds the question whether an engine is there at all. One
	// that hangs must not cost a newcomer his patience.
	probeLimit = 2 * time.Second
	// pullLimit bounds the fetching of an image, about 100 MB.
	pullLimit = 3 * time.Minute
)

// engine is a Docker engine that has answered.
type engine struct {
	host string
	api  *client.Client
}

// findEngine asks the engine of DOCKER_HOST, or else those behind the usual
// sockets. It does not leave that to testcontainers, whose own search has no
// time limit and remembers its first answer for good.
func findEngine(ctx context.Context) (*engine, error) {
	hosts := []string{os.Getenv("DOCKER_HOST")}
	if hosts[0] == "" {
		hosts = usualEngines()
	}
	if len(hosts) == 0 {
		return nil, errors.New("no Docker engine: DOCKER_HOST is not set, and there is no socket in the usual places")
	}
	var silent []error
	for _, host := range hosts {
		api, err := client.New(client.FromEnv, client.WithHost(host))
		if err != nil {
			silent = append(silent, err)
			continue
		}
		if err := ping(ctx, api); err != nil {
			silent = append(silent, fmt.Errorf("%s: %w", host, err))
			api.Close()
			continue
		}
		return &engine{host: host, api: api}, nil
	}
	return nil, fmt.Errorf("no Docker engine answers: %w", errors.Join(silent...))
}

func ping(ctx context.Context, api *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	_, err := api.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	return err
}

// usualEngines are the sockets that exist on this machine of those that
// engines make: Docker's own, rootless, of Docker Desktop, and of its kin.
func usualEngines() []string {
	sockets := []string{"/var/run/docker.sock"}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		sockets = append(sockets, filepath.Join(dir, "docker.sock"))
	}
	if home, err := os.UserHomeDir(); err == nil {
		for _, path := range []string{".docker/run", ".docker/desktop", ".colima/default", ".orbstack/run", ".rd"} {
			sockets = append(sockets, filepath.Join(home, path, "docker.sock"))
		}
	}
	var hosts []string
	for _, socket := range sockets {
		if info, err := os.Stat(socket); err == nil && info.Mode().Type() == os.ModeSocket {
			hosts = append(hosts, "unix://"+socket)
		}
	}
	return hosts
}

// local says whether the engine publishes its ports on this machine.
func (e *engine) local() bool { return strings.HasPrefix(e.host, "unix://") }

func (e *engine) close() { e.api.Close() }

// need makes sure that the engine has the image. It tries the registry once;
// testcontainers would go on trying for a quarter of an hour.
func (e *engine) need(ctx context.Context, image string) error {
	if _, err := e.api.ImageInspect(ctx, image); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pullLimit)
	defer cancel()
	pull, err := e.api.ImagePull(ctx, image, client.ImagePullOptions{})
	if err == nil {
		err = pull.Wait(ctx)
		pull.Close()
	}
	if err != nil {
		return fmt.Errorf("the Docker engine has no image %s and cannot fetch it: %w (%s may name one that it has)", image, err, EnvImage)
	}
	return nil
}

// removeAbandoned removes the containers of processes that were killed before
// they could do so.
func (e *engine) removeAbandoned(ctx context.Context) {
	for _, left := range abandoned() {
		id := left.containerID()
		if id == "" {
			left.lock.Close() // a local server's folder, which the other rungs remove
			continue
		}
		_, err := e.api.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		if err == nil {
			_, err = e.api.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
			if err != nil {
				left.lock.Close()
				continue
			}
		}
		left.remove()
	}
}
