package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A contender is one way to do a thing: a floor, ours, or a peer's.
type contender struct {
	name string
	// rows is what one call handles; 0 is 1.
	rows int
	// open readies the contender on a site, outside of what is measured.
	open func(ctx context.Context, s *site) (call, error)
}

// A call does the thing once. i is another number for each call, also over
// goroutines and rounds.
type call func(ctx context.Context, i int64) error

func (c contender) perCall() float64 { return float64(max(c.rows, 1)) }

// A group is a floor and those that are measured against it in one run.
type group struct {
	name   string
	floor  contender
	rivals []contender
	// beside maps contenders of ours to the peer's that does the same thing; the
	// two stand next to each other in rivals.
	beside map[string]string
}

// A setting is how a group is run.
type setting struct {
	Conns   int    `json:"conns"`
	Payload int    `json:"payload_bytes"`
	Durable bool   `json:"durable,omitempty"` // synchronous_commit
	Delayed bool   `json:"delayed,omitempty"` // a network of 1 ms
	Mode    string `json:"mode,omitempty"`    // pgx's way to send statements
}

// A site is where the contenders of a group meet: one database, and a pool each
// of the same size.
type site struct {
	setting
	pool    *pgxpool.Pool
	payload payload
}

// payload is what every job carries.
type payload struct {
	Order int64  `json:"order"`
	Note  string `json:"note"`
}

// newPayload makes one of about size bytes of JSON that doesn't compress to
// nothing.
func newPayload(size int) payload {
	note := make([]byte, max(size-24, 0))
	state := uint32(1)
	for i := range note {
		state = state*1664525 + 1013904223
		note[i] = "abcdefghijklmnopqrstuvwxyz012345"[state>>27]
	}
	return payload{Note: string(note)}
}

// with is the payload of call i.
func (p payload) with(i int64) payload {
	p.Order = i
	return p
}
