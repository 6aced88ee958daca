package main

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

// netDelay is what the delayed settings add to each round trip. Timers make it a
// little longer; the report states what it came to.
const netDelay = time.Millisecond

// wire counts round trips, and makes them longer where a network is played.
type wire struct {
	trips atomic.Int64
	delay time.Duration
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &wireConn{Conn: conn, wire: w}, nil
}

// wireConn is one connection of a wire. A round trip is an answer that comes after
// something was written; pgx may be reading already when it writes.
type wireConn struct {
	net.Conn
	wire  *wire
	wrote atomic.Bool
}

func (c *wireConn) Write(b []byte) (int, error) {
	c.wrote.Store(true)
	return c.Conn.Write(b)
}

func (c *wireConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.wrote.Swap(false) {
		c.wire.trips.Add(1)
		if c.wire.delay > 0 {
			time.Sleep(c.wire.delay)
		}
	}
	return n, err
}
