// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/service/host"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/watch"
)

// Watcher is one driver at work: its process, and the watch task that tells the engine which of its objects changed.
// They are started, stopped and reported as one. A Watcher that is stopped has no opinion: what its driver made stays
// as it is.
//
//	(new) ──Launch──▶ launched ──Start──▶ started ──Stop──▶ stopped
//	   │                                     ▲                 │
//	   └─▶ down: its program does not start  └──────Start──────┘
type Watcher struct {
	config watcherConfig

	// changing lets one of Launch, Start, Stop and Restart run at a time. It guards joined.
	changing sync.Mutex
	// joined is the engine that knows it.
	joined engine

	mu     sync.RWMutex
	plugin *host.Plugin        // nil before Launch, and where down is set
	source *watch.Subscription // nil unless it is started
	// values are the driver's options.
	values drivers.Values
	// watches are those that it is subscribed to.
	watches []drivers.Watch
	// down says why there is no process: nothing is watched for it then.
	down error
	// partial says why some of its needs cannot be answered.
	partial error

	// replaced says that its program was replaced, while it ran, by one that declares something else.
	replaced atomic.Bool
	// stamp is that of the program's file when it was started last.
	stamp atomic.Pointer[string]
}

// engine is what a Watcher asks of the engine.
type engine interface {
	Add(name string, driver drivers.Driver, source reconcile.Source) error
	Replay(name string)
	Wake(name string, key watch.Key)
}

// watcherConfig says which driver a Watcher runs, and for whom.
type watcherConfig struct {
	Program   Program
	Values    drivers.Values // the driver's options
	Timeouts  host.Timeouts
	MaxLosses int
	Manager   *watch.Manager
	Logger    *slog.Logger
	// Engine is the present one: a leader that lost its Lease begins anew with another.
	Engine func() engine
	// OnQuarantine is called when the process was lost too often and is left alone for a while. It must not block.
	OnQuarantine func(error)
}

// newWatcher returns a Watcher of a program. Nothing runs before Launch or Start.
func newWatcher(c watcherConfig) *Watcher {
	return &Watcher{config: c, values: c.Values, down: c.Program.down}
}

// Name is the driver's.
func (w *Watcher) Name() string { return w.config.Program.Name }

// Program is what it runs.
func (w *Watcher) Program() Program { return w.config.Program }

// Launch starts the driver's process, unless it runs. A program that does not become a driver is no error: the Watcher
// is down then.
func (w *Watcher) Launch(ctx context.Context) error {
	w.changing.Lock()
	defer w.changing.Unlock()
	return w.launch(ctx)
}

func (w *Watcher) launch(ctx context.Context) error {
	p := w.config.Program
	if w.Down() != nil || w.running() {
		return nil
	}
	w.mu.RLock()
	c := p.launch(w.values)
	w.mu.RUnlock()
	launched := make(chan struct{})
	c.Logger, c.Timeouts, c.MaxLosses, c.OnQuarantine = w.config.Logger, w.config.Timeouts, w.config.MaxLosses,
		w.config.OnQuarantine
	c.OnReady = func() { w.isBack(launched) }
	w.stamp.Store(new(stampOf(p.Path)))
	plugin, err := host.Launch(ctx, c)
	switch {
	case errors.Is(err, host.ErrNotStarted) && w.driver() == nil:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.down = err
		return nil
	case err != nil:
		return err
	}
	watches := plugin.Watches()
	w.mu.Lock()
	before := w.watches
	w.plugin, w.watches = plugin, watches
	w.mu.Unlock()
	close(launched)
	if before != nil && !reflect.DeepEqual(before, watches) {
		return fmt.Errorf("driver(%s): %s", p.Name, replacedText)
	}
	return p.Authority.checkWatches(p.Name, watches)
}

// running says whether there is a process that was not stopped.
func (w *Watcher) running() bool {
	plugin := w.driver()
	return plugin != nil && plugin.Status().State != host.Stopped
}

// driver is its process; nil if there was none yet, or it is down.
func (w *Watcher) driver() *host.Plugin {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.plugin
}

// subscription is its watch task; nil unless it is started.
func (w *Watcher) subscription() *watch.Subscription {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.source
}

// Down says why its driver does not start; nil if it does.
func (w *Watcher) Down() error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.down
}

// isBack replays a driver whose process was lost. If its program was replaced by one that declares something else, that
// takes a reload: what it declares is asked for, checked and subscribed to only there.
func (w *Watcher) isBack(launched <-chan struct{}) {
	w.stamp.Store(new(stampOf(w.config.Program.Path)))
	select {
	case <-launched:
	default:
		return // lost and back before the engine knew it, which replays it then
	}
	if w.declaresOther() {
		w.replaced.Store(true)
		w.config.Logger.Error(replacedText, "driver", w.Name())
	}
	w.config.Engine().Replay(w.Name())
}

const replacedText = "the driver's program was replaced by one with other options, kinds, keys or watches: send " +
	"SIGHUP to take them over"

// declaresOther says whether the process declares something else than its program did when it was inspected and
// subscribed.
func (w *Watcher) declaresOther() bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	then, now := w.config.Program.Info, w.plugin.Info()
	then.Version, then.Description = now.Version, now.Description
	return !reflect.DeepEqual(then, now) || !reflect.DeepEqual(w.watches, w.plugin.Watches())
}

