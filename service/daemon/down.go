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

// A driver that does not start is left out: the others work, what it made stays, and it is tried again like one in quarantine. What it
// declares is not known until it starts, so that a reload takes it in.

// downText says it for people.
func (u *Watcher) downText() string {
	return "it does not start, and what it made stays as it is; it is tried again every driver_quarantine, at a reload and by `raven driver restart`: " +
		u.down.Error()
}

// leaveOut tells of the drivers that did not start. With none that did there is nothing to do.
func (r *runtime) leaveOut() error {
	var all error // in one line
	down := 0
	for _, u := range r.units {
		switch {
		case u.down == nil:
			continue
		case all == nil:
			all = u.down
		default:
			all = fmt.Errorf("%w; %w", all, u.down)
		}
		down++
	}
	if down == len(r.units) {
		return all
	}
	for _, u := range r.units {
		if u.down != nil {
			r.log.Error("driver does not start and is left out; what it made stays", "driver", u.program.Name, "error", u.down)
			r.tell("DriverNotStarted", fmt.Sprintf("driver %s: %s", u.program.Name, u.downText()))
		}
	}
	return nil
}

// without says which drivers a reload may go on without: those that it has no use of now either.
func (d *Daemon) without(driver string) bool {
	r := d.current()
	return r == nil || slices.ContainsFunc(r.units, func(u *Watcher) bool {
		return u.program.Name == driver && (u.down != nil || u.plugin.Status().State != host.Ready)
	})
}

// awaitStart tries the drivers that did not start until one does: then a reload takes it in.
func (d *Daemon) awaitStart(ctx context.Context, r *runtime) {
	if !slices.ContainsFunc(r.units, func(u *Watcher) bool { return u.down != nil }) {
		return
	}
	interval := r.loaded.Values.Duration(OptionGroup, "driver_quarantine")
	loop := service.Loop{Clock: clock.RealClock{}, Name: "drivers that do not start", Logger: r.log, Delay: interval, Interval: interval, KeepGoing: true}
	_ = loop.Run(ctx, func(ctx context.Context) error { // it ends with ctx alone
		for _, u := range r.units {
			if u.down == nil {
				continue
			}
			if err := r.tryDown(ctx, u); err != nil {
				r.log.Error("driver still does not start", "driver", u.program.Name, "error", err)
				continue
			}
			d.takeIn(u)
			return nil
		}
		return nil
	})
}

// takeIn asks for a reload, as a SIGHUP from outside does.
func (d *Daemon) takeIn(u *Watcher) {
	if d.values().String(config.DefaultGroup, "restart_method") == service.RestartMutate {
		d.log.Warn("driver starts now; with restart_method = mutate only a new start of Raven takes it in", "driver", u.program.Name)
		return
	}
	d.log.Info("driver starts now: reloading to take it in", "driver", u.program.Name)
	select {
	case d.config.Signals <- syscall.SIGHUP:
	default: // one waits to be heard already
	}
}

// tryDown starts a driver as a reload would, and ends it.
func (r *runtime) tryDown(ctx context.Context, u *Watcher) error {
	p, err := inspectOne(ctx, u.program.Name, r.loaded.Values, u.program.Sandbox, r.loaded.version)
	if err = errors.Join(err, p.down); err != nil {
		return err
	}
	names, options := make([]string, 0, len(r.units)), Options()
	for _, other := range r.units {
		names = append(names, other.program.Name)
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
func (d *Daemon) startDown(ctx context.Context, r *runtime, u *Watcher) error {
	if err := r.tryDown(ctx, u); err != nil {
		return fmt.Errorf("it still does not start: %w", err)
	}
	d.takeIn(u)
	return errors.New("driver(" + u.program.Name + "): it starts now; Raven is reloading to take it in, see raven status")
}
