package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kuryr/raven/service/backdoor"
)

const (
	// controlName is the socket in the runtime folder by which a running daemon is told what to do. Only its own user and root may.
	controlName = "control"
	// restartTimeout bounds the restart of one driver: it starts, is configured, and the old one ends.
	restartTimeout = 90 * time.Second
)

// control is the service that takes orders. A daemon without it works all the same.
type control struct {
	path   string
	log    *slog.Logger
	daemon *daemon

	server  *http.Server
	serving sync.WaitGroup
	stopped chan struct{}
	once    sync.Once
}

func newControl(folder string, d *daemon, log *slog.Logger) *control {
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
		c.log.Info("no orders are taken, such as `raven driver restart`", "reason", err)
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /drivers/{name}/restart", c.restart)
	c.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(c.log.Handler(), slog.LevelWarn),
	}
	c.serving.Go(func() {
		if err := c.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			c.log.Warn("no orders are taken any more", "error", err)
		}
	})
	return nil
}

// Stop ends it. Orders under way are broken off when ctx ends.
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

// restartReport says what came of a restart.
type restartReport struct {
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
	_ = json.NewEncoder(w).Encode(report) // a client that has gone is nobody's error
}

// restartDriver replaces one driver's process by what stands under its path now. No other driver and no watch is touched.
func (d *daemon) restartDriver(ctx context.Context, name string) (restartReport, error) {
	r := d.current()
	if r == nil {
		return restartReport{}, errors.New("the daemon is starting, reloading or stopping")
	}
	for _, u := range r.units {
		if u.program.name != name {
			continue
		}
		if u.down != nil {
			return restartReport{}, d.startDown(ctx, r, u)
		}
		report := restartReport{Driver: name, Before: u.plugin.Info().Version}
		if err := u.plugin.Restart(ctx); err != nil {
			return report, fmt.Errorf("%w; the process that it has, if any, goes on", err)
		}
		report.Version, report.PID = u.plugin.Info().Version, u.plugin.Status().PID
		if u.replaced.Load() {
			report.Replaced = replacedText
		}
		return report, nil
	}
	return restartReport{}, fmt.Errorf("driver(%s) is not enabled", name)
}

func newDriverRestartCommand(flags *globalFlags, io streams) *cobra.Command {
	return &cobra.Command{
		Use:   "restart NAME",
		Short: "Replace a driver's process in a running daemon, by the program that stands in its place now",
		Long: `Replace a driver's process in a running daemon on this machine, by the program that stands in its place now. The new
process is started and configured first; if that does not succeed the old one goes on. Then all of the driver's objects are
translated anew; what comes out as before is not written again. Other drivers and their watches are not touched.

A program that declares other options, kinds, keys or watches than the old one needs a reload (SIGHUP) besides.`,
		Example: "  install -m 0755 raven-driver-pod /usr/lib/raven/plugins/ && raven driver restart pod",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runDriverRestart(cmd.Context(), flags, io, args[0])
		},
	}
}

func runDriverRestart(ctx context.Context, flags *globalFlags, out streams, name string) error {
	if err := checkName(name); err != nil {
		return statusError{exitUsage, err}
	}
	sources, err := flags.sources()
	if err != nil {
		return err
	}
	values, err := loadCore(sources)
	if err != nil {
		return err
	}
	path, err := controlSocket(runtimeDir(values))
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: restartTimeout + 10*time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	defer client.CloseIdleConnections()
	target := url.URL{Scheme: "http", Host: "raven", Path: "/drivers/" + name + "/restart"}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), nil)
	if err != nil {
		return fmt.Errorf("asking the daemon at %s: %w", path, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("asking the daemon at %s: %w; is `raven run` running, with this [raven] runtime_dir?", path, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading the answer of %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(body)))
	}
	var report restartReport
	if err := json.Unmarshal(body, &report); err != nil {
		return fmt.Errorf("what answers at %s is no Raven: %w", path, err)
	}
	fmt.Fprintf(out.out, "driver %s was restarted: version %s, before %s; process %d\n", report.Driver, report.Version, report.Before, report.PID)
	if report.Replaced != "" {
		fmt.Fprintln(out.err, "warning: "+report.Replaced)
	}
	return nil
}

// serviceRuntimeDir is where the daemon that systemd runs has its sockets; it hears that from systemd, and we do not.
const serviceRuntimeDir = "/run/raven/raven"

func controlSocket(folder string) (string, error) {
	for _, place := range []string{folder, serviceRuntimeDir} {
		path := filepath.Join(place, controlName)
		if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("no daemon takes orders in %s or %s: is `raven run` running as this user, with this [raven] runtime_dir?",
		folder, serviceRuntimeDir)
}
