// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stop asks the services to stop, in reverse order, within the grace; then it tells them to end, all at once, within
// Force.
func (r *run) stop(base context.Context, reason error) error {
	if reason != nil {
		r.Logger.Error("stopping because a service failed", errAttr(reason), stackAttr(reason))
	}
	var over <-chan time.Time
	grace := r.Grace()
	r.Notify.stopping(grace, r.Force)
	if grace > 0 {
		timer := r.Clock.NewTimer(grace)
		defer timer.Stop()
		over = timer.C()
	}
	ctx, cancel := context.WithCancel(base)
	defer cancel()
	stopped := make(chan []error, 1)
	go func() { stopped <- r.stopInReverse(ctx) }()
	for {
		select {
		case errs := <-stopped:
			return errors.Join(append([]error{reason}, errs...)...)
		case s := <-r.signals:
			if s != syscall.SIGHUP {
				r.Logger.Warn("ending at once", "signal", s.String())
				return errors.Join(&ForcedError{Signal: s}, reason)
			}
		case <-r.tick:
			r.alive()
			if grace <= 0 {
				r.Notify.stopping(grace, r.Force)
			}
		case <-over:
			r.Logger.Warn("services did not stop in time, ending them", "services", r.unended())
			r.Notify.Status("ending what did not stop in time: %s", strings.Join(r.unended(), ", "))
			cancel()
			return errors.Join(r.force(base, stopped), reason)
		}
	}
}

// stopInReverse runs in a goroutine. It waits for a start and a reset that still run, so that no two calls but a
// second Stop ever meet in one service.
func (r *run) stopInReverse(ctx context.Context) []error {
	var errs []error
	if r.started != nil {
		select {
		case err := <-r.started:
			if err != nil { // cut short by this stop
				r.Logger.Info("start was given up", errAttr(err), stackAttr(err))
			}
		case <-ctx.Done():
			return errs
		}
	}
	if r.reset != nil {
		r.unreset()
		select {
		case <-r.reset:
		case <-ctx.Done():
			return errs
		}
	}
	for _, e := range slices.Backward(r.entries) {
		if err := r.stopOne(ctx, e); err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break // forced meanwhile
		}
	}
	return errs
}

func (r *run) stopOne(ctx context.Context, e *entry) error {
	if !e.started.Load() {
		return nil
	}
	select {
	case <-e.ended: // it failed, which is the reason of this stop, or is complete
		return nil
	default:
	}
	r.Notify.Status("stopping %s", e.name)
	if err := Guard(func() error { return e.service.Stop(ctx, true) }); err != nil {
		r.Logger.Error("service did not stop well", slog.String("service", e.name), errAttr(err), stackAttr(err))
		return &Failure{Service: e.name, Doing: "stopping", Err: err}
	}
	select {
	case <-e.ended:
	case <-ctx.Done():
		return nil
	}
	if e.err != nil && !errors.Is(e.err, context.Canceled) {
		return &Failure{Service: e.name, Doing: "stopping", Err: e.err}
	}
	r.Logger.Debug("service stopped", "service", e.name)
	return nil
}

// force ends what still runs: every context is cancelled and Stop is called without grace on all at once, since one
// of them hangs.
func (r *run) force(base context.Context, stopped <-chan []error) error {
	ctx, cancel := context.WithCancel(base)
	defer cancel()
	var calls sync.WaitGroup
	for _, e := range r.entries {
		if !e.started.Load() {
			continue
		}
		calls.Go(func() {
			e.cancel()
			if err := Guard(func() error { return e.service.Stop(ctx, false) }); err != nil {
				r.Logger.Error("service did not end well", slog.String("service", e.name), errAttr(err), stackAttr(err))
			}
			<-e.ended
		})
	}
	all := make(chan struct{})
	go func() { calls.Wait(); <-stopped; close(all) }()
	timer := r.Clock.NewTimer(r.Force)
	defer timer.Stop()
	for {
		select {
		case <-all:
			return ErrStopTimeout
		case <-timer.C():
			r.Logger.Error("services still run, leaving them", "services", r.unended())
			return ErrStopTimeout
		case s := <-r.signals:
			if s != syscall.SIGHUP {
				return errors.Join(&ForcedError{Signal: s}, ErrStopTimeout)
			}
		case <-r.tick:
			r.alive()
		}
	}
}

// unended names the services that have not ended.
func (r *run) unended() []string {
	var names []string
	for _, e := range r.entries {
		select {
		case <-e.ended:
		default:
			if e.started.Load() {
				names = append(names, e.name)
			}
		}
	}
	return names
}
