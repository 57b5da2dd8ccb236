// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kuryr/raven/service/backdoor"
)

const (
	// controlName is the socket in the runtime folder by which a running daemon is told what to do. Only its own user and
	// root may.
	controlName = "control"
	// restartTimeout bounds the restart of one driver: it starts, is configured, and the old one ends.
	restartTimeout = 90 * time.Second
)

// control is the service that serves the control socket. A daemon without it works all the same.
type control struct {
	path   string
	log    *slog.Logger
	daemon *Daemon

	server  *http.Server
	serving sync.WaitGroup
	stopped chan struct{}
	once    sync.Once
}

func newControl(folder string, d *Daemon, log *slog.Logger) *control {
	return &control{path: filepath.Join(folder, controlName), log: log, daemon: d, stopped: make(chan struct{})}
}

// Start listens, unless another daemon does so already.
func (c *control) Start(ctx context.Context) error {
	err := os.MkdirAll(filepath.Dir(c.path), 0o700)
	var listener net.Listener
	if err == nil {
		listener, err = backdoor.Listen(ctx, c.path)
	}
	if err != nil {
		c.log.Info("the control socket does not open; `raven driver restart` does not reach this daemon", "reason", err)
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /drivers/{name}/restart", c.restart)
	for name, text := range c.daemon.parts() {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = w.Write(text()) // a client that has gone is no error
		})
	}
	c.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(c.log.Handler(), slog.LevelWarn),
	}
	c.serving.Go(func() {
		if err := c.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			c.log.Warn("the control socket failed", "error", err)
		}
	})
	return nil
}

// The parts of a running daemon that only its own user and root may see: see Ask.
const (
	PartConfig     = "config"     // the configuration in force, secrets masked
	PartGoroutines = "goroutines" // the stacks of all goroutines
	PartLog        = "log"        // what was logged last, without secrets
)

func (d *Daemon) parts() map[string]func() []byte {
	return map[string]func() []byte{
		PartGoroutines: backdoor.Stacks, PartLog: d.logs.Recent,
		PartConfig: func() []byte {
			var text bytes.Buffer
			if err := d.values().Show(&text); err != nil {
				return []byte(err.Error())
			}
			return text.Bytes()
		},
	}
}

// Stop ends it. Requests under way are broken off when ctx ends.
func (c *control) Stop(ctx context.Context, graceful bool) error {
	defer c.once.Do(func() { close(c.stopped) })
	if c.server == nil {
		return nil
	}
	_ = os.Remove(c.path)
	var err error
	if graceful {
		err = c.server.Shutdown(ctx)
	}
	if err != nil || !graceful {
		err = errors.Join(err, c.server.Close())
	}
	c.serving.Wait()
	return err
}

// Wait returns when it was stopped.
func (c *control) Wait() error {
	<-c.stopped
	return nil
}

// Reset does nothing.
func (c *control) Reset(context.Context) error { return nil }

// RestartReport says what came of a restart.
type RestartReport struct {
	Driver   string `json:"driver"`
	Before   string `json:"before"` // its version
	Version  string `json:"version"`
	PID      int    `json:"pid"`
	Replaced string `json:"replaced,omitempty"` // what a reload is needed for
}

func (c *control) restart(w http.ResponseWriter, request *http.Request) {
	ctx, cancel := context.WithTimeout(request.Context(), restartTimeout)
	defer cancel()
	report, err := c.daemon.restartDriver(ctx, request.PathValue("name"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(report) // a client that has gone is no error
}

// restartDriver replaces one driver's process by what stands under its path now. No other driver and no watch is
// touched.
func (d *Daemon) restartDriver(ctx context.Context, name string) (RestartReport, error) {
	r := d.current()
	if r == nil {
		return RestartReport{}, errors.New("the daemon is starting, reloading or stopping")
	}
	i := slices.IndexFunc(r.watchers, func(w *Watcher) bool { return w.Name() == name })
	if i < 0 {
		return RestartReport{}, fmt.Errorf("driver(%s) is not enabled", name)
	}
	w := r.watchers[i]
	if w.Down() != nil {
		return RestartReport{}, d.startDown(ctx, r, w)
	}
	report := RestartReport{Driver: name, Before: w.driver().Info().Version}
	if err := w.Restart(ctx); err != nil {
		return report, err
	}
	report.Version, report.PID = w.driver().Info().Version, w.driver().Status().PID
	if w.replaced.Load() {
		report.Replaced = replacedText
	}
	return report, nil
}
