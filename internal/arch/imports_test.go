package arch

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/onceq/onceq"

// root is the top of the repository.
const root = "../.."

// goList runs go list at the top and returns its lines.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v", strings.Join(args, " "), err)
	}
	return strings.Fields(string(out))
}

// imports maps each package of the repository to those it imports, tests left out.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	graph := map[string][]string{}
	cmd := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		graph[words[0]] = words[1:]
	}
	return graph
}

// development holds what serves tests, benchmarks and the demo. Nothing that is
// shipped may link it.
var development = []string{"internal/devpg", "internal/pgtest", "internal/testserver"}

func TestImports(t *testing.T) {
	t.Parallel()
	for from, list := range imports(t) {
		from = strings.TrimPrefix(strings.TrimPrefix(from, module), "/")
		for _, to := range list {
			if !strings.HasPrefix(to, module) {
				continue
			}
			to = strings.TrimPrefix(to, module+"/")
			if to == "db" && from != "pkg/queue" {
				t.Errorf("%s imports db: only pkg/queue may, so that there is one way to the tables", from)
			}
			if to == "pkg/queue" && strings.HasPrefix(from, "internal/") && !isDevelopment(from) {
				t.Errorf("%s imports pkg/queue: internal packages are below it", from)
			}
			if from == "pkg/queue" && to != "db" && !strings.HasPrefix(to, "internal/") {
				t.Errorf("pkg/queue imports %s: it stands on db and on leaves of internal alone", to)
			}
			if isDevelopment(to) && !isDevelopment(from) && !strings.HasPrefix(from, "examples/demo") {
				t.Errorf("%s imports %s, which is for development only", from, to)
			}
		}
	}
}

func isDevelopment(pkg string) bool {
	return slices.ContainsFunc(development, func(d string) bool { return pkg == d || strings.HasPrefix(pkg, d+"/") })
}

// A program that imports pkg/queue alone gets these modules and no others.
func TestModulesOfAUser(t *testing.T) {
	t.Parallel()
	var got []string
	for _, m := range goList(t, "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./pkg/queue") {
		if m != module {
			got = append(got, m)
		}
	}
	slices.Sort(got)
	want := []string{
		"github.com/google/uuid",
		"github.com/jackc/pgpassfile",
		"github.com/jackc/pgservicefile",
		"github.com/jackc/pgx/v5",
		"github.com/jackc/puddle/v2",
		"golang.org/x/crypto",
		"golang.org/x/sync",
		"golang.org/x/sys",
		"golang.org/x/text",
	}
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
		t.Errorf("the modules that importing pkg/queue brings (-want +got):\n%s", diff)
	}
}

// The shipped command must not carry what starts servers and containers.
func TestModulesOfTheCommand(t *testing.T) {
	t.Parallel()
	for _, dep := range goList(t, "-deps", "./cmd/onceq") {
		if strings.Contains(dep, "testcontainers") || strings.Contains(dep, "embedded-postgres") || isDevelopment(strings.TrimPrefix(dep, module+"/")) {
			t.Errorf("cmd/onceq links %s", dep)
		}
	}
}

// files lists the repository's files of a kind, without generated and nested ones.
func files(t *testing.T, pattern string) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", pattern)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	var list []string
	for _, f := range strings.Fields(string(out)) {
		if !strings.HasPrefix(f, "db/") {
			list = append(list, filepath.Join(root, f))
		}
	}
	if len(list) == 0 {
		t.Fatalf("no file matches %s", pattern)
	}
	return list
}
