package pgtest

import (
	"sync"
	"testing"

	"github.com/onceq/onceq/internal/devpg"
)

// TestServer_shared plays several test binaries on one server, as under `make
// test`. It changes the environment, so it cannot run in parallel.
func TestServer_shared(t *testing.T) {
	host := Quiet(t)
	t.Setenv(devpg.EnvServer, string(devpg.URL))
	t.Setenv(devpg.EnvTestURL, host.AdminURL)
	var binaries [3]*Server
	for i := range binaries {
		s, err := open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		binaries[i] = s
	}

	var templates [len(binaries)]string
	var wg sync.WaitGroup
	for i, s := range binaries {
		wg.Go(func() {
			var err error
			if templates[i], err = s.template(); err != nil {
				t.Errorf("binary %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	template := templates[0]
	for i, got := range templates {
		if got != template {
			t.Errorf("binary %d has template %s, not %s", i, got, template)
		}
	}

	running := newRecorder(t)
	defer running.end()
	live := binaries[0].NewEmpty(running).Config().ConnConfig.Database
	const dead, kept = "onceq_test_gone_1", "onceq_kept_gone_1"
	const other = "onceq_tpl_of_old_migrations"
	const foreign = "onceq"
	for _, name := range []string{dead, kept, other, foreign} {
		if err := host.copyDatabase(t.Context(), name, emptyTemplate); err != nil {
			t.Fatal(err)
		}
	}

	check := func(when string, want map[string]bool) {
		t.Helper()
		for name, want := range want {
			if got := existsOn(t, host, name); got != want {
				t.Errorf("%s: database %s is there: %v, want %v", when, name, got, want)
			}
		}
	}
	for i, s := range binaries[1:] {
		if err := s.close(); err != nil {
			t.Fatalf("binary %d: %v", i+1, err)
		}
	}
	check("while one binary still runs", map[string]bool{
		template: true, live: true, dead: false, other: false, kept: true, foreign: true,
	})
	if err := binaries[0].close(); err != nil {
		t.Fatal(err)
	}
	check("after the last binary", map[string]bool{template: false, live: false, kept: true, foreign: true})
}
