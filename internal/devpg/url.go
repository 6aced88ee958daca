package devpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

// startURL takes the server that the user named. One that does not answer is
// an error for the whole ladder: to go on silently with another server would
// not be what was asked for.
func startURL(ctx context.Context, _ *config) (*Server, error) {
	for _, name := range []string{EnvTestURL, EnvURL} {
		url := os.Getenv(name)
		if url == "" {
			continue
		}
		if err := ask(ctx, url, 10*time.Second); err != nil {
			return nil, fmt.Errorf("the server of %s: %w: %w", name, err, errFinal)
		}
		return &Server{URL: url, How: "the server of " + name}, nil
	}
	return nil, fmt.Errorf("neither %s nor %s is set", EnvTestURL, EnvURL)
}

// oldest is the oldest major version of PostgreSQL that onceq supports.
const oldest = 15

// errTooOld marks a server that answers but will never do.
var errTooOld = errors.New("the server is too old")

// ask connects once and checks that the server is new enough.
func ask(ctx context.Context, url string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var version int
	var name string
	const query = "SELECT current_setting('server_version_num')::int, current_setting('server_version')"
	if err := conn.QueryRow(ctx, query).Scan(&version, &name); err != nil {
		return err
	}
	if version < oldest*10000 {
		return fmt.Errorf("%w: it is PostgreSQL %s; %d or newer is needed", errTooOld, name, oldest)
	}
	return nil
}

// awaitAnswer asks until the server answers, until it is known to be dead, or
// until ctx ends. alive returns an error once waiting has become pointless.
func awaitAnswer(ctx context.Context, url string, alive func(context.Context) error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx, url, 5*time.Second)
		if err == nil || errors.Is(err, errTooOld) {
			return err
		}
		if dead := alive(ctx); dead != nil {
			return dead
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no answer in time: %w (%w)", err, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
