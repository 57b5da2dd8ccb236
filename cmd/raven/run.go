package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/backdoor"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/service/host"
	"github.com/kuryr/raven/service/log"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/watch"
)

func newRunCommand(flags *globalFlags, out streams) *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run the daemon",
		Long: `Run the daemon in the foreground: watch the cluster, and keep the cloud in step.

Signals:
  SIGTERM, SIGINT  cancel every watch task, close connections, drain and stop the drivers, inside
                   graceful_shutdown_timeout; a second one ends at once
  SIGHUP           read the configuration again; restart_method says whether to stop and go on with it, or to take
                   over the mutable options in place; a bad one is logged and the old one stays

Exit statuses: 0 stopped as asked, 1 an error, 130 and 143 ended at once by a second SIGINT or SIGTERM.`,
		Example: `  raven run
  raven run --config-file /etc/kuryr/kuryr.conf
  raven run --set DEFAULT.debug=true --set raven.drivers=namespace,pod`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDaemon(cmd.Context(), flags, out) },
	}
}

func runDaemon(ctx context.Context, flags *globalFlags, out streams) error {
	paceCollector()
	// From here on a signal is either heard by the launcher or ends the load: none gets lost between them, nor ends the process.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	l, err := flags.loadDespite(ctx, func(string) bool { return true })
	if ctx.Err() != nil {
		return nil // stopped as asked, before there was anything to stop
	}
	if err != nil {
		return err
	}
	logs, err := openLog(l, out)
	if err != nil {
		return err
	}
	defer func() { _ = logs.Close() }()
	logger := logs.Logger()
	l.report(logger)

	core := &daemon{
		flags: flags, logs: logs, log: logger, loaded: l, started: time.Now(), registry: health.NewRegistry(clock.RealClock{}),
		notify: service.NewNotifier(os.Getenv), progress: service.NewProgress(clock.RealClock{}),
	}
	core.hangUp = signals
	core.state = core.registry.Component("raven")
	core.state.NotReady("starting")
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), core)
	serving := health.FromConfig(l.values)
	serving.Gatherer, serving.Status, serving.Stalled, serving.Logger = metrics, core.status, core.progress.Stalled, logger
	launcher := service.NewLauncher(service.Config{
		Logger: logger, Signal: signals, Notify: core.notify, Progress: core.progress,
		Grace: func() time.Duration { return core.values().Duration(config.DefaultGroup, "graceful_shutdown_timeout") },
		Mutate: func() bool {
			return core.values().String(config.DefaultGroup, "restart_method") == service.RestartMutate
		},
	})
	launcher.Add("health", health.New(serving, core.registry))
	looking := backdoor.FromConfig(l.values)
	looking.Logger, looking.Show = logger, func(w io.Writer) error { return core.values().Show(w) }
	launcher.Add("backdoor", backdoor.New(looking))
	launcher.Add("raven", core)
	launcher.Add("control", newControl(runtimeDir(l.values), core, logger))
	logger.Info("starting", "version", version, "drivers", l.values.List(ravenGroup, "drivers"), "pid", os.Getpid())
	err = launcher.Run(context.WithoutCancel(ctx)) // what has ended ctx is in signals too
	if err == nil {
		logger.Info("stopped")
		return nil
	}
	status := service.ExitStatus(err)
	if failure, ok := errors.AsType[*service.Failure](err); ok {
		err = failure.Err
	}
	return statusError{status, errors.New(logs.Redactor().Text(err.Error()))}
}

// openLog opens the log that the configuration asks for. Secrets never get into it.
func openLog(l *loaded, out streams) (*log.Log, error) {
	c := log.FromConfig(l.values, "raven")
	c.Stderr = out.err
	c.Color = log.Terminal(os.Stderr, os.Getenv)
	redactor := log.NewRedactor()
	redactor.Add(l.secrets()...)
	return log.New(c, redactor)
}

// secrets are those of the configuration, and of the clouds.yaml and the kubeconfig that it names.
func (l *loaded) secrets() []string {
	secrets := l.values.Secrets()
	cloud, _ := openstack.FromConfig(l.values) // what is missing in it is told where it is used
	secrets = append(secrets, cloud.Secrets()...)
	if rest, err := watch.RESTConfig(l.values, version); err == nil {
		secrets = append(secrets, watch.Secrets(rest)...)
	}
	return secrets
}

// report says at start what the configuration is.
func (l *loaded) report(logger *slog.Logger) {
	l.logWarnings(logger)
	if !l.values.Bool(config.DefaultGroup, "log_options") {
		return
	}
	var text strings.Builder
	if err := l.values.Show(&text); err != nil {
		logger.Warn("the options cannot be shown", "error", err)
	}
	for line := range strings.Lines(text.String()) {
		logger.Debug("option", "value", strings.TrimSpace(line))
	}
}

func (l *loaded) logWarnings(logger *slog.Logger) {
	for _, w := range l.warnings {
		logger.Warn("configuration: " + w.String()) //nolint:sloglint // each is a message of its own, as oslo.config logs them
	}
}

