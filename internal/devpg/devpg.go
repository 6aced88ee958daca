// Package devpg finds or starts the throwaway PostgreSQL that the tests, the
// benchmarks and the demo run on. It is development code: neither the library
// nor the onceq command links it.
//
// Start goes down a ladder and takes the first rung that holds:
//
//	url        ONCEQ_TEST_DATABASE_URL, else ONCEQ_DATABASE_URL, used as it is
//	container  an image of PostgreSQL, when a Docker engine answers
//	local      the PostgreSQL programs installed on this machine
//	download   PostgreSQL fetched once into the user's cache folder
//
// ONCEQ_TEST_SERVER names the rungs that may be tried, in the order to try
// them ("container", or "local,download"); unset means the whole ladder.
package devpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// The environment that steers the ladder.
const (
	EnvServer     = "ONCEQ_TEST_SERVER"              // the rungs to try
	EnvTestURL    = "ONCEQ_TEST_DATABASE_URL"        // a server for the tests
	EnvURL        = "ONCEQ_DATABASE_URL"             // the server of the onceq command
	EnvImage      = "ONCEQ_TEST_IMAGE"               // the image of the container rung
	EnvRepository = "ONCEQ_TEST_POSTGRES_REPOSITORY" // where the download rung fetches from
)

// Server is a running PostgreSQL.
type Server struct {
	// URL connects as a superuser to the database postgres (or to whatever
	// the user's own URL says).
	URL string
	// Rung is the rung of the ladder that gave the server.
	Rung Rung
	// How says in one phrase where the server comes from.
	How string
	// Passed holds why each rung above this one gave nothing.
	Passed []error

	log     func(context.Context) ([]byte, error)
	destroy func(context.Context) error
	stop    sync.Once
	stopErr error
}

// Rung names one way to a server.
type Rung string

// The ladder, from the top.
const (
	URL       Rung = "url"
	Container Rung = "container"
	Local     Rung = "local"
	Download  Rung = "download"
)

// starter is one rung's code. An error says why the rung gives no server;
// errFinal in it forbids going further down.
type starter func(context.Context, *config) (*Server, error)

// errFinal marks an error after which no other rung may be tried: the user
// named a server, and another one would not be what was asked for.
var errFinal = errors.New("no other server is tried, since this one was named")

var starters = map[Rung]starter{
	URL:       startURL,
	Container: startContainer,
	Local:     startLocal,
	Download:  startDownload,
}

// Start returns a server from the first rung that can give one. The caller
// stops it; ctx bounds the start only, not the server's life.
func Start(ctx context.Context, opts ...Option) (*Server, error) {
	cfg := newConfig(opts)
	ladder, err := cfg.ladder(os.Getenv(EnvServer))
	if err != nil {
		return nil, err
	}
	return climb(ctx, cfg, ladder, starters)
}

func climb(ctx context.Context, cfg *config, ladder []Rung, starters map[Rung]starter) (*Server, error) {
	var passed []error
	for _, rung := range ladder {
		server, err := starters[rung](ctx, cfg)
		if err == nil {
			server.Rung, server.Passed = rung, passed
			return server, nil
		}
		if errors.Is(err, errFinal) || ctx.Err() != nil {
			return nil, fmt.Errorf("devpg: %s: %w", rung, err)
		}
		passed = append(passed, fmt.Errorf("%s: %w", rung, err))
	}
	return nil, fmt.Errorf("devpg: no PostgreSQL to work with:\n%w\n%s", errors.Join(passed...), advice(ladder))
}

// advice tells a newcomer what to install, and somebody who narrowed the
// ladder that this is why nothing was found.
func advice(ladder []Rung) string {
	var b strings.Builder
	b.WriteString("Do one of these: install PostgreSQL 15 or newer (Debian: apt-get install postgresql; macOS: brew install postgresql), ")
	b.WriteString("start a Docker engine, or set " + EnvTestURL + " to a superuser's connection URL.")
	if forced := os.Getenv(EnvServer); forced != "" {
		fmt.Fprintf(&b, " %s=%s allows only: %v.", EnvServer, forced, ladder)
	}
	return b.String()
}

// ladder reads the value of ONCEQ_TEST_SERVER. A server of the caller's own
// cannot come from a URL; if that is the only rung named, the URL was meant
// for the shared server, and the other rungs may give the private one.
func (c *config) ladder(names string) ([]Rung, error) {
	all := []Rung{URL, Container, Local, Download}
	ladder := all
	if names != "" {
		ladder = nil
		for name := range strings.SplitSeq(names, ",") {
			rung := Rung(strings.TrimSpace(name))
			if !slices.Contains(all, rung) {
				return nil, fmt.Errorf("devpg: %s=%s: %q is no rung; use one or more of %v, separated by commas", EnvServer, names, rung, all)
			}
			ladder = append(ladder, rung)
		}
	}
	if !c.private {
		return ladder, nil
	}
	private := slices.DeleteFunc(slices.Clone(ladder), func(r Rung) bool { return r == URL })
	if len(private) == 0 {
		private = all[1:]
	}
	return private, nil
}

// Stop ends the server and removes all that Start made. A server given by URL
// is left alone. When ctx is done the end is only made quicker, never left
// out. Further calls return what the first returned.
func (s *Server) Stop(ctx context.Context) error {
	s.stop.Do(func() {
		if s.destroy != nil {
			s.stopErr = s.destroy(ctx)
		}
	})
	return s.stopErr
}

// Log returns what the server has written to its log so far.
func (s *Server) Log(ctx context.Context) ([]byte, error) {
	if s.log == nil {
		return nil, fmt.Errorf("devpg: the log of %s cannot be read from here; ask for a private server", s.How)
	}
	return s.log(ctx)
}
