package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// apply applies one step and brings the mirror up to date.
func (e *Engine) apply(ctx context.Context, o *owner, step plan.Step) error {
	if step.Kind == drivers.KindLoadBalancer && step.Op == plan.Delete && step.Part == nil {
		if err := e.vet(ctx, o, step); err != nil {
			return err
		}
	}
	if step.Op == plan.Delete && step.Part == nil {
		if err := e.vetHandover(ctx, o, step.Kind); err != nil {
			return err
		}
	}
	if step.Op == plan.Create && step.Kind == drivers.KindOVNLoadBalancer {
		if err := e.vetUnseen(ctx, o, step); err != nil {
			return err
		}
	}
	before := e.tick(step)
	made, err := e.write(ctx, &step)
	e.metrics.step(step, err)
	if err != nil {
		return e.afterFailure(ctx, step, before, err)
	}
	name, _ := made.Attrs["name"].(string)
	attrs := []any{
		"op", step.Op, "kind", step.Kind, "name", cmp.Or(name, step.Identity.Name), "id", cmp.Or(step.ID, made.ID),
		"object", o.target.String(), "driver", o.item.driver,
	}
	if step.Op != plan.Create {
		attrs = append(attrs, "reason", step.Reason)
	}
	e.log.InfoContext(ctx, "applied", attrs...)
	return nil
}

// write asks the cloud for what a step says. A create may give the step further attributes.
func (e *Engine) write(ctx context.Context, step *plan.Step) (plan.Observed, error) {
	if step.Kind == drivers.KindLoadBalancer && step.ID != "" {
		return e.changeBalancer(ctx, step)
	}
	if step.Kind.Northbound() && step.ID != "" {
		return e.changeNorthbound(ctx, *step)
	}
	switch step.Op {
	case plan.Failover: // only load balancers have it
	case plan.Create:
		made, err := e.create(ctx, step)
		if err == nil {
			e.encourage(*step)
			e.noteVIPs(*step, made)
		}
		return made, err
	case plan.Update:
		made, err := e.cloud.Update(ctx, step.Kind, step.ID, step.Revision, step.Attrs)
		if err == nil {
			e.arrive(made)
		}
		return made, err
	case plan.Delete:
		if err := e.cloud.Delete(ctx, step.Kind, step.ID); err != nil {
			return plan.Observed{}, err
		}
		e.depart(step.Kind, step.ID)
	case plan.Tag:
		if err := e.retag(ctx, *step); err != nil {
			return plan.Observed{}, err
		}
		e.tagged(*step)
	case plan.Attach:
		router, _ := step.Attrs["router_id"].(string)
		if err := e.cloud.Attach(ctx, router, step.ID); err != nil {
			return plan.Observed{}, err
		}
		_, err := e.reread(ctx, step.Kind, step.ID)
		return plan.Observed{}, err
	case plan.Detach:
		router, _ := step.Attrs["router_id"].(string)
		if err := e.cloud.Detach(ctx, router, step.ID); err != nil {
			return plan.Observed{}, err
		}
		e.depart(step.Kind, step.ID)
	}
	return plan.Observed{}, nil
}

func (e *Engine) arrive(r plan.Observed) {
	if r.Kind == drivers.KindLoadBalancer {
		e.takeBalancer(r)
		return
	}
	var woken []item
	e.store.do(func() { woken = e.store.arrived(r) })
	e.wakeAll(woken)
}

func (e *Engine) depart(kind drivers.Kind, id string) {
	var woken []item
	e.store.do(func() { woken = e.store.departed(kind, id) })
	e.wakeAll(woken)
}

// encourage lets others that wait for quota or for room try as well, since there was some: two, who encourage four.
func (e *Engine) encourage(step plan.Step) {
	var woken []item
	e.store.do(func() {
		woken = e.store.wakeSome(waitQuota(step.Kind))
		if network, ok := step.Attrs["network_id"].(string); ok && step.Kind == drivers.KindPort {
			woken = append(woken, e.store.wakeSome(waitRoom(network))...)
		}
	})
	e.wakeAll(woken)
}

// noteVIPs remembers that a provider made none of the further addresses of a load balancer, so that it is not asked for ever.
func (e *Engine) noteVIPs(step plan.Step, made plan.Observed) {
	if step.Kind == drivers.KindLoadBalancer && len(listOf(step.Attrs["additional_vips"])) > len(listOf(made.Attrs["additional_vips"])) {
		e.store.do(func() { e.store.unmade[provider(made)] = true })
	}
}

// tick says how often quota, or room for a port, may have become free so far.
func (e *Engine) tick(step plan.Step) uint64 {
	network, _ := step.Attrs["network_id"].(string)
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	return e.store.ticks[waitQuota(step.Kind)] + e.store.ticks[waitRoom(network)]
}

