// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/watch"
)

// askedDriver is a Watcher's process as the engine asks it. It stays the same when the Watcher is stopped and started
// again.
type askedDriver struct{ w *Watcher }

// Info implements drivers.Driver.
func (d askedDriver) Info() drivers.Info { return d.w.driver().Info() }

// Watches implements drivers.Driver.
func (d askedDriver) Watches() []drivers.Watch { return d.w.driver().Watches() }

// Configure implements drivers.Driver.
func (d askedDriver) Configure(ctx context.Context, values drivers.Values) error {
	return d.w.Configure(ctx, values)
}

// Translate implements drivers.Driver. Without a process the error is host.ErrUnavailable.
func (d askedDriver) Translate(ctx context.Context, object drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
	return d.w.driver().Translate(ctx, object, needs)
}

// askedSource is a Watcher's watch task as the engine asks it. While it is stopped nothing is known.
type askedSource struct{ w *Watcher }

// Get implements reconcile.Source.
func (s askedSource) Get(key watch.Key) (drivers.Object, watch.Meta, watch.State) {
	if source := s.w.subscription(); source != nil {
		return source.Get(key)
	}
	return drivers.Object{}, watch.Meta{}, watch.Unknown
}

// Keys implements reconcile.Source.
func (s askedSource) Keys(name string) ([]watch.Key, bool) {
	if source := s.w.subscription(); source != nil {
		return source.Keys(name)
	}
	return nil, false
}

// Answer implements reconcile.Source.
func (s askedSource) Answer(need drivers.Need) ([]drivers.Object, watch.State) {
	if source := s.w.subscription(); source != nil {
		return source.Answer(need)
	}
	return nil, watch.Unknown
}

// Remember implements reconcile.Source.
func (s askedSource) Remember(owner watch.Key, needs []drivers.Need) {
	if source := s.w.subscription(); source != nil {
		source.Remember(owner, needs)
	}
}
