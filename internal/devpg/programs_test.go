package devpg

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFindPrograms(t *testing.T) {
	root := t.TempDir()
	t.Setenv("PATH", filepath.Join(root, "path"))
	// program writes a script that stands for one of PostgreSQL's programs.
	program := func(path, version string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + "'\n"
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, version := range map[string]string{
		"lib/9.6/bin": "9.6",
		"lib/15/bin":  "15.18 (Debian 15.18-0+deb12u1)",
		"lib/17/bin":  "17.5",
		"lib/19/bin":  "19devel",
		"own":         "16.1",
	} {
		program(path+"/postgres", version)
		program(path+"/initdb", version)
	}
	program("lib/18/bin/postgres", "18.3") // without initdb
	if err := os.Mkdir(filepath.Join(root, "path"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "own/postgres"), filepath.Join(root, "path/postgres")); err != nil {
		t.Fatal(err)
	}

	found, unfit := findPrograms(t.Context(), []string{filepath.Join(root, "lib/*/bin"), filepath.Join(root, "none/*")})
	got := map[string]string{}
	var order []string
	for _, p := range found {
		dir := strings.TrimPrefix(p.bin, root+"/")
		got[dir] = p.version
		order = append(order, dir)
	}
	if diff := cmp.Diff([]string{"own", "lib/19/bin", "lib/17/bin", "lib/15/bin"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"own": "16.1", "lib/19/bin": "19devel", "lib/17/bin": "17.5", "lib/15/bin": "15.18"}, got); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	why := errors.Join(unfit...).Error()
	for _, want := range []string{"9.6; 15 or newer", "lib/18/bin has no initdb"} {
		if !strings.Contains(why, want) {
			t.Errorf("%q does not say %q", why, want)
		}
	}
}
