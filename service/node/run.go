// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/utils/clock"

	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/service/log"
	"github.com/kuryr/raven/service/watch"
)

// Process is what a node's daemon needs of its process.
type Process struct {
	Values   *config.Values
	Warnings []config.Warning
	Version  string
	// Signals are those that the daemon heeds: SIGTERM and SIGINT stop it.
	Signals chan os.Signal
	// Notify tells systemd how the daemon stands; nil: there is no systemd.
	Notify *service.Notifier
	// Stderr is where the log goes unless the configuration says otherwise; Color colours it.
	Stderr io.Writer
	Color  bool
}

// Run serves until a signal ends it. The error is for service.ExitStatus.
func Run(ctx context.Context, p Process) error {
	logs, err := p.openLog()
	if err != nil {
		return err
	}
	defer func() { _ = logs.Close() }()
	logger := logs.Logger()
	for _, w := range p.Warnings {
		logger.Warn("configuration: " + w.String()) //nolint:sloglint // one message each, as oslo.config logs them
	}
	c, err := FromConfig(p.Values)
	if err != nil {
		return err
	}
	c.Logger = logger
	if c.Clients, err = clients(p.Values, p.Version); err != nil {
		return err
	}
	defer c.Clients.Close()
	logger.Info("starting", "version", p.Version, "pid", os.Getpid(), "node", c.Name)
	err = p.launch(ctx, c, logs)
	if err == nil {
		logger.Info("stopped")
		return nil
	}
	if failed, ok := errors.AsType[*service.Failure](err); ok {
		logger.Error("stopped", "error", failed.Err)
	}
	return err
}

// launch runs the services of the process.
func (p Process) launch(ctx context.Context, c Config, logs *log.Log) error {
	registry := health.NewRegistry(clock.RealClock{})
	n, err := New(c, registry)
	if err != nil {
		return err
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		n.Metrics())
	serving := health.FromConfig(p.Values)
	serving.Gatherer, serving.Logger = metrics, c.Logger
	launcher := service.NewLauncher(service.Config{
		Logger: c.Logger, Signal: p.Signals, Notify: p.Notify,
		Grace: func() time.Duration { return p.Values.Duration(config.DefaultGroup, "graceful_shutdown_timeout") },
	})
	launcher.Add("log", service.NewTask(func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}, logs.Reset))
	launcher.Add("health", health.New(serving, registry))
	launcher.Add("node", n)
	return launcher.Run(context.WithoutCancel(ctx)) // what has ended ctx is in the signals too
}

func (p Process) openLog() (*log.Log, error) {
	c := log.FromConfig(p.Values, "raven-node")
	c.Stderr, c.Color = p.Stderr, p.Color
	redactor := log.NewRedactor()
	redactor.Add(p.Values.Secrets()...)
	if rest, err := watch.RESTConfig(p.Values, p.Version); err == nil {
		redactor.Add(watch.Secrets(rest)...)
	}
	return log.New(c, redactor)
}

// clients returns the ways to the API server that the configuration names.
func clients(values *config.Values, version string) (watch.Clients, error) {
	rest, err := watch.RESTConfig(values, version)
	if err != nil {
		return watch.Clients{}, err
	}
	all, err := watch.NewClients(rest)
	if err != nil {
		return watch.Clients{}, fmt.Errorf("reaching the API server: %w", err)
	}
	return all, nil
}
