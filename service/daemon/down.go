// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/host"
)

// A driver that does not start is left out: the others work, what it made stays, and it is tried again like one in
// quarantine. What it declares is not known until it starts, so that a reload takes it in.

// isNotStarted says that a driver does not start, which is no fault of the configuration.
func isNotStarted(err error) bool { return errors.Is(err, host.ErrNotStarted) }

// leaveOut tells of the drivers that did not start. With none that did there is nothing to do.
func (r *runtime) leaveOut() error {
	var all error // in one line
	down := 0
	for _, w := range r.watchers {
		err := w.Down()
		switch {
		case err == nil:
			continue
		case all == nil:
			all = err
		default:
			all = fmt.Errorf("%w; %w", all, err)
		}
		down++
	}
	if down == len(r.watchers) {
		return all
	}
	for _, w := range r.watchers {
		if err := w.Down(); err != nil {
			r.log.Error("driver does not start and is left out; what it made stays, and drivers that share their work with it "+
				"leave it its part", "driver", w.Name(), "error", err)
			r.tell("DriverNotStarted", fmt.Sprintf("driver %s: %s", w.Name(), w.downText()))
		}
	}
	return nil
}

// without says which drivers a reload may go on without: those that it has no use of now either.
func (d *Daemon) without(driver string) bool {
	r := d.current()
	return r == nil || slices.ContainsFunc(r.watchers, func(w *Watcher) bool {
		return w.Name() == driver && (w.Down() != nil || w.driver().Status().State != host.Ready)
	})
}

// awaitStart tries the drivers that did not start until one does: then a reload takes it in.
func (d *Daemon) awaitStart(ctx context.Context, r *runtime) {
	if !slices.ContainsFunc(r.watchers, func(w *Watcher) bool { return w.Down() != nil }) {
		return
	}
	interval := r.loaded.Values.Duration(OptionGroup, "driver_quarantine")
	loop := service.Loop{
		Clock: clock.RealClock{}, Name: "drivers that do not start", Logger: r.log, Delay: interval, Interval: interval,
		KeepGoing: true,
	}
	_ = loop.Run(ctx, func(ctx context.Context) error { // it ends with ctx alone
		for _, w := range r.watchers {
			if w.Down() == nil {
				continue
			}
			if err := r.tryDown(ctx, w); err != nil {
				r.log.Error("driver still does not start", "driver", w.Name(), "error", err)
				continue
			}
			d.takeIn(w)
			return nil
		}
		return nil
	})
}

// takeIn asks for a reload, as a SIGHUP from outside does.
func (d *Daemon) takeIn(w *Watcher) {
	if d.values().String(config.DefaultGroup, "restart_method") == service.RestartMutate {
		d.log.Warn("driver starts now; with restart_method = mutate only a new start of Raven takes it in",
			"driver", w.Name())
		return
	}
	d.log.Info("driver starts now: reloading to take it in", "driver", w.Name())
	select {
	case d.config.Signals <- syscall.SIGHUP:
	default: // one waits to be heard already
	}
}

// tryDown starts a driver as a reload would, and ends it.
func (r *runtime) tryDown(ctx context.Context, w *Watcher) error {
	p, err := r.loaded.loader.inspectOne(ctx, w.Name(), r.loaded.Values, w.Program().Sandbox)
	if err = errors.Join(err, p.down); err != nil {
		return err
	}
	names, options := make([]string, 0, len(r.watchers)), Options()
	for _, other := range r.watchers {
		names = append(names, other.Name())
	}
	for _, o := range p.Info.Options {
		options = append(options, driverOption(p.Name, o))
	}
	options = append(options, authorityOptions(names)...)
	sources := known(r.loaded.sources, options)
	sources.Strict = false
	values, _, err := config.Load(sources, options)
	if err != nil {
		return err
	}
	_, err = (&Settings{Values: values}).Watches(ctx, p)
	return err
}

// startDown answers an operator who wants a driver started that did not start.
func (d *Daemon) startDown(ctx context.Context, r *runtime, w *Watcher) error {
	if err := r.tryDown(ctx, w); err != nil {
		return fmt.Errorf("it still does not start: %w", err)
	}
	d.takeIn(w)
	return errors.New("driver(" + w.Name() + "): it starts now; Raven is reloading to take it in, see raven status")
}
