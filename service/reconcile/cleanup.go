package reconcile

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
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/octavia"
	"github.com/kuryr/raven/service/plan"
)

// CleanupCloud is what a cleanup needs of the cloud.
type CleanupCloud interface {
	Observe(ctx context.Context, cluster string) ([]plan.Observed, error)
	ObserveKind(ctx context.Context, kind drivers.Kind, cluster string) ([]plan.Observed, error)
	Delete(ctx context.Context, kind drivers.Kind, id string) error
	Detach(ctx context.Context, routerID, portID string) error
	Dependants(ctx context.Context, kind drivers.Kind, id string) ([]string, error)
}

// Cleanup removes what Raven made for a cluster that is gone: everything with the cluster's identity, in the order in which it
// can go, and nothing else. No driver and no Kubernetes API is asked, so that it must never run beside a Raven of that cluster, unless
// for a Driver that that one does not run.
type Cleanup struct {
	Cloud CleanupCloud
	// Northbound is OVN's northbound database, of the same cluster; nil where none is configured.
	Northbound Northbound
	Cluster    string
	// Driver limits it to what one driver, or the role that it holds, made for objects; what it shares with others stays. It must not
	// be enabled. Empty is everything.
	Driver string
	// Retained says that what was to outlive its object goes as well.
	Retained bool
	// Patience is how long it goes on when nothing can be removed any more, because of what others have there.
	Patience time.Duration
	Clock    clock.Clock
	// Removed is told after each resource, from several goroutines; it may be nil.
	Removed func(plan.Step)
}

// CleanupPlan is what a cleanup would do.
type CleanupPlan struct {
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

// cleanupWorkers is how many resources are removed at once; requests are bounded by the cloud's own limits besides.
const cleanupWorkers = 8

// cleanupPause is the time between two looks when nothing can be removed.
const cleanupPause = time.Second

// Plan says what Run would remove, and writes nothing.
func (c *Cleanup) Plan(ctx context.Context) (CleanupPlan, error) {
	m, unseen, err := c.observe(ctx)
	if err != nil {
		return CleanupPlan{}, err
	}
	p := CleanupPlan{Steps: compute(m).Steps, Names: map[string]string{}, Unseen: unseen}
	for _, e := range m.entries {
		if name, _ := e.Attrs["name"].(string); name != "" {
			p.Names[e.ID] = name
		}
		if e.Identity.Policy == drivers.Retain {
			p.Retained = append(p.Retained, e.Observed)
		}
	}
	slices.SortFunc(p.Retained, compareObserved)
	return p, nil
}

// Run removes what it can, and returns what it could not. It ends when nothing is left, when nothing has moved for Patience, or
// with ctx.
func (c *Cleanup) Run(ctx context.Context) ([]Leftover, error) {
	m, _, err := c.observe(ctx)
	if err != nil {
		return nil, err
	}
	moved := c.Clock.Now()
	looked := true // the mirror is fresh
	for {
		steps := compute(m).Steps
		if len(steps) == 0 && looked {
			return nil, nil
		}
		removed, failures := c.round(ctx, m, steps)
		switch {
		case ctx.Err() != nil:
			return leftovers(m, steps, failures), fmt.Errorf("cleaning up cluster %s: %w", c.Cluster, ctx.Err())
		case removed:
			moved, looked = c.Clock.Now(), false
			continue
		case len(steps) > 0 && c.Clock.Since(moved) >= c.Patience:
			return leftovers(m, steps, failures), nil
		case len(steps) > 0:
			if err := c.pause(ctx); err != nil {
				return leftovers(m, steps, failures), fmt.Errorf("cleaning up cluster %s: %w", c.Cluster, err)
			}
		}
		if m, _, err = c.observe(ctx); err != nil { // others work there too, and a create may have come late
			return nil, err
		}
		looked = true
	}
}

// observe lists everything of the cluster. Load balancers that a cloud has no service for are not looked for, and unseen says so: what
// they use cannot go, all else can. It says so of those in OVN, too, where no database is known.
func (c *Cleanup) observe(ctx context.Context) (m *mirror, unseen []string, err error) {
	observed, err := c.Cloud.Observe(ctx, c.Cluster)
	if err != nil {
		return nil, nil, fmt.Errorf("looking for what cluster %s has: %w", c.Cluster, err)
	}
	balancers, err := c.Cloud.ObserveKind(ctx, drivers.KindLoadBalancer, c.Cluster)
	switch {
	case errors.Is(err, octavia.ErrNoBalancing):
		unseen = []string{fmt.Sprintf("nobody has looked for load balancers: %v", err)}
	case err != nil:
		return nil, nil, fmt.Errorf("looking for the load balancers that cluster %s has: %w", c.Cluster, err)
	}
	if c.Northbound == nil {
		unseen = append(unseen, "nobody has looked for load balancers of OVN's: [ovn] nb_connection names no database; if driver kubeproxy ever served this "+
			"cluster, name it")
	}
	rows, err := listNorthbound(c.Northbound)
	if err != nil {
		return nil, nil, fmt.Errorf("looking for what cluster %s has: %w", c.Cluster, err)
	}
	m = newMirror()
	for _, o := range slices.Concat(observed, balancers, rows) {
		if c.Driver != "" && o.Identity.Owner.Driver != plan.ShortDriver(c.Driver) {
			continue
		}
		if c.Retained {
			o.Identity.Policy = drivers.Delete
		}
		m.put(o)
	}
	return m, unseen, nil
}

// compute plans the removal of everything in a mirror.
func compute(m *mirror) plan.Plan {
	in := plan.Input{Dependants: m.dependants, Prune: true}
	for _, e := range m.entries {
		in.Observed = append(in.Observed, e.Observed)
	}
	slices.SortFunc(in.Observed, compareObserved)
	return kinds.Compute(in)
}

// round removes what waits for nothing. It says whether anything went, and why the rest of it did not, by id.
func (c *Cleanup) round(ctx context.Context, m *mirror, steps []plan.Step) (removed bool, failures map[string]error) {
	var (
		mu    sync.Mutex
		group errgroup.Group
	)
	failures = map[string]error{}
	group.SetLimit(cleanupWorkers)
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
			m.remove(step.Kind, step.ID)
			if c.Removed != nil {
				c.Removed(step)
			}
			return nil
		})
	}
	_ = group.Wait() // failures are kept by id
	return removed, failures
}

