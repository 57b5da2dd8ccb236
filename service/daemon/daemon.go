// SPDX-License-Identifier: Apache-2.0

// Package daemon is Raven at work: it brings up what a configuration names, watchers, backends and the engine, keeps it
// going through reloads, changes of the leader and losses of drivers, and takes it down within a bound. It must never
// parse a command line or print: it is told by a Config and by signals, and speaks by its log, its reports and systemd.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/backdoor"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/service/leader"
	"github.com/kuryr/raven/service/log"
	"github.com/kuryr/raven/service/web"
)

// Config is what a daemon needs.
type Config struct {
	// Loader reads the configuration, at the start and at each reload.
	Loader Loader
	// Signals are those that the daemon heeds: SIGTERM and SIGINT stop it, SIGHUP reloads. It needs a buffer: the daemon
	// asks itself for a reload by it, too.
	Signals chan os.Signal
	// Notify tells systemd how the daemon stands; nil: there is no systemd.
	Notify *service.Notifier
	// Stderr is where the log goes unless the configuration says otherwise; Color colours it.
	Stderr io.Writer
	Color  bool
}

// Validate names what is missing.
func (c Config) Validate() error {
	switch {
	case c.Loader.Sources == nil:
		return errors.New("a daemon needs the sources of its configuration")
	case cap(c.Signals) == 0:
		return errors.New("a daemon needs a channel of signals that has a buffer")
	case c.Stderr == nil:
		return errors.New("a daemon needs a place to log to")
	}
	return nil
}

// Daemon is the service that holds the runtime of the present configuration.
type Daemon struct {
	config   Config
	logs     *log.Log
	log      *slog.Logger
	registry *health.Registry
	state    *health.Component
	started  time.Time
	progress *service.Progress
	page     string // the address of the web page; empty: none is known
	reloads  reloads

	mu      sync.Mutex
	loaded  *Settings
	runtime *runtime
	waiting *waiting // for a cluster or a cloud that is away at the start; nil: not
	awaited string   // what the start waits for, and why; empty: nothing
	cancel  context.CancelFunc
	ended   chan struct{}
	failed  error
	done    chan struct{}
	once    sync.Once

	naming sync.Once
	holder *leader.Holder // the name of this process for the Lease; nil before it is needed
}

// New reads the configuration and opens the log that it asks for. Nothing is reached before Run.
func New(ctx context.Context, c Config) (*Daemon, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	l, err := c.Loader.loadDespite(ctx, func(string) bool { return true })
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	logs, err := openLog(l, c.Stderr, c.Color)
	if err != nil {
		return nil, err
	}
	d := &Daemon{
		config: c, logs: logs, log: logs.Logger(), loaded: l, started: time.Now(),
		registry: health.NewRegistry(clock.RealClock{}),
		progress: service.NewProgress(clock.RealClock{}), reloads: newReloads(), done: make(chan struct{}),
	}
	d.reloads.note(nil) // the configuration has been read
	d.state = d.registry.Component("raven")
	d.state.NotReady("starting")
	for _, link := range []string{linkKubernetes, linkKeystone, linkNeutron} {
		d.registry.Component(link)
	}
	return d, nil
}

// Run serves until a signal ends it, and closes the log. The error, which shows no secret, is for service.ExitStatus.
// It is called once.
func (d *Daemon) Run(ctx context.Context) error {
	defer func() { _ = d.logs.Close() }()
	defer func() { _ = d.holder.Close() }()
	l := d.loaded
	l.report(d.log)
	d.log.Info("starting", "version", d.config.Loader.Version, "pid", os.Getpid(),
		"drivers", l.Values.List(OptionGroup, "drivers"))
	err := d.launcher(l.Values).Run(context.WithoutCancel(ctx)) // what has ended ctx is in the signals too
	if err == nil {
		d.log.Info("stopped")
		return nil
	}
	cause := err
	if failure, ok := errors.AsType[*service.Failure](err); ok {
		cause = failure.Err
	}
	return redactedError{text: d.logs.Redactor().Text(cause.Error()), err: err}
}

// redactedError is an error whose text shows no secret.
type redactedError struct {
	text string
	err  error
}

func (r redactedError) Error() string { return r.text }
func (r redactedError) Unwrap() error { return r.err }

