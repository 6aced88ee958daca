package main

import "context"

// A place is a database of its own with a pool on it, ready for a group.
type place struct {
	server *server
	name   string
	site   *site
	wire   *wire
}

func (r *runner) open(ctx context.Context, set setting) (*place, error) {
	name, err := r.server.database(ctx)
	if err != nil {
		return nil, err
	}
	w := &wire{}
	if set.Delayed {
		w.delay = netDelay
	}
	pool, err := r.server.pool(ctx, name, set, w)
	if err != nil {
		return nil, err
	}
	return &place{r.server, name, &site{set, pool, newPayload(set.Payload)}, w}, nil
}

// empty removes all rows of all contenders.
func (p *place) empty(ctx context.Context) error {
	_, err := p.site.pool.Exec(ctx, `TRUNCATE floor.job, floor.kept, floor.queue, river_job,
		onceq.job, onceq.binding, onceq.pending, onceq.running, onceq.finished, onceq.event, onceq.checkpoint`)
	return err
}

func (p *place) close(ctx context.Context) {
	p.site.pool.Close()
	_ = p.server.drop(context.WithoutCancel(ctx), p.name) // it goes with the server at the latest
}
