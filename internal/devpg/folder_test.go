package devpg

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAbandoned(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	create := func() *folder {
		t.Helper()
		f, err := newFolder("")
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	inUse, young, dead := create(), create(), create()
	makeOld(t, inUse)
	makeOld(t, dead)
	young.lock.Close()
	dead.lock.Close()
	if err := os.Mkdir(filepath.Join(os.TempDir(), "onceq-pg-without-lock"), 0o700); err != nil {
		t.Fatal(err)
	}

	found := map[string]*folder{}
	for _, f := range abandoned() {
		found[f.path] = f
		defer f.lock.Close()
	}
	if found[dead.path] == nil {
		t.Errorf("the folder of a dead process is not found")
	}
	if found[inUse.path] != nil || found[young.path] != nil {
		t.Errorf("a folder in use, or too young to judge, is taken for abandoned: %v", found)
	}
	if err := inUse.remove(); err != nil {
		t.Error(err)
	}
}