func (e *Engine) retag(ctx context.Context, step plan.Step) error {
	if remove, _ := step.Attrs["remove"].([]string); len(remove) > 0 {
		if err := e.cloud.RemoveTags(ctx, step.Kind, step.ID, remove); err != nil {
			return err
		}
	}
	missing, _ := step.Attrs["tags"].([]string)
	return e.cloud.AddTags(ctx, step.Kind, step.ID, missing)
}

// tagged notes tags that were written. Their resource has another revision now, which is read when it is needed: an update
// that comes too late is told so.
func (e *Engine) tagged(step plan.Step) {
	e.store.do(func() {
		if known, ok := e.store.cloud.get(step.Kind, step.ID); ok {
			e.store.cloud.put(retagged(known, step))
		}
	})
}

// retagged is a resource after a change of its tags.
func retagged(o plan.Observed, step plan.Step) plan.Observed {
	missing, _ := step.Attrs["tags"].([]string)
	remove, _ := step.Attrs["remove"].([]string)
	o.Tags = slices.DeleteFunc(slices.Clone(o.Tags), func(tag string) bool { return slices.Contains(remove, tag) })
	o.Tags = append(o.Tags, missing...)
	o.Identity, o.Managed = plan.Parse(o.Tags, o.Description)
	return o
}

// reread takes over one resource as it is now, and says whether it is gone.
func (e *Engine) reread(ctx context.Context, kind drivers.Kind, id string) (gone bool, err error) {
	if kind == drivers.KindLoadBalancer {
		return e.rereadBalancer(ctx, id)
	}
	if kind.Northbound() {
		return e.rereadNorthbound(kind, id)
	}
	r, err := e.cloud.Get(ctx, kind, id)
	if openstack.Classify(err) == openstack.ClassNotFound {
		e.depart(kind, id)
		return true, nil
	}
	if err != nil {
		return false, err
	}
	e.arrive(r)
	return false, nil
}

// afterFailure brings what is known up to date with a failed step. It returns a mendedError where planning anew may be all that
// is needed.
func (e *Engine) afterFailure(ctx context.Context, step plan.Step, tick uint64, err error) error {
	fail := stepError{step: step, err: err, missed: e.tick(step) != tick}
	if step.Kind.Northbound() {
		return e.afterNorthbound(fail)
	}
	if step.Kind == drivers.KindLoadBalancer {
		if known := e.afterBalancer(ctx, fail); known != nil {
			return known
		}
	}
	if step.Kind == drivers.KindFloatingIP && step.Op == plan.Create {
		if known := e.afterFloatingIP(ctx, fail); known != nil {
			return known
		}
	}
	switch openstack.Classify(err) { //nolint:exhaustive // the other classes leave nothing to mend here
	case openstack.ClassAmbiguous:
		if step.Op == plan.Create {
			now := e.clock.Now()
			e.store.do(func() {
				e.store.doubts[identityKey(step.Kind, step.Identity)] = doubt{now, now.Add(e.config.AmbiguousWait)}
			})
		}
	case openstack.ClassExists:
		if step.Op != plan.Create {
			return fail
		}
		adopted, lerr := e.adoptExisting(ctx, step)
		if lerr != nil {
			return stepError{step: step, err: lerr}
		}
		if adopted {
			return mendedError{fail}
		}
	case openstack.ClassStale:
		if _, rerr := e.reread(ctx, step.Kind, step.ID); rerr != nil {
			return stepError{step: step, err: rerr}
		}
		return mendedError{fail}
	case openstack.ClassNotFound:
		return e.afterMissing(ctx, fail)
	case openstack.ClassSubnetFull:
		if !fail.missed { // otherwise what is full now may have room
			fail.note = e.markFull(step)
		}
	case openstack.ClassInUse:
		if users, derr := e.cloud.Dependants(ctx, step.Kind, step.ID); derr == nil && len(users) > 0 {
			return inUseError{step, users}
		}
	}
	return fail
}

// afterMissing looks what is gone: the resource itself, something of ours that it refers to, or something foreign, which only
// somebody else can bring back.
func (e *Engine) afterMissing(ctx context.Context, fail stepError) error {
	step := fail.step
	if step.ID != "" {
		gone, err := e.reread(ctx, step.Kind, step.ID)
		if err != nil {
			return stepError{step: step, err: err}
		}
		if gone {
			return mendedError{fail}
		}
	}
	found := false
	for _, key := range e.spokenOf(step, &found) {
		// Many steps may speak of the same resource: it is read once for all of them.
		gone, err, _ := e.single.Do(key.id, func() (any, error) { return e.reread(ctx, key.kind, key.id) })
		if err != nil {
			return stepError{step: step, err: err}
		}
		found = found || gone == true
	}
	if found {
		return mendedError{fail}
	}
	fail.foreign = true
	return fail
}

