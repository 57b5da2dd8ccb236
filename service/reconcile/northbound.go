package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack/octavia"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/plan"
)

// What is kept in OVN's northbound database goes the way of everything else: observed, planned, applied, swept. Only what is here differs:
//
//	away                   nothing is known; what is known stays as it is, what concerns it waits, all else goes on
//	changed by others      told at once by the database, and mended; the drift check finds nothing new there
//	Neutron's row missing  a switch or router that has to join a group: waited for, woken by its arrival
//	VIP taken              by another Service of the same group: the first one has it, the other one is told, and woken when it is free
//	none configured        who wants such resources is told so

// Northbound is OVN's northbound database. Its errors are those of package ovn.
type Northbound interface {
	List(kind drivers.Kind) ([]plan.Observed, error)
	Get(kind drivers.Kind, id string) (plan.Observed, bool, error)
	Create(ctx context.Context, kind drivers.Kind, identity plan.Identity, attrs map[string]any) (plan.Observed, error)
	Update(ctx context.Context, kind drivers.Kind, id string, attrs map[string]any) (plan.Observed, error)
	Delete(ctx context.Context, kind drivers.Kind, id string) error
}

// noNorthbound is what those are told who want OVN load balancers where there is no database.
func noNorthbound() error {
	return terminalError{errors.New("there is no database to keep it in: set [ovn] nb_connection to the servers of OVN's northbound database")}
}

// northboundState is what the store knows of the database beside its rows.
type northboundState struct {
	configured bool
	seen       bool  // it was listed once
	away       error // why it could not be listed last time
	balancers  bool  // Octavia was listed once
	// withheld are those whose load balancer in OVN waits for Octavia to be seen.
	withheld map[plan.Owner]bool
	told     bool // something was told of it before the cloud was observed
}

// waitNorthbound is the database, for those who found it away; waitRow a row that others make.
func waitNorthbound() waitKey     { return waitKey{what: "northbound"} }
func waitRow(name string) waitKey { return waitKey{what: "row", name: name} }
func northboundKinds() []drivers.Kind {
	return []drivers.Kind{drivers.KindOVNLoadBalancerGroup, drivers.KindOVNLoadBalancer}
}

