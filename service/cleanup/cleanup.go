// SPDX-License-Identifier: Apache-2.0

// Package cleanup removes what Raven made for a cluster that is gone. It must never run beside a Raven of that
// cluster, unless for a driver that that one does not run.
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// Cleanup removes what Raven made for a cluster that is gone: everything with the cluster's identity, in the order in
// which it can go, and nothing else. No driver and no Kubernetes API is asked.
type Cleanup struct {
	// Backends are the backends that it lists.
	Backends []*backend.Registration
	// Kinds describes the kinds of resources of all backends.
	Kinds   *plan.Kinds
	Cluster string
	// Driver limits it to what one driver, or the role that it holds, made for objects; what it shares with others
	// stays. It must not be enabled. Empty is everything.
	Driver string
	// Retained says that what was to outlive its object goes as well.
	Retained bool
	// Patience is how long it goes on when nothing can be removed any more, because of what others have there.
	Patience time.Duration
	Clock    clock.Clock
	// Removed is told after each resource, from several goroutines; it may be nil.
	Removed func(plan.Step)
}

// Preview is what a cleanup would do.
type Preview struct {
	// Steps are what goes, in the order of kinds.
	Steps []plan.Step `json:"steps"`
	// Retained is what stays because its policy says so.
	Retained []plan.Observed `json:"retained"`
	// Unseen says of what it is not known whether there is any; the rest can go all the same.
	Unseen []string `json:"unseen,omitempty"`
	// Names are the names that the cloud has for all of them, by id; a router interface has none.
	Names map[string]string `json:"names"`
}

// Leftover is a resource that could not be removed.
type Leftover struct {
	Kind   drivers.Kind `json:"kind"`
	ID     string       `json:"id"`
	Name   string       `json:"name"`
	Reason string       `json:"reason"`
}

// workers is how many resources are removed at once; requests are bounded by the cloud's own limits besides.
const workers = 8

// pause is the time between two lists when nothing can be removed.
const pause = time.Second

// Plan says what Run would remove, and writes nothing.
func (c *Cleanup) Plan(ctx context.Context) (Preview, error) {
	m, unseen, err := c.observe(ctx)
	if err != nil {
		return Preview{}, err
	}
	p := Preview{Steps: c.compute(m).Steps, Names: map[string]string{}, Unseen: unseen}
	for _, o := range m.All() {
		if name, _ := o.Attrs["name"].(string); name != "" {
			p.Names[o.ID] = name
		}
		if state.Retained(o) {
			p.Retained = append(p.Retained, o)
		}
	}
	return p, nil
}

// Run removes what it can, and returns what it could not. It ends when nothing is left, when nothing has moved for
// Patience, or with ctx.
func (c *Cleanup) Run(ctx context.Context) ([]Leftover, error) {
	m, _, err := c.observe(ctx)
	if err != nil {
		return nil, err
	}
	moved := c.Clock.Now()
	listed := true // the cache is fresh
	for {
		steps := c.compute(m).Steps
		if len(steps) == 0 && listed {
			return nil, nil
		}
		removed, failures := c.round(ctx, m, steps)
		switch {
		case ctx.Err() != nil:
			return leftovers(m, steps, failures), fmt.Errorf("cleaning up cluster %s: %w", c.Cluster, ctx.Err())
		case removed:
			moved, listed = c.Clock.Now(), false
			continue
		case len(steps) > 0 && c.Clock.Since(moved) >= c.Patience:
			return leftovers(m, steps, failures), nil
		case len(steps) > 0:
			if err := c.wait(ctx); err != nil {
				return leftovers(m, steps, failures), fmt.Errorf("cleaning up cluster %s: %w", c.Cluster, err)
			}
		}
		if m, _, err = c.observe(ctx); err != nil { // others work there too, and a create may have come late
			return nil, err
		}
		listed = true
	}
}

