package devpg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

// setting asks a server for one of its settings.
func setting(t *testing.T, s *Server, name string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var value string
	if err := conn.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// forget empties the environment that steers the ladder.
func forget(t *testing.T) {
	t.Helper()
	for _, name := range []string{EnvServer, EnvTestURL, EnvURL} {
		t.Setenv(name, "")
	}
}

func TestClimb(t *testing.T) {
	ladder := []Rung{URL, Container, Local, Download}
	holds := func(context.Context, *config) (*Server, error) { return &Server{}, nil }
	breaks := func(context.Context, *config) (*Server, error) { return nil, errors.New("rotten") }
	final := func(context.Context, *config) (*Server, error) { return nil, fmt.Errorf("gone: %w", errFinal) }
	for _, test := range []struct {
		name     string
		why      string
		starters []starter
		want     Rung
		passed   int
		errs     []string
	}{
		{name: "the first that holds", starters: []starter{holds, holds, holds, holds}, want: URL},
		{name: "broken ones are passed over and remembered", starters: []starter{breaks, breaks, holds, holds}, want: Local, passed: 2},
		{name: "none holds", why: "the error must tell what each said and what to do", starters: []starter{breaks, breaks, breaks, breaks},
			errs: []string{"url: rotten", "container: rotten", "local: rotten", "download: rotten", "apt-get install postgresql", EnvTestURL}},
		{name: "a server that was named and is gone", why: "another one would not be what was asked for",
			starters: []starter{final, holds, holds, holds}, errs: []string{"url: gone"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			starters := map[Rung]starter{}
			for i, rung := range ladder {
				starters[rung] = test.starters[i]
			}
			server, err := climb(t.Context(), newConfig(nil), ladder, starters)
			if test.errs != nil {
				for _, want := range test.errs {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("error %v does not say %q", err, want)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if server.Rung != test.want || len(server.Passed) != test.passed {
				t.Errorf("rung %s after %v, want %s after %d", server.Rung, server.Passed, test.want, test.passed)
			}
		})
	}

	t.Run("an ended context ends the climb", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := climb(ctx, newConfig(nil), ladder, map[Rung]starter{URL: breaks})
		if err == nil || strings.Contains(err.Error(), "container") {
			t.Errorf("went on to another rung: %v", err)
		}
	})
}

func TestConfig_ladder(t *testing.T) {
	for _, test := range []struct {
		names   string
		private bool
		want    []Rung
	}{
		{"", false, []Rung{URL, Container, Local, Download}},
		{"", true, []Rung{Container, Local, Download}},
		{"local", false, []Rung{Local}},
		{"download, local", false, []Rung{Download, Local}},
		{"url,container", true, []Rung{Container}},
		{"url", false, []Rung{URL}},
		{"url", true, []Rung{Container, Local, Download}},
		{"cloud", false, nil},
		{"local,", false, nil},
	} {
		t.Run(fmt.Sprintf("%q private %v", test.names, test.private), func(t *testing.T) {
			got, err := (&config{private: test.private}).ladder(test.names)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("ladder (-want +got):\n%s", diff)
			}
			if (err != nil) != (test.want == nil) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	plain := newConfig(nil)
	if args := plain.arguments(); !slices.Contains(args, "fsync=off") {
		t.Errorf("a throwaway server syncs: %v", args)
	}
	if plain.private || newConfig([]Option{Durable()}).private {
		t.Error("a server given by URL is ruled out without need")
	}
	if args := newConfig([]Option{Durable()}).arguments(); !slices.Contains(args, "fsync=on") || !slices.Contains(args, "full_page_writes=on") {
		t.Errorf("a durable server does not sync: %v", args)
	}
	set := newConfig([]Option{Setting("wal_level", "logical")})
	if args := set.arguments(); !set.private || !slices.Contains(args, "wal_level=logical") {
		t.Errorf("a setting is not passed on, or is left to somebody else's server: %v, %v", set.private, args)
	}
	for name, option := range map[string]Option{"Private": Private(), "Quiet": Quiet()} {
		if !newConfig([]Option{option}).private {
			t.Errorf("%s may give a server that others use", name)
		}
	}
	if a, b := plain.password, newConfig(nil).password; a == b {
		t.Errorf("two servers have the same password %q", a)
	}
}
