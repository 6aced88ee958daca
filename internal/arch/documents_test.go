package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// Every block of Go in README stands, line for line, in an example that runs.
func TestReadmeShowsWhatRuns(t *testing.T) {
	t.Parallel()
	examples := unindent(read(t, filepath.Join(root, "pkg/queue/example_test.go")))
	blocks := goBlock.FindAllStringSubmatch(read(t, filepath.Join(root, "README.md")), -1)
	if len(blocks) < 3 {
		t.Fatalf("README has %d blocks of Go, want its quickstart, a transaction and a worker", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(examples, unindent(block[1])) {
			t.Errorf("this block of README is in no example:\n%s", block[1])
		}
	}
}

// unindent drops the white space at the start of each line.
func unindent(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimLeft(line, "\t ")
	}
	return strings.Join(lines, "\n")
}

var link = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)

// Links between documents lead somewhere.
func TestLinks(t *testing.T) {
	t.Parallel()
	for _, file := range files(t, "*.md") {
		for _, m := range link.FindAllStringSubmatch(read(t, file), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", file, m[1])
			}
		}
	}
}

// A target that README or the Makefile's help names must exist.
func TestReadmeCommandsExist(t *testing.T) {
	t.Parallel()
	makefile := read(t, filepath.Join(root, "Makefile"))
	for _, m := range regexp.MustCompile("make ([a-z-]+)").FindAllStringSubmatch(read(t, filepath.Join(root, "README.md")), -1) {
		if !strings.Contains(makefile, "\n"+m[1]+":") {
			t.Errorf("README says make %s, which the Makefile does not have", m[1])
		}
	}
}

// Each direct dependency was chosen on a page of docs/decisions, or is one that
// the project was asked to stand on.
func TestDependenciesHaveADecision(t *testing.T) {
	t.Parallel()
	given := map[string]bool{
		"github.com/jackc/pgx/v5": true, "golang.org/x/crypto": true, "github.com/pressly/goose/v3": true,
		"github.com/testcontainers/testcontainers-go": true, "github.com/testcontainers/testcontainers-go/modules/postgres": true,
	}
	pages := ""
	for _, file := range files(t, "docs/decisions/*.md") {
		pages += read(t, file)
	}
	direct := regexp.MustCompile(`(?m)^\s*(?:require )?(\S+\.\S+/\S+) v\S+$`)
	for _, m := range direct.FindAllStringSubmatch(read(t, filepath.Join(root, "go.mod")), -1) {
		if !given[m[1]] && !strings.Contains(pages, m[1]) {
			t.Errorf("no page of docs/decisions names %s", m[1])
		}
	}
}

// A page of docs/decisions has a number of its own, in its name and its title.
func TestDecisionsAreNumbered(t *testing.T) {
	t.Parallel()
	first := map[int]string{}
	for _, file := range files(t, "docs/decisions/*.md") {
		var named, titled int
		_, _ = fmt.Sscanf(filepath.Base(file), "%d-", &named)
		_, _ = fmt.Sscanf(read(t, file), "# %d. ", &titled)
		if named == 0 || named != titled {
			t.Errorf("%s is number %d by its name and %d by its title", file, named, titled)
		}
		if other := first[named]; other != "" {
			t.Errorf("%s has the number of %s", file, other)
		}
		first[named] = file
	}
}
