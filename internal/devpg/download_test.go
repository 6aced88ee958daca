package devpg

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// repository serves one archive of PostgreSQL's programs at every address, and
// counts how often it is fetched.
type repository struct {
	archive  []byte
	checksum string // "" for none
	fetched  atomic.Int32
}

func (r *repository) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch path := req.URL.Path; {
	case strings.HasSuffix(path, ".jar") && r.archive != nil:
		r.fetched.Add(1)
		w.Write(r.archive)
	case strings.HasSuffix(path, ".jar.sha256") && r.checksum != "":
		w.Write([]byte(r.checksum))
	default:
		http.NotFound(w, req)
	}
}

// serve starts the repository and steers the download rung, and its cache, to
// the test's own.
func (r *repository) serve(t *testing.T) (cache string) {
	t.Helper()
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	forget(t)
	// Root's servers run as somebody else, to whom a test's own folder is closed.
	temporary, err := os.MkdirTemp("", "onceq-download-*")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(temporary, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", temporary)
	t.Cleanup(func() {
		if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
			t.Errorf("left among the temporary files: %v, %v", left, err)
		}
		os.RemoveAll(temporary)
	})
	home := t.TempDir()
	t.Setenv("HOME", home) // the cache folder follows from these
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "cache"))
	t.Setenv(EnvServer, string(Download))
	t.Setenv(EnvRepository, server.URL)
	cache, err = os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cache, "onceq")
}

// installed are the programs of the newest PostgreSQL on this machine and their
// libraries. They look for their other files where they were installed.
func installed(t *testing.T) map[string][]byte {
	t.Helper()
	found, unfit := findPrograms(t.Context(), places)
	if len(found) == 0 {
		t.Fatalf("this test packs the installed PostgreSQL, and there is none: %v", errors.Join(unfit...))
	}
	home := filepath.Dir(found[0].bin)
	paths, err := filepath.Glob(filepath.Join(home, "lib", "*.so"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"initdb", "pg_ctl", "postgres"} {
		paths = append(paths, found[0].path(name))
	}
	files := map[string][]byte{}
	for _, path := range paths {
		name, err := filepath.Rel(home, path)
		if err != nil {
			t.Fatal(err)
		}
		if files[name], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// pack makes an archive in the layout that embedded-postgres expects.
func pack(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var inner, outer bytes.Buffer
	tarball, jar := tar.NewWriter(&inner), zip.NewWriter(&outer)
	for name, content := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(content))}
		if err := tarball.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := tarball.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := tarball.Close(); err != nil {
		t.Fatal(err)
	}
	// Stored as it is: to compress it takes the race detector a minute.
	entry, err := jar.CreateHeader(&zip.FileHeader{Name: "postgres-some-system.txz", Method: zip.Store})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := entry.Write(storeXZ(inner.Bytes())); err != nil {
		t.Fatal(err)
	}
	if err := jar.Close(); err != nil {
		t.Fatal(err)
	}
	return outer.Bytes()
}

func checksum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func TestStart_download(t *testing.T) {
	archive := pack(t, installed(t))
	r := &repository{archive: archive, checksum: checksum(archive)}
	cache := r.serve(t)
	for range 2 {
		server := startOn(t, Download)
		if server.Rung != Download || !strings.Contains(server.How, cache) {
			t.Errorf("rung %s, how %q", server.Rung, server.How)
		}
		if got := setting(t, server, "listen_addresses"); got != "127.0.0.1" {
			t.Errorf("listen_addresses = %s", got)
		}
	}
	if got := r.fetched.Load(); got != 1 {
		t.Errorf("fetched %d times, want once", got)
	}
	entries, err := os.ReadDir(cache)
	if err != nil || len(entries) != 1 {
		t.Errorf("the cache holds %v, %v; want the programs alone", entries, err)
	}
}

func TestStart_downloadFails(t *testing.T) {
	archive := pack(t, map[string][]byte{"bin/psql": []byte("no server program")})
	for _, test := range []struct {
		name string
		repo *repository
		want string
	}{
		{"no such version", &repository{}, "404"},
		{"no checksum", &repository{archive: archive}, ".sha256: 404"},
		{"another checksum", &repository{archive: archive, checksum: checksum(nil)}, "checksums do not match"},
		{"no server in it", &repository{archive: archive, checksum: checksum(archive)}, "no such file"},
		{"not an archive", &repository{archive: []byte("sorry"), checksum: checksum([]byte("sorry"))}, "zip"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cache := test.repo.serve(t)
			_, err := Start(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v does not say %q", err, test.want)
			}
			if err == nil || !strings.Contains(err.Error(), os.Getenv(EnvRepository)) {
				t.Errorf("error %v does not name the repository", err)
			}
			entries, err := os.ReadDir(cache)
			if err != nil || len(entries) != 0 {
				t.Errorf("the cache holds %v, %v; want nothing", entries, err)
			}
		})
	}
}

func TestStart_downloadHangs(t *testing.T) {
	r := &repository{}
	cache := r.serve(t)
	hung := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }))
	defer hung.Close()
	t.Setenv(EnvRepository, hung.URL)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v to give up", took)
	}
	if entries, err := os.ReadDir(cache); len(entries) != 0 || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cache holds %v, %v; want nothing", entries, err)
	}
}

func TestDefaultRepository(t *testing.T) {
	at, err := url.Parse(defaultRepository())
	if err != nil || at.Scheme != "https" || at.Host == "" {
		t.Errorf("the default repository is %q, %v", defaultRepository(), err)
	}
}
