// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/openstack/octavia"
)

// Whether a cloud's load balancers can have several addresses is left to Raven by [octavia_defaults] dual_stack = auto.
// Where the load balancing service cannot be asked when the drivers are launched it counts as new, and is asked again
// until it answers: it may be started after Raven.

const (
	vipsGroup  = "octavia_defaults"
	vipsOption = "dual_stack"
	vipsAuto   = "auto"
)

// vipsEvery is how often a load balancing service that did not answer is asked again.
const vipsEvery = 30 * time.Second

// singleVIPs says whether the cloud's load balancers have one address only.
func (r *runtime) singleVIPs(ctx context.Context) (bool, error) {
	asking, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	several, err := r.cloud.Octavia.AdditionalVIPs(asking)
	return err == nil && !several, err
}

// knownVIPs says whether that was answered, at the first time.
func (r *runtime) knownVIPs(ctx context.Context, err error) bool {
	if err == nil {
		return true
	}
	level := slog.LevelWarn
	if errors.Is(err, octavia.ErrNoBalancing) {
		level = slog.LevelDebug // most likely none is wanted
	}
	r.log.Log(ctx, level, "asking for the versions of the load balancing service; until it answers it counts as new",
		"error", err)
	return false
}

// separateVIPs decides what was left to Raven: a cloud whose load balancers have one address makes one for each address
// of a Service. It says whether that was left to it.
func separateVIPs(values drivers.Values) bool {
	if values.String(vipsGroup, vipsOption) != vipsAuto {
		return false
	}
	values[vipsGroup][vipsOption] = "separate"
	return true
}

// untilKnown asks until it is known whether load balancers have one address only, and calls single if so, until that is
// taken.
func untilKnown(
	ctx context.Context, clk clock.Clock, every time.Duration,
	ask func(context.Context) (bool, error), single func(context.Context) error,
) error {
	loop := service.Dynamic{Clock: clk, Name: "addresses of load balancers", Delay: every}
	return loop.Run(ctx, func(ctx context.Context) (time.Duration, error) {
		one, err := ask(ctx)
		if one {
			err = single(ctx)
		}
		if err == nil {
			return 0, service.ErrDone
		}
		return every, nil
	})
}

// reconfigurable is a driver that can be told other values while it runs.
type reconfigurable interface {
	Configure(ctx context.Context, values drivers.Values) error
}

// separateLater has a driver that runs make a load balancer for each address, if that was left to Raven, and its
// objects translated anew.
func separateLater(ctx context.Context, log *slog.Logger, name string, driver reconfigurable, values drivers.Values,
	replay func(string),
) error {
	if !separateVIPs(values) {
		return nil
	}
	if err := driver.Configure(ctx, values); err != nil {
		log.WarnContext(ctx, "telling a driver that the cloud's load balancers have one address; it is told again",
			"driver", name, "error", err)
		return err
	}
	log.InfoContext(ctx, "the cloud's load balancers have one address: each address of a Service gets one", "driver", name)
	replay(name)
	return nil
}

// learnVIPs asks what could not be asked when the drivers were launched.
func (r *runtime) learnVIPs(ctx context.Context) {
	err := untilKnown(ctx, clock.RealClock{}, vipsEvery, r.singleVIPs, func(ctx context.Context) error {
		var errs []error
		for w := range r.launched() { // a reload that brings another asks anew
			errs = append(errs, separateLater(ctx, r.log, w.Name(), w, r.loaded.valuesFor(w.Program()), r.engine().Replay))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		r.log.ErrorContext(ctx, "asking whether load balancers have one address has ended", "error", err)
	}
}
