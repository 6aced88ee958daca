package devpg

import (
	"strings"
	"testing"
)

func TestStart_url(t *testing.T) {
	forget(t)
	host := startOn(t, Local)
	t.Setenv(EnvServer, "")
	for _, name := range []string{EnvTestURL, EnvURL} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, host.URL)
			given, err := Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if given.URL != host.URL || given.Rung != URL || !strings.Contains(given.How, name) {
				t.Errorf("got %+v", given)
			}
			if _, err := given.Log(t.Context()); err == nil || !strings.Contains(err.Error(), "private server") {
				t.Errorf("Log: %v", err)
			}
			if err := given.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			setting(t, host, "port") // It still answers.
		})
	}

	t.Run("the tests' own URL comes first", func(t *testing.T) {
		t.Setenv(EnvTestURL, host.URL)
		t.Setenv(EnvURL, "postgres://127.0.0.1:1/nobody")
		if given, err := Start(t.Context()); err != nil || given.URL != host.URL {
			t.Errorf("got %v, %v", given, err)
		}
	})

	t.Run("one that does not answer ends the climb", func(t *testing.T) {
		t.Setenv(EnvTestURL, "postgres://me:secret@127.0.0.1:1/nobody")
		_, err := Start(t.Context())
		if err == nil || !strings.Contains(err.Error(), EnvTestURL) {
			t.Fatalf("error %v does not name the variable", err)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error tells the password: %v", err)
		}
	})
}