// listNorthbound lists what is ours in the database. Where none is configured there is nothing.
func listNorthbound(n Northbound) ([]plan.Observed, error) {
	if n == nil {
		return nil, nil
	}
	var all []plan.Observed
	for _, kind := range northboundKinds() {
		list, err := n.List(kind)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// northboundListed notes how listing went, and returns what counts as listed: what is known already, if it could not be. The store is locked.
func (s *store) northboundListed(rows []plan.Observed, err error) []plan.Observed {
	s.northbound.away = err
	if err == nil {
		s.northbound.seen = true
		return rows
	}
	rows = nil
	for _, kind := range northboundKinds() {
		rows = append(rows, s.cloud.ofKind(kind)...)
	}
	return rows
}

// withholdUnseen takes out of a plan Octavia's load balancers as long as nobody has seen whether one of OVN's, made before this process began,
// still serves: two must not. It says so. For the other way round see vetUnseen: there it takes out only that a floating IP leaves a port, which
// may be that of a load balancer which nobody has seen. The store is locked.
func (s *store) withholdUnseen(o *owner, p *plan.Plan) string {
	text := ""
	away := s.octaviaUnseen()
	p.Steps = slices.DeleteFunc(p.Steps, func(step plan.Step) bool {
		if away != nil && step.Op == plan.Update && step.Kind == drivers.KindFloatingIP && leaves(step) && wantsInstead(o.set, drivers.KindLoadBalancer) {
			text = fmt.Sprintf("waiting for the load balancing service, where the floating IP may lead to a load balancer of this Service: %v", away)
			return true
		}
		if step.Op != plan.Create || step.Kind != drivers.KindLoadBalancer || !s.northbound.configured || s.northbound.seen {
			return false
		}
		text = fmt.Sprintf("waiting for OVN's northbound database, where a load balancer of this Service may still be, and serve with the endpoints that it had: %v", s.northbound.away)
		return true
	})
	if text != "" {
		p.Pending = append(p.Pending, plan.Wait{Message: text})
	}
	return text
}

// octaviaUnseen is why Octavia could not be read since this process began; nil if it was, or if there is none. The store is locked.
func (s *store) octaviaUnseen() error {
	if s.northbound.balancers || errors.Is(s.balancerState.away, octavia.ErrNoBalancing) {
		return nil
	}
	return s.balancerState.away
}

// leaves says whether a floating IP leaves a port.
func leaves(step plan.Step) bool {
	value, changes := step.Attrs["port_id"]
	return changes && textOf(value) == "" && textOf(step.Old["port_id"]) != ""
}

func (e *Engine) createNorthbound(ctx context.Context, step plan.Step) (plan.Observed, error) {
	if e.config.Northbound == nil {
		return plan.Observed{}, noNorthbound()
	}
	made, err := e.config.Northbound.Create(ctx, step.Kind, step.Identity, step.Attrs)
	if err == nil {
		e.handedOver(made)
	}
	return made, err
}

// changeNorthbound applies a step on a resource that is there.
func (e *Engine) changeNorthbound(ctx context.Context, step plan.Step) (plan.Observed, error) {
	if e.config.Northbound == nil {
		return plan.Observed{}, noNorthbound()
	}
	if step.Op == plan.Delete {
		if err := e.config.Northbound.Delete(ctx, step.Kind, step.ID); err != nil {
			return plan.Observed{}, err
		}
		e.leaves(step)
		e.depart(step.Kind, step.ID)
		return plan.Observed{}, nil
	}
	now, err := e.config.Northbound.Update(ctx, step.Kind, step.ID, step.Attrs)
	if err == nil {
		e.arrive(now)
	}
	return now, err
}

// rereadNorthbound takes over a resource as it is now, and says whether it is gone.
func (e *Engine) rereadNorthbound(kind drivers.Kind, id string) (gone bool, err error) {
	if e.config.Northbound == nil {
		return false, noNorthbound()
	}
	now, there, err := e.config.Northbound.Get(kind, id)
	switch {
	case err != nil:
		return false, err
	case there:
		e.arrive(now)
		return false, nil
	}
	e.depart(kind, id)
	return true, nil
}

// afterNorthbound brings what is known up to date with a step that failed.
func (e *Engine) afterNorthbound(fail stepError) error {
	var gone *ovn.GoneError
	if errors.As(fail.err, &gone) && fail.step.ID != "" {
		if _, err := e.rereadNorthbound(fail.step.Kind, fail.step.ID); err != nil {
			return stepError{step: fail.step, err: err}
		}
		return mendedError{fail}
	}
	return fail
}

func (e *Engine) northboundVerdict(f stepError) verdict {
	var (
		away    *ovn.AwayError
		missing *ovn.MissingError
		invalid *ovn.InvalidError
		taken   *ovn.ConflictError
		outside unplacedError
	)
	switch {
	case errors.As(f.err, &away):
		return verdict{phase: Waiting, next: result{again: e.config.SlowRetry}, waits: []waitKey{waitNorthbound()}, quiet: true}
	case errors.As(f.err, &missing):
		v := verdict{phase: Waiting, next: result{again: e.config.SlowRetry}, quiet: true}
		for _, row := range missing.Rows { // any of them is something to go on with
			v.waits = append(v.waits, waitRow(row))
		}
		return v
	case errors.As(f.err, &taken):
		return verdict{phase: Waiting, next: result{again: e.config.SlowRetry}, waits: []waitKey{waitGone(taken.Holder)}}
	case errors.As(f.err, &outside): // that nobody says more of it wakes nobody
		return verdict{phase: Waiting, next: result{backoff: true}, waits: outside.waits, patient: !outside.conflict}
	case errors.As(f.err, &invalid):
		return verdict{phase: Terminal}
	}
	return verdict{phase: Failing, next: result{backoff: true}}
}

// contributePlaces puts the networks and routers into a group that others contribute. Nothing but Raven has others join its groups, so that
// no account is kept; until all have answered, who is in the group stays.
func (s *store) contributePlaces(w *want, r drivers.Resource, d *plan.Desired) {
	there, _ := s.cloud.find(d.Identity, d.Kind)
	elements := s.elementsFor(w, r, there)
	complete := s.complete()
	for _, name := range []string{"networks", "routers"} {
		ids := map[string]bool{}
		for _, value := range listOf(s.known(w, d.Attrs[name])) {
			if id, ok := value.(string); ok && id != "" {
				ids[id] = true
			}
		}
		for _, el := range elements {
			if id, ok := el.value.(string); ok && el.attribute == name && id != "" {
				ids[id] = true
			}
		}
		for _, value := range listOf(there.Attrs[name]) {
			if id, ok := value.(string); ok && !complete && !ids[id] {
				ids[id], w.keeps = true, true
			}
		}
		list := make([]any, 0, len(ids))
		for id := range ids {
			list = append(list, id)
		}
		slices.SortFunc(list, func(a, b any) int { return strings.Compare(textOf(a), textOf(b)) })
		d.Attrs[name] = list
	}
}

// FollowNorthbound returns who is to be told what changes in the database by itself.
func (e *Engine) FollowNorthbound() ovn.Follower { return &northboundFollower{e: e} }

type northboundFollower struct {
	e  *Engine
	mu sync.Mutex // one thing after another
}

// Changed implements ovn.Follower: what is not as it was is looked at by whoever it is of.
func (f *northboundFollower) Changed(list []ovn.Resource) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.e
	drifted := 0
	for _, r := range list {
		begun, ready := e.listensToNorthbound()
		if !ready {
			return
		}
		now, there, err := e.config.Northbound.Get(r.Kind, r.ID)
		if err != nil {
			break // it is told when the database is back
		}
		var woken []item
		e.store.do(func() {
			items, differs := e.store.northboundSeen(resourceKey{r.Kind, r.ID}, now, there, begun)
			if woken = items; differs {
				drifted++
			}
		})
		e.wakeAll(woken)
	}
	e.northboundDrifted(drifted)
}

// Arrived implements ovn.Follower.
func (f *northboundFollower) Arrived(rows []string) {
	var woken []item
	f.e.store.do(func() {
		for _, row := range rows {
			woken = append(woken, f.e.store.wake(waitRow(row))...)
		}
	})
	f.e.wakeAll(woken)
}

// Back implements ovn.Follower: all of it is looked at, and who waited goes on.
func (f *northboundFollower) Back() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.e.takeNorthbound()
}

