package devpg

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// programs are PostgreSQL's server programs in one folder.
type programs struct {
	bin     string // the folder
	version string // such as 15.18
	major   int
	minor   int
}

func (p programs) path(name string) string { return filepath.Join(p.bin, name) }

// places are where packages put the programs when they do not put them into
// PATH.
var places = []string{
	"/usr/lib/postgresql/*/bin",                      // Debian, Ubuntu
	"/usr/pgsql-*/bin",                               // the makers' packages for Fedora, RHEL
	"/usr/lib64/postgresql-*/bin",                    // Gentoo
	"/usr/libexec/postgresql*",                       // Alpine
	"/opt/homebrew/opt/postgresql*/bin",              // Homebrew on Apple's processors
	"/usr/local/opt/postgresql*/bin",                 // Homebrew on Intel's
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin", // Homebrew on Linux
	"/opt/local/lib/postgresql*/bin",                 // MacPorts
	"/Applications/Postgres.app/Contents/Versions/*/bin",
	`C:\Program Files\PostgreSQL\*\bin`,
}

// findPrograms returns the usable programs, those in PATH first and then the
// newest first, and why others that were found are of no use.
func findPrograms(ctx context.Context, places []string) (found []programs, unfit []error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		// PATH often holds links alone; initdb lies where they lead.
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		found, unfit = inspectAll(ctx, []string{filepath.Dir(path)})
	}
	var bins []string
	for _, place := range places {
		more, _ := filepath.Glob(place) // The patterns above are well-formed.
		bins = append(bins, more...)
	}
	bins = slices.DeleteFunc(bins, func(bin string) bool { return len(found) > 0 && bin == found[0].bin })
	packaged, useless := inspectAll(ctx, bins)
	slices.SortStableFunc(packaged, func(a, b programs) int {
		return slices.Compare([]int{b.major, b.minor}, []int{a.major, a.minor})
	})
	return append(found, packaged...), append(unfit, useless...)
}

func inspectAll(ctx context.Context, bins []string) (found []programs, unfit []error) {
	for _, bin := range bins {
		p, err := inspect(ctx, bin)
		if err != nil {
			unfit = append(unfit, err)
			continue
		}
		found = append(found, p)
	}
	return found, unfit
}

var versionLine = regexp.MustCompile(`\(PostgreSQL\) ((\d+)(?:\.(\d+))?\w*)`)

// inspect checks that the folder has both programs that a server needs, and
// asks one its version.
func inspect(ctx context.Context, bin string) (programs, error) {
	p := programs{bin: bin}
	if _, err := exec.LookPath(p.path("initdb")); err != nil {
		return p, fmt.Errorf("%s has no initdb", bin)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := run(exec.CommandContext(ctx, p.path("postgres"), "--version"))
	if err != nil {
		return p, fmt.Errorf("%s --version: %w", p.path("postgres"), err)
	}
	match := versionLine.FindSubmatch(out)
	if match == nil {
		return p, fmt.Errorf("%s --version says %q", p.path("postgres"), out)
	}
	p.version = string(match[1])
	p.major, _ = strconv.Atoi(string(match[2]))
	p.minor, _ = strconv.Atoi(string(match[3])) // none in a version to come
	if p.major < oldest {
		return p, fmt.Errorf("%s is PostgreSQL %s; %d or newer is needed", bin, p.version, oldest)
	}
	return p, nil
}
