package devpg

import (
	"context"
	"errors"
	"fmt"
)

// startLocal runs the newest PostgreSQL that is installed on this machine.
func startLocal(ctx context.Context, cfg *config) (*Server, error) {
	found, unfit := findPrograms(ctx, places)
	if len(found) == 0 {
		none := errors.New("no postgres and initdb in PATH or where packages put them")
		return nil, errors.Join(append([]error{none}, unfit...)...)
	}
	var failed []error
	for _, p := range found {
		server, err := startCluster(ctx, cfg, p)
		if err == nil {
			server.How = fmt.Sprintf("a throwaway PostgreSQL %s (%s)", p.version, p.bin)
			return server, nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", p.bin, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(failed...)
}
