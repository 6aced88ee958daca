package devpg

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
)

// TestStart_container starts a container if the environment forces that rung,
// as CI does. Otherwise there may be no engine, and then Start has to say so.
func TestStart_container(t *testing.T) {
	forced := slices.Contains(strings.Split(os.Getenv(EnvServer), ","), string(Container))
	forget(t)
	// A place of its own for the folders: other tests may be starting
	// containers, too.
	t.Setenv("TMPDIR", t.TempDir())
	if !forced {
		t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "none"))
		t.Setenv(EnvServer, string(Container))
		_, err := Start(t.Context())
		if err == nil || !strings.Contains(err.Error(), "container: no Docker engine answers") {
			t.Errorf("error %v does not say that there is no engine", err)
		}
		return
	}

	server := startOn(t, Container, Setting("log_statement", "all"))
	if !strings.Contains(server.How, os.Getenv(EnvImage)) {
		t.Errorf("How %q does not name the image", server.How)
	}
	if got := setting(t, server, "fsync"); got != "off" {
		t.Errorf("fsync = %s", got)
	}
	said, err := server.Log(t.Context())
	if err != nil || !strings.Contains(string(said), "current_setting") {
		t.Errorf("the log lacks the statement: %v\n%s", err, said)
	}
	e, err := findEngine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	ids := ownContainers(t)
	if len(ids) != 1 {
		t.Fatalf("folders for the containers %v, want one", ids)
	}
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.api.ContainerInspect(t.Context(), ids[0], client.ContainerInspectOptions{}); err == nil {
		t.Error("the container is still there")
	}
	if left := ownContainers(t); len(left) > 0 {
		t.Errorf("folders are left for %v", left)
	}

	t.Run("a refused setting is reported", func(t *testing.T) {
		_, err := Start(t.Context(), Setting("no_such_setting", "1"))
		if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
			t.Errorf("error %v does not repeat what the server said", err)
		}
		if left := ownContainers(t); len(left) > 0 {
			t.Errorf("folders are left for %v", left)
		}
	})

	t.Run("what a killed process left is removed", func(t *testing.T) {
		server, kill := startElsewhere(t)
		setting(t, server, "port")
		ids := ownContainers(t)
		if len(ids) != 1 {
			t.Fatalf("folders for the containers %v, want one", ids)
		}
		left := containerFolder(t, ids[0])
		makeOld(t, left)
		e.removeAbandoned(t.Context())
		setting(t, server, "port") // Its owner lives, so it still answers.
		kill()
		e.removeAbandoned(t.Context())
		if _, err := e.api.ContainerInspect(t.Context(), ids[0], client.ContainerInspectOptions{}); err == nil {
			t.Error("the container is still there")
		}
		if ids := ownContainers(t); len(ids) > 0 {
			t.Errorf("folders are left for %v", ids)
		}
	})
}

// ownContainers are the containers that folders stand for.
func ownContainers(t *testing.T) []string {
	t.Helper()
	var ids []string
	for _, path := range folders(t) {
		if id := (&folder{path: path}).containerID(); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

func containerFolder(t *testing.T, id string) *folder {
	t.Helper()
	for _, path := range folders(t) {
		if f := (&folder{path: path}); f.containerID() == id {
			return f
		}
	}
	t.Fatalf("no folder for container %s", id)
	return nil
}

// fakeEngine listens on a socket like a Docker engine. A nil handler accepts
// connections and never answers.
func fakeEngine(t *testing.T, handler http.Handler) {
	t.Helper()
	// Not the test's own folder: its name would make the path too long.
	dir, err := os.MkdirTemp("", "onceq-engine-*")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(dir, "s"))
	t.Setenv("DOCKER_API_VERSION", "")
	t.Cleanup(func() { os.RemoveAll(dir) })
	if handler == nil {
		t.Cleanup(func() { listener.Close() })
		return
	}
	server := &http.Server{Handler: handler}
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Close()
		<-served
	})
}

func TestStartContainer_engineHangs(t *testing.T) {
	fakeEngine(t, nil)
	start := time.Now()
	_, err := startContainer(t.Context(), newConfig(nil))
	if err == nil || !strings.Contains(err.Error(), "no Docker engine answers") {
		t.Errorf("error %v", err)
	}
	if took := time.Since(start); took > 3*probeLimit {
		t.Errorf("took %v to give up", took)
	}
}

func TestStartContainer_noImage(t *testing.T) {
	var pulls int
	mux := http.NewServeMux()
	mux.HandleFunc("/_ping", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", "1.41") })
	mux.HandleFunc("POST /v1.41/images/create", func(w http.ResponseWriter, r *http.Request) {
		pulls++
		http.Error(w, `{"message":"the registry is far away"}`, http.StatusInternalServerError)
	})
	fakeEngine(t, mux)
	t.Setenv(EnvImage, "nowhere/postgres:99")
	_, err := startContainer(t.Context(), newConfig(nil))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"nowhere/postgres:99", "the registry is far away", EnvImage} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	if pulls != 1 {
		t.Errorf("asked the registry %d times", pulls)
	}
}

func TestUsualEngines(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_RUNTIME_DIR", "")
	// A plain file is no engine.
	if err := os.MkdirAll(filepath.Join(home, ".docker/run"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".docker/run/docker.sock"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "onceq-engine-*")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "unix", filepath.Join(dir, "docker.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	t.Setenv("XDG_RUNTIME_DIR", dir)
	hosts := usualEngines()
	if !slices.Contains(hosts, "unix://"+filepath.Join(dir, "docker.sock")) {
		t.Errorf("the rootless engine is not among %v", hosts)
	}
	if slices.ContainsFunc(hosts, func(host string) bool { return strings.HasPrefix(host, "unix://"+home) }) {
		t.Errorf("a plain file is taken for an engine: %v", hosts)
	}
}
