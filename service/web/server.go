// SPDX-License-Identifier: Apache-2.0

// Package web serves the page that shows what the daemon knows: the network as a graph, each object, and how Raven
// stands. It must never change anything, show a secret, or hold up the daemon for a page that is slow.
package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/service/config"
)

const (
	readTimeout  = 10 * time.Second
	writeTimeout = time.Minute // a stream of changes sets its own
	maxHeader    = 64 << 10
)

// Server is a service that serves the page.
type Server struct {
	config   Config
	token    string
	feed     *feed
	server   *http.Server
	address  net.Addr
	serving  sync.WaitGroup
	cancel   context.CancelFunc
	stopping chan struct{} // closed when streams are to end
	stopped  chan struct{} // closed when serving has ended
	once     sync.Once
	ended    sync.Once

	mu  sync.Mutex // guards err
	err error
}

// New returns a server that does not listen yet.
func New(c Config) *Server {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return &Server{
		config: c, feed: newFeed(c.Source, c.Clock), stopping: make(chan struct{}), stopped: make(chan struct{}),
	}
}

// Start listens and serves, unless the page is not enabled. A value that does not do is a *config.Error naming the
// option.
func (s *Server) Start(ctx context.Context) error {
	if !s.config.Enabled {
		return nil
	}
	var err error
	if s.token, err = s.config.token(); err != nil {
		return err
	}
	address := net.JoinHostPort(s.config.Host, strconv.Itoa(s.config.Port))
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return refused(address, err)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.address, s.cancel = listener.Addr(), cancel
	s.server = &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: writeTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelWarn),
	}
	s.serving.Go(func() { s.feed.run(running) })
	s.serving.Go(func() {
		if err := s.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.mu.Lock()
			s.err = fmt.Errorf("serving on %s: %w", listener.Addr(), err)
			s.mu.Unlock()
			s.end()
		}
	})
	s.config.Logger.Info("serving the web page", "address", "http://"+s.address.String()+"/")
	return nil
}

func refused(address string, err error) error {
	problem := &config.Error{Group: group, Option: "port", Message: "listening on " + address + ": " + err.Error()}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		problem.Message = address + " is in use by another process; stop that or set another port"
	case errors.Is(err, syscall.EACCES):
		problem.Message = "not allowed to listen on " + address + "; set a port above 1023"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		problem.Option, problem.Message = "host", address+" is no address of this machine"
	}
	return problem
}

// Address returns where the page is served, as host:port; valid after Start, "" where it is not enabled.
func (s *Server) Address() string {
	if s.address == nil {
		return ""
	}
	return s.address.String()
}

// Stop ends the streams, then serving; graceful lets other requests in flight finish as long as ctx lasts.
func (s *Server) Stop(ctx context.Context, graceful bool) error {
	defer s.end()
	if s.server == nil {
		return nil
	}
	s.once.Do(func() { close(s.stopping) })
	var err error
	if !graceful {
		err = s.server.Close()
	} else if err = s.server.Shutdown(ctx); err != nil {
		err = errors.Join(err, s.server.Close())
	}
	s.cancel()
	s.serving.Wait()
	if err != nil {
		return fmt.Errorf("stopping the web page: %w", err)
	}
	return nil
}

func (s *Server) end() { s.ended.Do(func() { close(s.stopped) }) }

// Wait returns when serving has ended: nil after Stop.
func (s *Server) Wait() error {
	<-s.stopped
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Reset does nothing: the address is not changed while running.
func (s *Server) Reset(context.Context) error { return nil }