// launcher has all services of the process: this one, and those by which it is looked at and told what to do.
func (d *Daemon) launcher(v *config.Values) *service.Launcher {
	serving := health.FromConfig(v)
	serving.Gatherer, serving.Status = d.metricsRegistry(), d.status
	serving.Stalled, serving.Logger = d.progress.Stalled, d.log
	looking := backdoor.FromConfig(v)
	looking.Logger, looking.Show = d.log, func(w io.Writer) error { return d.values().Show(w) }
	page := web.FromConfig(v)
	page.Source, page.Logger = webSource{d}, d.log
	d.page = page.URL()
	launcher := service.NewLauncher(service.Config{
		Logger: d.log, Signal: d.config.Signals, Notify: d.config.Notify, Progress: d.progress,
		Grace: func() time.Duration { return d.values().Duration(config.DefaultGroup, "graceful_shutdown_timeout") },
		Mutate: func() bool {
			return d.values().String(config.DefaultGroup, "restart_method") == service.RestartMutate
		},
	})
	launcher.Add("health", health.New(serving, d.registry))
	launcher.Add("web", web.New(page))
	launcher.Add("backdoor", backdoor.New(looking))
	launcher.Add("raven", d)
	launcher.Add("control", newControl(RuntimeDir(v), d, d.log))
	return launcher
}

func (d *Daemon) values() *config.Values {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.loaded.Values
}

func (d *Daemon) current() *runtime {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.runtime
}

// Start reaches both sides, launches the drivers, waits for the caches, and begins to reconcile. Where the
// configuration is valid but a cluster or a cloud cannot be reached now, it returns nil and goes on trying.
func (d *Daemon) Start(ctx context.Context) error {
	err := d.begin(ctx, d.loaded)
	if _, again := errors.AsType[*unreachedError](err); !again || ctx.Err() != nil {
		return err
	}
	if refusal := d.loaded.checkDrivers(ctx); refusal != nil {
		return refusal
	}
	d.wait(ctx, err)
	return nil
}

func (d *Daemon) begin(ctx context.Context, l *Settings) error {
	d.config.Notify.Status("starting: connecting to the cluster and the cloud, launching the drivers")
	r, err := prepare(ctx, l, d.log, d.candidacy())
	if err != nil {
		return err
	}
	return d.take(ctx, r)
}

// take begins to work with a prepared runtime, or ends it.
func (d *Daemon) take(ctx context.Context, r *runtime) error {
	d.config.Notify.Status("starting: listing this cluster's resources in the cloud, syncing the caches")
	if err := r.start(ctx); err != nil {
		r.stop(context.WithoutCancel(ctx))
		return err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	d.mu.Lock()
	d.loaded, d.runtime, d.cancel, d.ended = r.loaded, r, cancel, ended
	d.awaited = ""
	d.mu.Unlock()
	go func() {
		defer close(ended)
		if err := service.Guard(func() error { return r.run(running) }); err != nil {
			d.fail(err)
		}
	}()
	r.work.Go(func() { d.awaitStart(running, r) })
	r.work.Go(func() { r.reportReadiness(running, d.registry, d.config.Notify, d.progress) })
	r.reportLinks(d.registry)
	d.state.Ready()
	d.log.Info("standing by", "cluster", r.cluster, "project", r.cloud.ProjectID())
	return nil
}

func (d *Daemon) fail(err error) {
	d.mu.Lock()
	d.failed = err
	d.mu.Unlock()
	d.once.Do(func() { close(d.done) })
}

// Stop ends the runtime. What is in flight may finish for as long as ctx lasts.
func (d *Daemon) Stop(ctx context.Context, _ bool) error {
	d.stopWaiting()
	err := d.end(ctx)
	d.once.Do(func() { close(d.done) })
	return err
}

func (d *Daemon) end(ctx context.Context) error {
	d.mu.Lock()
	r, cancel, ended := d.runtime, d.cancel, d.ended
	d.runtime = nil
	d.mu.Unlock()
	if r == nil {
		return nil
	}
	d.state.NotReady("stopping")
	cancel()
	grace := engineGrace(d.values().Duration(config.DefaultGroup, "graceful_shutdown_timeout"))
	defer time.AfterFunc(grace, func() { r.engine().Abort() }).Stop()
	var err error
	select {
	case <-ended:
	case <-ctx.Done():
		err = fmt.Errorf("work in flight did not end: %w", ctx.Err())
	}
	r.stop(ctx)
	return err
}

// Wait returns when the daemon has ended.
func (d *Daemon) Wait() error {
	<-d.done
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}
