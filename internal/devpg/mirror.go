package devpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
)

// mirror is a loopback server that fetches from a repository for
// embedded-postgres. That library can neither be interrupted nor says why a
// download failed, and goes on without a checksum if there is none; fetching
// for it adds all three.
type mirror struct {
	url    string // what to give to embedded-postgres
	target string // the repository itself
	server *http.Server
	served chan struct{}
	client *http.Client

	mu  sync.Mutex
	err error
}

// newMirror starts the server. When ctx ends, so does whatever it is fetching.
func newMirror(ctx context.Context, target string) (*mirror, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &mirror{
		url:    "http://" + listener.Addr().String(),
		target: strings.TrimSuffix(target, "/"),
		served: make(chan struct{}),
		client: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}},
	}
	m.server = &http.Server{
		Handler:     m,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go func() {
		defer close(m.served)
		_ = m.server.Serve(listener) // It returns when close says so.
	}()
	return m, nil
}

func (m *mirror) close() {
	m.server.Close()
	<-m.served
	m.client.CloseIdleConnections()
}

// failure is the first thing that went wrong, if any.
func (m *mirror) failure() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// One request a connection, or embedded-postgres's client keeps it open.
	w.Header().Set("Connection", "close")
	if err := m.relay(w, r); err != nil {
		m.mu.Lock()
		m.err = errors.Join(m.err, err)
		m.mu.Unlock()
		// A status would do for a missing archive, but a missing checksum
		// would be taken for one that matches.
		panic(http.ErrAbortHandler)
	}
}

func (m *mirror) relay(w http.ResponseWriter, r *http.Request) error {
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, m.target+r.URL.Path, nil)
	if err != nil {
		return err
	}
	response, err := m.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", request.URL, response.Status)
	}
	if response.ContentLength >= 0 {
		w.Header().Set("Content-Length", fmt.Sprint(response.ContentLength))
	}
	_, err = io.Copy(w, response.Body)
	return err
}