func (c *Cleanup) remove(ctx context.Context, step plan.Step) error {
	var err error
	switch router, _ := step.Attrs["router_id"].(string); {
	case step.Op == plan.Detach:
		err = c.Cloud.Detach(ctx, router, step.ID)
	case step.Kind.Northbound():
		return c.Northbound.Delete(ctx, step.Kind, step.ID)
	default:
		err = c.Cloud.Delete(ctx, step.Kind, step.ID)
	}
	switch openstack.Classify(err) { //nolint:exhaustive // the others are as they are
	case openstack.ClassNotFound:
		return nil
	case openstack.ClassInUse:
		if users, derr := c.Cloud.Dependants(ctx, step.Kind, step.ID); derr == nil && len(users) > 0 {
			return inUseError{step, users}
		}
	}
	return err
}

func (c *Cleanup) pause(ctx context.Context) error {
	timer := c.Clock.NewTimer(cleanupPause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}

// leftovers says of each resource that is still there why.
func leftovers(m *mirror, steps []plan.Step, failures map[string]error) []Leftover {
	var left []Leftover
	for _, step := range steps {
		e := m.entries[resourceKey{step.Kind, step.ID}]
		if e == nil {
			continue // it went in the last round
		}
		name, _ := e.Attrs["name"].(string)
		l := Leftover{Kind: step.Kind, ID: step.ID, Name: name}
		if err := failures[step.ID]; err != nil {
			l.Reason = err.Error()
		} else {
			reasons := make([]string, 0, len(step.Waits))
			for _, w := range step.Waits {
				reasons = append(reasons, w.Message)
			}
			l.Reason = some(reasons)
		}
		if l.Reason = strings.TrimSpace(l.Reason); l.Reason == "" {
			l.Reason = "not tried"
		}
		left = append(left, l)
	}
	return left
}