// daemon is the service that holds the runtime of the present configuration.
type daemon struct {
	flags    *globalFlags
	logs     *log.Log
	log      *slog.Logger
	registry *health.Registry
	state    *health.Component
	started  time.Time
	notify   *service.Notifier
	progress *service.Progress
	// hangUp takes the signals that the launcher heeds.
	hangUp chan<- os.Signal

	mu      sync.Mutex
	loaded  *loaded
	runtime *runtime
	cancel  context.CancelFunc
	ended   chan struct{}
	failed  error
	done    chan struct{}
	once    sync.Once
}

func (d *daemon) values() *config.Values {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.loaded.values
}

func (d *daemon) current() *runtime {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.runtime
}

// Start reaches both sides, launches the drivers, waits for the caches, and begins to reconcile.
func (d *daemon) Start(ctx context.Context) error {
	d.done = make(chan struct{})
	return d.begin(ctx, d.loaded)
}

func (d *daemon) begin(ctx context.Context, l *loaded) error {
	d.notify.Status("starting: reaching the cluster and the cloud, launching the drivers")
	r, err := prepare(ctx, l, d.log, true)
	if err != nil {
		return err
	}
	return d.take(ctx, r)
}

// take begins to work with a prepared runtime, or ends it.
func (d *daemon) take(ctx context.Context, r *runtime) error {
	d.notify.Status("starting: listing what is ours in the cloud, filling the caches")
	if err := r.watchers(ctx); err != nil {
		r.stop(context.WithoutCancel(ctx))
		return err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	d.mu.Lock()
	d.loaded, d.runtime, d.cancel, d.ended = r.loaded, r, cancel, ended
	d.mu.Unlock()
	go func() {
		defer close(ended)
		if err := service.Guard(func() error { return r.run(running) }); err != nil {
			d.fail(err)
		}
	}()
	r.work.Go(func() { d.awaitStart(running, r) })
	r.work.Go(func() { r.reportReadiness(running, d.registry, d.notify, d.progress) })
	d.state.Ready()
	d.log.Info(r.started(), "cluster", r.cluster, "project", r.cloud.ProjectID()) //nolint:sloglint // one of two constants
	return nil
}

func (d *daemon) fail(err error) {
	d.mu.Lock()
	d.failed = err
	d.mu.Unlock()
	d.once.Do(func() { close(d.done) })
}

// Stop ends the runtime. What is in flight may finish for as long as ctx lasts.
func (d *daemon) Stop(ctx context.Context, _ bool) error {
	err := d.end(ctx)
	d.once.Do(func() { close(d.done) })
	return err
}

func (d *daemon) end(ctx context.Context) error {
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
func (d *daemon) Wait() error {
	<-d.done
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// status serves /status.
func (d *daemon) status(q url.Values) (any, error) {
	r := d.current()
	report := statusReport{Version: version, Started: d.started}
	if r == nil {
		return report, nil
	}
	report.Ready = r.engine().Replayed()
	report.Cluster, report.Project = r.cluster, r.cloud.ProjectID()
	report.Counts, report.Requests = r.engine().Counts(), r.cloud.Stats()
	if report.Leader = r.leaderReport(); report.Leader == nil || report.Leader.Leading {
		report.Objects = r.engine().Objects(filterFrom(q))
	}
	report.OVN, report.Handover = r.ovnReport(), r.engine().Handover()
	report.Drivers, report.Frozen = r.driverReports(), r.engine().Frozen()
	return report, nil
}

func (r *runtime) driverReports() []driverReport {
	byName := map[string]*unit{}
	for _, u := range r.units {
		byName[u.program.name] = u
	}
	var list []driverReport
	for _, st := range r.engine().Drivers() {
		rep := driverReport{DriverStatus: st}
		if u := byName[st.Name]; u != nil && u.down != nil {
			rep.Path, rep.State, rep.Problem = u.program.path, string(host.Quarantined), u.downText()
		} else if u != nil {
			status := u.plugin.Status()
			rep.Path, rep.PID, rep.State, rep.Restarts = u.program.path, status.PID, string(status.State), status.Restarts
			rep.Isolated = status.Isolated
			rep.Version = u.plugin.Info().Version // the executable may have been replaced and the driver started anew
			if status.State != host.Ready {
				rep.Problem = status.LastExit
			}
			if u.partial != nil {
				rep.Problem = u.partial.Error()
			}
			for _, w := range u.source.Status() {
				rep.Watches = append(rep.Watches, watchReport{w.Watch, w.Synced, w.Objects, w.Error})
			}
		}
		list = append(list, rep)
	}
	return list
}

// Describe and Collect pass on the collectors of the present runtime, which a reload replaces.
func (d *daemon) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (d *daemon) Collect(to chan<- prometheus.Metric) {
	r := d.current()
	if r == nil {
		return
	}
	r.cloud.Collector().Collect(to)
	r.collectLeader(to)
	if r.northbound != nil {
		r.northbound.Collector().Collect(to)
	}
	for _, c := range r.engine().Metrics() {
		c.Collect(to)
	}
}
