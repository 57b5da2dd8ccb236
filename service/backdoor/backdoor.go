// SPDX-License-Identifier: Apache-2.0

// Package backdoor lets an operator inspect a running daemon over a unix socket: profiles, goroutines, the
// configuration. It must never be open to anybody but the daemon's own user and root, nor show a secret.
package backdoor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kuryr/raven/service/config"
)

const (
	readTimeout = 10 * time.Second
	// longest is how long the path of a unix socket may be.
	longest = 107
)

// Options declares the option of the backdoor.
func Options() []config.Option {
	return []config.Option{{
		Name: "backdoor_socket", Declarer: "kuryr.raven", StartOnly: true, Advanced: true,
		Help: "The path of a unix socket, of mode 0600, on which profiles (/debug/pprof/), a dump of all goroutines " +
			"(/goroutines) and the configuration with secrets masked (/config) are served. {pid} in it is replaced with the " +
			"process's number. Without it there is no backdoor.",
	}}
}

// Config says what is served, and where.
type Config struct {
	// Path of the socket; at most 107 bytes. Empty: nothing is served.
	Path string
	// Show writes the configuration, with secrets masked.
	Show   func(io.Writer) error
	Logger *slog.Logger // nil: slog.Default()
}

// FromConfig reads the option that Options declares.
func FromConfig(v *config.Values) Config {
	return Config{Path: strings.ReplaceAll(v.String("", "backdoor_socket"), "{pid}", strconv.Itoa(os.Getpid()))}
}

// Server is a service that serves the backdoor.
type Server struct {
	config  Config
	server  *http.Server
	serving sync.WaitGroup
	stopped chan struct{}
	once    sync.Once

	mu  sync.Mutex // guards err
	err error
}

// New returns a server that does not listen yet.
func New(c Config) *Server {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Server{config: c, stopped: make(chan struct{})}
}

// Start listens and serves. A path that cannot be listened on is a *config.Error naming the option.
func (s *Server) Start(ctx context.Context) error {
	if s.config.Path == "" {
		return nil
	}
	listener, err := Listen(ctx, s.config.Path)
	if err != nil {
		return &config.Error{Group: config.DefaultGroup, Option: "backdoor_socket", Message: err.Error()}
	}
	s.server = &http.Server{
		// a profile is written for as long as it is asked for
		Handler: s.Handler(), ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout,
		ErrorLog: slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelWarn),
	}
	s.serving.Go(func() {
		if err := s.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.mu.Lock()
			s.err = fmt.Errorf("serving on %s: %w", s.config.Path, err)
			s.mu.Unlock()
			s.end()
		}
	})
	s.config.Logger.Warn("the backdoor is open: who may connect sees profiles and the configuration", "socket",
		s.config.Path)
	return nil
}

// Listen makes a unix socket that only this user and root may connect to. It makes it in a folder of its own and
// moves it to its place once no other user may connect, so that another user never can. A socket
// on which no process listens any more is replaced.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > longest { // the move would bring it there, but no client could connect
		return nil, fmt.Errorf("%s is longer than %d bytes, which a socket's path cannot be", path, longest)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("%s is there and is no socket; name another path", path)
		}
		conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err == nil {
			conn.Close() //nolint:errcheck // it was only a question
			return nil, fmt.Errorf("%s is in use by another program; stop that or name another path", path)
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("checking %s: %w", path, err)
		}
	}
	folder, err := os.MkdirTemp(filepath.Dir(path), ".backdoor") // mode 0700
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	defer os.RemoveAll(folder) //nolint:errcheck // it is empty
	first := filepath.Join(folder, "s")
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", first)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false) // it would unlink the first path
	if err := errors.Join(os.Chmod(first, 0o600), os.Rename(first, path)); err != nil {
		return nil, errors.Join(fmt.Errorf("listening on %s: %w", path, err), listener.Close())
	}
	return listener, nil
}

// Stop ends serving and removes the socket; graceful lets requests in flight finish as long as ctx lasts.
func (s *Server) Stop(ctx context.Context, graceful bool) error {
	defer s.end()
	if s.server == nil {
		return nil
	}
	err := os.Remove(s.config.Path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if !graceful {
		err = errors.Join(err, s.server.Close())
	} else if stopErr := s.server.Shutdown(ctx); stopErr != nil {
		err = errors.Join(err, stopErr, s.server.Close())
	}
	s.serving.Wait()
	if err != nil {
		return fmt.Errorf("stopping the backdoor: %w", err)
	}
	return nil
}

func (s *Server) end() { s.once.Do(func() { close(s.stopped) }) }

// Wait returns when serving has ended: nil after Stop.
func (s *Server) Wait() error {
	<-s.stopped
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Reset does nothing: the path is not changed while running.
func (s *Server) Reset(context.Context) error { return nil }

// Handler returns what is served.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /goroutines", func(w http.ResponseWriter, _ *http.Request) {
		text(w, func(w io.Writer) error { _, err := w.Write(Stacks()); return err })
	})
	mux.HandleFunc("GET /config", func(w http.ResponseWriter, _ *http.Request) { text(w, s.config.Show) })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		text(w, func(w io.Writer) error {
			_, err := io.WriteString(w,
				"/config        the configuration, secrets masked\n/goroutines    what every goroutine is doing\n"+
					"/debug/pprof/  profiles: heap, allocs, goroutine, block, mutex, profile?seconds=30, trace?seconds=5\n")
			return err
		})
	})
	return mux
}

func text(w http.ResponseWriter, write func(io.Writer) error) {
	var b strings.Builder
	if write == nil {
		http.Error(w, "there is none", http.StatusNotFound)
		return
	}
	if err := write(&b); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, b.String()) // a client that has gone is no error
}

// Stacks is what every goroutine is doing, up to 64 MiB.
func Stacks() []byte {
	for size := 1 << 20; ; size *= 4 {
		buffer := make([]byte, size)
		if n := runtime.Stack(buffer, true); n < size || size >= 64<<20 {
			return buffer[:n]
		}
	}
}