// spokenOf lists the resources of ours that a step refers to. What an operator named is looked up again at the next try; it
// says whether there was any of that.
func (e *Engine) spokenOf(step plan.Step, lookups *bool) []resourceKey {
	ids := references(plan.Observed{Kind: step.Kind, Attrs: step.Attrs})
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	var known []resourceKey
	for key := range e.store.cloud.entries {
		if slices.Contains(ids, key.id) {
			known = append(known, key)
		}
	}
	for l, o := range e.store.lookups {
		if slices.Contains(ids, o.ID) {
			delete(e.store.lookups, l)
			*lookups = true
		}
	}
	return known
}

// doubtful says whether a create of this identity was cut and may still commit, so that a second one would make two. Neutron
// refuses the second port, since its MAC address comes from its identity, and the second rule of a security group.
func (s *store) doubtful(step plan.Step, now time.Time) bool {
	switch step.Kind { //nolint:exhaustive // the others can be there twice
	case drivers.KindPort, drivers.KindRouterInterface, drivers.KindSecurityGroupRule:
		return false
	}
	d, ok := s.doubts[identityKey(step.Kind, step.Identity)]
	return ok && now.Before(d.until)
}

// resolveDoubts looks for the outcome of creates that were cut. It says whether it found one.
func (e *Engine) resolveDoubts(ctx context.Context, p plan.Plan, try *attempt) bool {
	found := false
	for _, step := range p.Steps {
		if step.Op != plan.Create || len(step.Waits) > 0 || try.failed[keyOf(step)] != nil {
			continue
		}
		key := identityKey(step.Kind, step.Identity)
		var (
			d               doubt
			known, doubtful bool
		)
		e.store.do(func() { d, known = e.store.doubts[key] })
		if !known {
			continue
		}
		now := e.clock.Now() // before the list: what commits after it counts as not seen
		adopted, err := e.adoptExisting(ctx, step)
		e.store.do(func() { doubtful = e.store.doubtful(step, now) })
		switch {
		case err != nil:
			try.failed[keyOf(step)] = err
		case adopted:
			found = true
		case doubtful:
			try.failed[keyOf(step)] = ambiguousError{step, d, now}
		case !now.Before(d.until):
			e.store.do(func() { delete(e.store.doubts, key) })
		}
	}
	return found
}

// adoptExisting takes what carries the step's identity already, and says whether there was any.
func (e *Engine) adoptExisting(ctx context.Context, step plan.Step) (bool, error) {
	list, err := e.cloud.ListIdentity(ctx, step.Kind, step.Identity)
	if err != nil {
		return false, fmt.Errorf("looking for the %s %q that may have been created: %w", step.Kind, step.Identity.Name, err)
	}
	for _, r := range list {
		e.arrive(r)
	}
	return len(list) > 0, nil
}

// markFull notes that the subnets of a port's network are full, so that an expandable one grows. It says, for people, where
// that ends.
func (e *Engine) markFull(step plan.Step) (note string) {
	network, _ := step.Attrs["network_id"].(string)
	s := e.store
	var woken []item
	s.do(func() {
		for _, subnet := range s.cloud.subnetsOf(network) {
			base, owner, most := s.expandable(subnet.Identity)
			if base == nil {
				continue
			}
			n := s.expansions(*base)
			note = fmt.Sprintf("its network has %d of at most %d subnets", n, most)
			if n >= most {
				note += ": allow it more of them, or larger ones"
				continue
			}
			if s.full[identityKey(drivers.KindSubnet, *base)] != n {
				s.full[identityKey(drivers.KindSubnet, *base)] = n
				woken = append(woken, owner)
			}
			note += ", and gets another"
		}
	})
	e.wakeAll(woken)
	return note
}

// expandable returns the base identity and the owner of an expandable subnet that a subnet stands for, and how many there
// may be.
func (s *store) expandable(id plan.Identity) (*plan.Identity, item, int) {
	o := s.owners[id.Owner]
	if o == nil {
		return nil, item{}, 0
	}
	for _, r := range o.set.Resources {
		if r.Spec.Kind() == drivers.KindSubnet && r.Expand > 1 && plan.ExpansionOf(id.Name, r.Name) > 0 {
			base := s.identity(id.Owner, r)
			return &base, o.item, min(r.Expand, plan.MaxExpand)
		}
	}
	return nil, item{}, 0
}