// observe lists everything of the cluster. What a cloud has no service for is not listed, and unseen says so:
// what it uses cannot go, all else can.
func (c *Cleanup) observe(ctx context.Context) (cache *state.Cache, unseen []string, err error) {
	cache = state.NewCache(c.Kinds)
	for _, b := range c.Backends {
		if b.Unconfigured != "" {
			unseen = append(unseen, fmt.Sprintf("%s was not listed: %s", b.Name, b.Unconfigured))
		}
		list, err := b.List(ctx, c.Cluster)
		switch {
		case errors.Is(err, backend.ErrAbsent):
			unseen = append(unseen, fmt.Sprintf("%s was not listed: %v", b.Name, err))
		case err != nil:
			return nil, nil, fmt.Errorf("listing in %s the resources of cluster %s: %w", b.Name, c.Cluster, err)
		}
		for _, o := range list {
			if c.Driver != "" && o.Identity.Owner.Driver != plan.ShortDriver(c.Driver) {
				continue
			}
			if c.Retained {
				o.Identity.Policy = drivers.Delete
			}
			cache.Put(o)
		}
	}
	return cache, unseen, nil
}

// compute plans the removal of everything in a cache.
func (c *Cleanup) compute(cache *state.Cache) plan.Plan {
	return c.Kinds.Compute(plan.Input{Observed: cache.All(), Dependants: cache.Dependants, Prune: true})
}

// round removes what waits for nothing. It says whether anything went, and why the rest of it did not, by id.
func (c *Cleanup) round(
	ctx context.Context, m *state.Cache, steps []plan.Step,
) (removed bool, failures map[string]error) {
	var (
		mu    sync.Mutex
		group errgroup.Group
	)
	failures = map[string]error{}
	group.SetLimit(workers)
	for _, step := range steps {
		if !step.Ready() {
			continue
		}
		group.Go(func() error {
			err := c.remove(ctx, step)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failures[step.ID] = err
				return nil
			}
			removed = true
			c.forget(m, step)
			if c.Removed != nil {
				c.Removed(step)
			}
			return nil
		})
	}
	_ = group.Wait() // failures are kept by id
	return removed, failures
}

// forget takes a resource that was removed out of a cache, and what was deleted with it.
func (c *Cleanup) forget(m *state.Cache, step plan.Step) {
	m.Remove(step.Kind, step.ID)
	contains := func(d plan.Descriptor) bool { return d.Container.Kind == step.Kind }
	if !slices.ContainsFunc(c.Kinds.List(), contains) {
		return
	}
	for _, o := range m.All() {
		container := c.Kinds.Of(o.Kind).Container
		if container.Kind == step.Kind && o.Attrs[container.Attribute] == step.ID {
			m.Remove(o.Kind, o.ID)
		}
	}
}

// remove has the backend of a kind remove one resource.
func (c *Cleanup) remove(ctx context.Context, step plan.Step) error {
	for _, b := range c.Backends {
		if slices.ContainsFunc(b.Kinds(), func(d plan.Descriptor) bool { return d.Kind == step.Kind }) {
			return b.Remove(ctx, step)
		}
	}
	return fmt.Errorf("no backend keeps resources of kind %s", step.Kind)
}

func (c *Cleanup) wait(ctx context.Context) error {
	timer := c.Clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}

// leftovers says of each resource that is still there why.
func leftovers(m *state.Cache, steps []plan.Step, failures map[string]error) []Leftover {
	var left []Leftover
	for _, step := range steps {
		o, there := m.Get(step.Kind, step.ID)
		if !there {
			continue // it went in the last round
		}
		name, _ := o.Attrs["name"].(string)
		l := Leftover{Kind: step.Kind, ID: step.ID, Name: name}
		if err := failures[step.ID]; err != nil {
			l.Reason = err.Error()
		} else {
			reasons := make([]string, 0, len(step.Waits))
			for _, w := range step.Waits {
				reasons = append(reasons, w.Message)
			}
			l.Reason = state.Some(reasons)
		}
		if l.Reason = strings.TrimSpace(l.Reason); l.Reason == "" {
			l.Reason = "not tried"
		}
		left = append(left, l)
	}
	return left
}