// Start launches the process, unless it runs, begins to watch, waits until the caches are synced, and makes the driver
// known to the engine, or has the engine translate all its objects again where it knows it. After an error it is to be
// stopped.
func (w *Watcher) Start(ctx context.Context) error {
	w.changing.Lock()
	defer w.changing.Unlock()
	if err := w.launch(ctx); err != nil {
		return err
	}
	if err := w.Down(); err != nil {
		return err
	}
	if err := w.subscribe(); err != nil {
		return err
	}
	err := w.subscription().WaitSynced(ctx)
	if partial, ok := errors.AsType[*watch.SyncError](err); err != nil && (!ok || !partial.NeedsOnly()) {
		return err
	}
	w.mu.Lock()
	w.partial = err
	w.mu.Unlock()
	if err != nil {
		w.config.Logger.Warn("some needs cannot be answered; the objects that depend on them wait", "driver", w.Name(),
			"error", err)
	}
	return w.join()
}

// Subscribe begins to watch, unless that has begun. Watchers that subscribe before the watches run share informers at
// once.
func (w *Watcher) Subscribe() error {
	w.changing.Lock()
	defer w.changing.Unlock()
	return w.subscribe()
}

func (w *Watcher) subscribe() error {
	if w.subscription() != nil {
		return nil
	}
	info := w.config.Program.Info
	keep := slices.Concat(info.Annotations, info.Labels)
	if len(info.Status) > 0 {
		keep = append(keep, watch.KeepIngress)
	}
	source, err := w.config.Manager.Subscribe(w.Name(), w.driver().Watches(), keep, func(key watch.Key, _ watch.Reason) {
		w.config.Engine().Wake(w.Name(), key)
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.source = source
	return nil
}

// Join makes a Watcher that is started known to the present engine.
func (w *Watcher) Join() error {
	w.changing.Lock()
	defer w.changing.Unlock()
	return w.join()
}

func (w *Watcher) join() error {
	present := w.config.Engine()
	if w.joined == present {
		present.Replay(w.Name())
		return nil
	}
	if err := present.Add(w.Name(), askedDriver{w}, askedSource{w}); err != nil {
		return err
	}
	w.joined = present
	return nil
}

// Configure gives the driver other options, also for later starts.
func (w *Watcher) Configure(ctx context.Context, values drivers.Values) error {
	if err := w.driver().Configure(ctx, values); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.values = values
	return nil
}

// Restart replaces the process by what stands under the program's path now, once that is ready. The watch task goes on.
func (w *Watcher) Restart(ctx context.Context) error {
	w.changing.Lock()
	defer w.changing.Unlock()
	if err := w.driver().Restart(ctx); err != nil {
		return fmt.Errorf("%w; the process that it has, if any, goes on", err)
	}
	return nil
}

// Stop ends the watch task and then the process, inside ctx's bound. It may be called in any state, and again.
func (w *Watcher) Stop(ctx context.Context) error {
	w.changing.Lock()
	defer w.changing.Unlock()
	w.mu.Lock()
	source, plugin := w.source, w.plugin
	w.source = nil
	w.mu.Unlock()
	if source != nil {
		source.Close()
	}
	if plugin == nil {
		return nil
	}
	return plugin.Stop(ctx)
}

// Status is what the engine says of the driver, together with how its process and its watches are.
func (w *Watcher) Status(of reconcile.DriverStatus) DriverReport {
	report := DriverReport{DriverStatus: of, Path: w.config.Program.Path}
	if w.Down() != nil {
		report.State, report.Problem = string(host.Quarantined), w.downText()
		return report
	}
	status := w.driver().Status()
	report.PID, report.State, report.Restarts, report.Isolated = status.PID, string(status.State), status.Restarts,
		status.Isolated
	report.Version = w.driver().Info().Version // the executable may have been replaced and the driver started anew
	if status.State != host.Ready {
		report.Problem = status.LastExit
	}
	w.mu.RLock()
	if w.partial != nil {
		report.Problem = w.partial.Error()
	}
	w.mu.RUnlock()
	if source := w.subscription(); source != nil {
		for _, s := range source.Status() {
			report.Watches = append(report.Watches, WatchReport{s.Watch, s.Synced, s.Objects, s.Error})
		}
	}
	return report
}

// Health says how the Watcher is to those who ask whether Raven is ready.
func (w *Watcher) Health(c *health.Component, of reconcile.DriverStatus) {
	if w.Down() != nil {
		c.Degraded(w.downText())
		return
	}
	status := w.driver().Status()
	failing := w.failing()
	switch {
	case status.State != host.Ready:
		c.Degraded("its process is " + string(status.State) + ": " + status.LastExit)
	case status.Isolated > 0:
		c.Degraded(fmt.Sprintf("%d objects ended or hung it and are kept from it: see raven status --driver %s --state "+
			"terminal",
			status.Isolated, w.Name()))
	case w.replaced.Load():
		c.Degraded(replacedText)
	case of.Guard != nil:
		c.Degraded(of.Guard.String())
	case failing != "":
		c.Degraded(failing)
	case !of.Replayed:
		c.NotReady("it has not answered for every object yet")
	default:
		c.Ready()
	}
}

// unreachable says which of its watches finds no API server now, and why.
func (w *Watcher) unreachable() string {
	source := w.subscription()
	if source == nil {
		return ""
	}
	for _, s := range source.Status() {
		if s.Cause == watch.Unreachable && s.Error != "" {
			return s.Error
		}
	}
	return ""
}

// failing says which of its watches does not work now, and why.
func (w *Watcher) failing() string {
	source := w.subscription()
	if source == nil {
		return "it is not started"
	}
	for _, s := range source.Status() {
		if s.Error != "" {
			return "watch " + s.Watch + ": " + s.Error
		}
	}
	return ""
}

func (w *Watcher) downText() string {
	return "it does not start, and what it made stays as it is; it is tried again every driver_quarantine, at a reload " +
		"and by `raven driver restart`: " + w.Down().Error()
}
