package workertest_test

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/internal/pgtest"
)

// link is the way to PostgreSQL, which a test can cut or hold up.
type link struct {
	listener net.Listener
	to       string

	mu     sync.Mutex
	change *sync.Cond
	cut    bool              // connections are ended and refused
	held   bool              // nothing gets through, in either direction
	silent map[net.Conn]bool // what comes from these is lost
	conns  map[net.Conn]bool
	all    sync.WaitGroup
}

// linked opens a pool on pool's database through a link.
func linked(t testing.TB, pool *pgxpool.Pool) (*pgxpool.Pool, *link) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := pool.Config().ConnConfig
	l := &link{listener: listener, to: net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port))), conns: map[net.Conn]bool{}, silent: map[net.Conn]bool{}}
	l.change = sync.NewCond(&l.mu)
	l.all.Go(l.accept)
	t.Cleanup(l.close)
	other := pgtest.Reconnect(t, pool, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.Host = "127.0.0.1"
		cfg.ConnConfig.Port = uint16(listener.Addr().(*net.TCPAddr).Port)
		cfg.ConnConfig.Fallbacks = nil
	})
	// Before any clean-up, so that workers and pools can close in peace.
	context.AfterFunc(t.Context(), l.restore)
	return other, l
}

func (l *link) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", l.to)
		if err != nil {
			near.Close()
			continue
		}
		l.mu.Lock()
		if l.cut {
			near.Close()
			far.Close()
		} else {
			l.conns[near], l.conns[far] = true, true
			l.all.Go(func() { l.carry(near, far) })
			l.all.Go(func() { l.carry(far, near) })
		}
		l.mu.Unlock()
	}
}

// carry copies one direction and ends both when it ends.
func (l *link) carry(to, from net.Conn) {
	defer func() {
		to.Close()
		from.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, to)
		delete(l.conns, from)
		delete(l.silent, from)
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		l.mu.Lock()
		for l.held {
			l.change.Wait()
		}
		if l.silent[from] {
			n = 0
		}
		l.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// sever ends all connections and refuses new ones.
func (l *link) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for conn := range l.conns {
		conn.Close()
	}
}

// hold lets nothing through, but keeps the connections and takes new ones.
func (l *link) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = true
}

// silence takes the life out of the connections that are there, for good, as a
// firewall does that forgets them. New ones work.
func (l *link) silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		l.silent[conn] = true
	}
}

// restore lets everything through again.
func (l *link) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.held = false, false
	l.change.Broadcast()
}

func (l *link) close() {
	l.listener.Close()
	l.restore()
	l.sever()
	l.all.Wait()
}