// listensToNorthbound says since when what is read of the database counts. Before the cloud was observed for the first time nothing is taken over:
// then all is listed, and once more if something was told meanwhile.
func (e *Engine) listensToNorthbound() (begun uint64, ready bool) {
	e.store.do(func() {
		begun, ready = e.store.cloud.tick, !e.store.synced.IsZero()
		e.store.northbound.told = e.store.northbound.told || !ready
	})
	return begun, ready
}

// takeNorthbound takes over all that is ours in the database, as one list, and wakes who waited for it.
func (e *Engine) takeNorthbound() {
	begun, ready := e.listensToNorthbound()
	if !ready {
		return
	}
	listed, err := listNorthbound(e.config.Northbound)
	if err != nil {
		return // it is told when the database is back again
	}
	drifted := 0
	var woken []item
	e.store.do(func() {
		s := e.store
		see := func(key resourceKey, now plan.Observed, there bool) {
			items, differs := s.northboundSeen(key, now, there, begun)
			if woken = append(woken, items...); differs {
				drifted++
			}
		}
		seen := map[resourceKey]bool{}
		for _, o := range listed {
			key := resourceKey{o.Kind, o.ID}
			seen[key] = true
			see(key, o, true)
		}
		for _, kind := range northboundKinds() {
			for _, o := range s.cloud.ofKind(kind) {
				if key := (resourceKey{o.Kind, o.ID}); !seen[key] {
					see(key, plan.Observed{}, false)
				}
			}
		}
		first := !s.northbound.seen
		s.northboundListed(nil, nil)
		woken = append(woken, s.wake(waitNorthbound())...)
		if first { // load balancers of Octavia's may have waited to see whether some of OVN's are there
			for _, o := range s.owners {
				if o.balanced {
					woken = append(woken, o.item)
				}
			}
		}
	})
	e.wakeAll(woken)
	e.northboundDrifted(drifted)
}

// northboundSeen takes over a resource as it was read since a tick, unless it was written to after that. It returns who must look, and whether
// it is not as it was known. The store is locked.
func (s *store) northboundSeen(key resourceKey, now plan.Observed, there bool, begun uint64) (woken []item, differs bool) {
	old := s.cloud.entries[key]
	switch {
	case old != nil && old.written > begun || s.cloud.removed[key] > begun:
	case !there && old != nil:
		return s.departed(key.kind, key.id), true
	case there:
		if _, differs := s.cloud.put(now); differs {
			return append(s.announce(now, true), s.ownerItem(now.Identity.Owner)...), true
		}
	}
	return nil, false
}

func (e *Engine) northboundDrifted(n int) {
	if n > 0 {
		e.metrics.drift(n)
		e.log.Info("rows of ours in OVN's northbound database were changed by others", "resources", n)
	}
}
