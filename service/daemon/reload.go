// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/log"
)

// Reset reads the configuration again. A bad one, or one with which a side cannot be reached or a driver not be
// launched, changes nothing; a good one takes the place of the old one. If neither works any more, both are tried until
// one does: a cloud that is away for a while ends no daemon. Where nothing but drivers' programs is new, only those are
// started anew.
func (d *Daemon) Reset(ctx context.Context) error {
	if d.stopWaiting() {
		return d.reconfigure(ctx)
	}
	return d.told(d.reload(ctx))
}

func (d *Daemon) reload(ctx context.Context) error {
	l, err := d.config.Loader.loadDespite(ctx, d.without)
	if err != nil {
		return fmt.Errorf("the new configuration is not taken over: %w", err)
	}
	d.logs.Redactor().Add(l.secrets()...)
	l.logWarnings(d.log)
	var taken, refused []config.Change
	l.Values, taken, refused = config.Reload(d.values(), l.Values)
	if replaced := d.upgraded(l, slices.Concat(taken, refused)); len(replaced) > 0 {
		err := d.upgrade(ctx, replaced)
		if !errors.Is(err, errOtherWatches) {
			return errors.Join(err, d.logs.Reset(ctx))
		}
	}
	if err := d.current().mayDropOVN(l.Values); err != nil {
		return fmt.Errorf("the new configuration is not taken over: %w", err)
	}
	next, err := prepare(ctx, l, d.log, d.candidacy())
	if err != nil {
		return fmt.Errorf("the new configuration is not taken over: %w", err)
	}
	if err := d.logs.Reset(ctx); err != nil {
		next.stop(context.WithoutCancel(ctx))
		return fmt.Errorf("the new configuration is not taken over: %w", err)
	}
	d.logChanges(taken, refused)
	d.state.NotReady("reloading")
	if err := d.end(ctx); err != nil {
		d.log.Warn("stopping what the old configuration ran", "error", err)
	}
	err = d.take(ctx, next)
	if err == nil {
		d.logs.SetLevel(log.FromConfig(l.Values, "raven").Level)
		return nil
	}
	return d.recover(ctx, l, err)
}

// Mutate reads the configuration again and takes over the mutable options in place; connections, drivers and work go
// on. A bad one changes nothing.
func (d *Daemon) Mutate(ctx context.Context) error { return d.told(d.mutate(ctx)) }

// told shows whoever looks at the daemon that its files are not what is in force, until a reload succeeds.
func (d *Daemon) told(err error) error {
	d.reloads.note(err)
	switch {
	case d.current() == nil: // neither works, or it stops
	case err != nil:
		d.state.Degraded("the last reload failed, what was configured before is in force: " +
			d.logs.Redactor().Text(err.Error()))
	default:
		d.state.Ready()
	}
	return err
}

func (d *Daemon) mutate(ctx context.Context) error {
	l, err := d.config.Loader.loadDespite(ctx, d.without)
	if err != nil {
		return fmt.Errorf("the new configuration is not taken over: %w", err)
	}
	d.logs.Redactor().Add(l.secrets()...)
	l.logWarnings(d.log)
	now, taken, refused := config.Mutate(d.values(), l.Values)
	if err := d.logs.Reset(ctx); err != nil {
		return fmt.Errorf("the new configuration is not taken over: %w", err)
	}
	d.mu.Lock()
	mutated := *d.loaded
	mutated.Values = now
	d.loaded = &mutated
	d.mu.Unlock()
	d.logs.SetLevel(log.FromConfig(now, "raven").Level)
	d.logChanges(taken, refused)
	return nil
}

// logChanges says what a SIGHUP changed, from where, and what it did not.
func (d *Daemon) logChanges(taken, refused []config.Change) {
	for _, change := range taken {
		d.log.Info("configuration changed", "change", change.String())
	}
	for _, change := range refused {
		how := "restart_method = reload, or a new start, takes it over"
		if change.StartOnly {
			how = "a new start takes it over"
		}
		d.log.Warn("configuration changed, but the old value stays in force", "change", change.String(), "needs", how)
	}
}

// recover tries the configuration that was in force and the new one in turn until one works or ctx ends.
func (d *Daemon) recover(ctx context.Context, l *Settings, err error) error {
	d.mu.Lock()
	previous := d.loaded
	d.mu.Unlock()
	d.log.Error("the new configuration does not work, going back to the old one", "error", err)
	retry := service.BackOff{Clock: clock.RealClock{}, Initial: time.Second, Max: time.Minute}
	try := previous
	ended := retry.Run(ctx, func(ctx context.Context) error {
		again := d.begin(ctx, try)
		if again == nil {
			return service.ErrDone
		}
		d.state.NotReady("neither the old nor the new configuration works: " + again.Error())
		d.log.Error("neither the old nor the new configuration works; trying again", "error", again)
		if try == previous {
			try = l
		} else {
			try = previous
		}
		return again
	})
	d.mu.Lock()
	now := d.loaded
	d.mu.Unlock()
	if ended == nil && now == l {
		d.logs.SetLevel(log.FromConfig(l.Values, "raven").Level)
		d.log.Info("the new configuration works now")
		return nil
	}
	return errors.Join(err, ended)
}
