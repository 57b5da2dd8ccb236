package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/watch"
)

// maxPasses bounds how often one pass over a key plans anew. Every plan but the last makes progress, so that only a fault of
// ours reaches it.
const maxPasses = 100

// converge plans and applies for one owner until nothing is left to do now.
func (e *Engine) converge(ctx context.Context, w *watcher, o *owner, meta watch.Meta) result {
	return e.convergeWith(ctx, w, o, meta, nil)
}

func (e *Engine) convergeWith(
	ctx context.Context, w *watcher, o *owner, meta watch.Meta, frozen map[string]string,
) result {
	failed := map[stepKey]error{}
	for range maxPasses {
		if ctx.Err() != nil {
			return result{}
		}
		p, out := e.plan(o, frozen)
		if e.resolveDoubts(ctx, p, failed) {
			continue
		}
		ready := e.ready(p, failed)
		if len(ready) > 0 {
			e.applyAll(ctx, o, ready, failed)
			continue
		}
		if len(failed) > 0 {
			return e.settleErrors(o, slices.Collect(maps.Values(failed)))
		}
		if len(out.outputs.unknown) > 0 {
			if err := e.readForeign(ctx, out.outputs.unknown); err != nil {
				return e.settleErrors(o, []error{err})
			}
			continue
		}
		return e.settle(ctx, w, o, meta, out)
	}
	return e.settleErrors(o, []error{fmt.Errorf(
		"the plan for %s did not come to rest in %d passes: please report this", o.target, maxPasses)})
}

// stepKey names a step across the passes over one key, so that what failed is not tried twice in one.
type stepKey struct {
	op   plan.Op
	kind drivers.Kind
	name string
	id   string
}

func keyOf(step plan.Step) stepKey { return stepKey{step.Op, step.Kind, step.Identity.Name, step.ID} }

// outcome is what a plan leaves open, gathered while the store was locked.
type outcome struct {
	waits     []waitKey
	messages  []string
	conflicts []string
	outputs   outputs
}

// plan compares what the owner should have with what it has, and notes at once what it waits for, so that no arrival in
// between is missed.
func (e *Engine) plan(o *owner, frozen map[string]string) (plan.Plan, outcome) {
	s := e.store
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.desire(o.id, o.set)
	observed := s.cloud.owned(o.id)
	if len(frozen) > 0 {
		observed = slices.DeleteFunc(observed, func(r plan.Observed) bool { return frozen[trimInterface(r.Identity.Name)] != "" })
	}
	p := plan.Compute(plan.Input{
		Desired: w.desired, Observed: observed, Resolve: s.resolve(w), Dependants: s.cloud.dependants, Prune: e.mayPrune(o),
	})
	o.held = p.Held
	out := outcome{conflicts: w.conflicts}
	for _, text := range frozen {
		out.conflicts = append(out.conflicts, text)
	}
	for _, step := range p.Steps {
		for _, wt := range step.Waits {
			out.messages = append(out.messages, wt.Message)
			out.waits = append(out.waits, waitKeys(w, wt)...)
		}
	}
	out.outputs = s.outputsOf(w, o)
	out.waits = append(out.waits, out.outputs.waits...)
	slices.Sort(out.conflicts)
	out.conflicts = slices.Compact(out.conflicts)
	s.wait(o, out.waits)
	return p, out
}

func waitKeys(w *want, wt plan.Wait) []waitKey {
	switch {
	case wt.Ref != nil && wt.Ref.Role != nil:
		return []waitKey{waitRole(*wt.Ref.Role)}
	case wt.Ref != nil && w.claimed[wt.Ref.Name] != "":
		return []waitKey{waitClaim(w.claimed[wt.Ref.Name])}
	case wt.Resource != nil:
		return []waitKey{waitGone(wt.Resource.Kind, wt.Resource.ID)}
	default:
		return nil
	}
}

// mayPrune says whether the owner's wish may end resources: its object is gone, or its driver's replay passed the guard. The
// shared owner's may when every driver has answered for every object.
func (e *Engine) mayPrune(o *owner) bool {
	if o.id.Driver != sharedDriver {
		d := e.store.drivers[o.item.driver]
		return o.gone || (d != nil && d.prune && o.hasSet)
	}
	for _, d := range e.store.drivers {
		if !d.prune {
			return false
		}
	}
	for _, other := range e.store.owners {
		if other != o && !other.gone && !other.hasSet {
			return false
		}
	}
	return true
}

func (e *Engine) ready(p plan.Plan, failed map[stepKey]error) []plan.Step {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	var ready []plan.Step
	for _, step := range p.Steps {
		if len(step.Waits) > 0 || failed[keyOf(step)] != nil {
			continue
		}
		if step.Op == plan.Create && e.doubtful(step) {
			continue
		}
		ready = append(ready, step)
	}
	return ready
}

// doubtful says whether a create of this identity was cut and may still commit. A port need not wait: its MAC address comes
// from its identity, so that Neutron refuses the second one.
func (e *Engine) doubtful(step plan.Step) bool {
	until, ok := e.store.doubts[identityKey(step.Kind, step.Identity)]
	return ok && step.Kind != drivers.KindPort && step.Kind != drivers.KindRouterInterface && e.clock.Now().Before(until)
}

// resolveDoubts looks for the outcome of creates that were cut. It says whether it found one.
func (e *Engine) resolveDoubts(ctx context.Context, p plan.Plan, failed map[stepKey]error) bool {
	found := false
	for _, step := range p.Steps {
		if step.Op != plan.Create || len(step.Waits) > 0 || failed[keyOf(step)] != nil {
			continue
		}
		e.store.mu.Lock()
		until, doubt := e.store.doubts[identityKey(step.Kind, step.Identity)]
		e.store.mu.Unlock()
		if !doubt {
			continue
		}
		adopted, err := e.adoptExisting(ctx, step)
		switch {
		case err != nil:
			failed[keyOf(step)] = err
		case adopted:
			found = true
		case e.doubtfulLocked(step):
			failed[keyOf(step)] = ambiguousError{step, until}
		case !e.clock.Now().Before(until):
			e.store.mu.Lock()
			delete(e.store.doubts, identityKey(step.Kind, step.Identity))
			e.store.mu.Unlock()
		}
	}
	return found
}

func (e *Engine) doubtfulLocked(step plan.Step) bool {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	return e.doubtful(step)
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

func (e *Engine) arrive(r plan.Observed) {
	e.store.mu.Lock()
	woken := e.store.arrived(r)
	e.store.mu.Unlock()
	e.wakeAll(woken)
}

func (e *Engine) depart(kind drivers.Kind, id string) {
	e.store.mu.Lock()
	woken := e.store.departed(kind, id)
	e.store.mu.Unlock()
	e.wakeAll(woken)
}

// applyAll applies ready steps side by side. What one step did is in the mirror before it returns; what failed is noted.
func (e *Engine) applyAll(ctx context.Context, o *owner, steps []plan.Step, failed map[stepKey]error) {
	if len(steps) == 1 {
		if err := e.apply(ctx, o, steps[0]); err != nil {
			failed[keyOf(steps[0])] = err
		}
		return
	}
	var (
		wg sync.WaitGroup
		mu sync.Mutex
	)
	for _, step := range steps {
		wg.Go(func() {
			if err := e.apply(ctx, o, step); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[keyOf(step)] = err
			}
		})
	}
	wg.Wait()
}

// apply applies one step and brings the mirror up to date.
func (e *Engine) apply(ctx context.Context, o *owner, step plan.Step) error {
	err := e.write(ctx, step)
	e.metrics.step(step, err)
	if err == nil {
		e.log.InfoContext(ctx, "applied", "op", step.Op, "kind", step.Kind, "name", step.Identity.Name,
			"object", o.target.String(), "driver", o.item.driver, "id", step.ID, "reason", step.Reason)
		return nil
	}
	return e.afterFailure(ctx, step, err)
}

func (e *Engine) write(ctx context.Context, step plan.Step) error {
	switch step.Op {
	case plan.Create:
		made, err := e.cloud.Create(ctx, step.Kind, step.Identity, step.Attrs)
		if err != nil {
			return err
		}
		e.arrive(made)
	case plan.Update:
		made, err := e.cloud.Update(ctx, step.Kind, step.ID, step.Revision, step.Attrs)
		if err != nil {
			return err
		}
		e.arrive(made)
	case plan.Delete:
		if err := e.cloud.Delete(ctx, step.Kind, step.ID); err != nil {
			return err
		}
		e.depart(step.Kind, step.ID)
	case plan.Tag:
		if err := e.retag(ctx, step); err != nil {
			return err
		}
		return e.reread(ctx, step.Kind, step.ID)
	case plan.Attach:
		router, _ := step.Attrs["router_id"].(string)
		if err := e.cloud.Attach(ctx, router, step.ID); err != nil {
			return err
		}
		return e.reread(ctx, step.Kind, step.ID)
	case plan.Detach:
		router, _ := step.Attrs["router_id"].(string)
		if err := e.cloud.Detach(ctx, router, step.ID); err != nil {
			return err
		}
		e.depart(step.Kind, step.ID)
	}
	return nil
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

// reread takes over one resource as it is now.
func (e *Engine) reread(ctx context.Context, kind drivers.Kind, id string) error {
	r, err := e.cloud.Get(ctx, kind, id)
	if openstack.Classify(err) == openstack.ClassNotFound {
		e.depart(kind, id)
		return nil
	}
	if err != nil {
		return err
	}
	e.arrive(r)
	return nil
}

// afterFailure brings what is known up to date with a failed step. It returns nil where planning anew is all that is needed.
func (e *Engine) afterFailure(ctx context.Context, step plan.Step, err error) error {
	fail := stepError{step, err}
	switch openstack.Classify(err) { //nolint:exhaustive // the other classes leave nothing to mend here
	case openstack.ClassAmbiguous:
		if step.Op == plan.Create {
			e.store.mu.Lock()
			e.store.doubts[identityKey(step.Kind, step.Identity)] = e.clock.Now().Add(e.config.AmbiguousWait)
			e.store.mu.Unlock()
		}
		return fail
	case openstack.ClassExists:
		adopted, lerr := e.adoptExisting(ctx, step)
		if lerr != nil {
			return stepError{step, lerr}
		}
		if adopted {
			return nil
		}
		return fail
	case openstack.ClassStale:
		if rerr := e.reread(ctx, step.Kind, step.ID); rerr != nil {
			return stepError{step, rerr}
		}
		return nil
	case openstack.ClassNotFound:
		if step.ID != "" && step.Op != plan.Attach {
			e.depart(step.Kind, step.ID)
			return nil
		}
		e.requestDrift()
		return fail
	case openstack.ClassSubnetFull:
		e.markFull(step)
		return fail
	case openstack.ClassInUse:
		if users, derr := e.cloud.Dependants(ctx, step.Kind, step.ID); derr == nil && len(users) > 0 {
			return inUseError{step, users}
		}
		return fail
	default:
		return fail
	}
}

// markFull notes that the subnets of a port's network are full, so that an expandable one grows.
func (e *Engine) markFull(step plan.Step) {
	network, _ := step.Attrs["network_id"].(string)
	s := e.store
	s.mu.Lock()
	var woken []item
	for _, subnet := range s.cloud.dependants(drivers.KindNetwork, network) {
		if subnet.Kind != drivers.KindSubnet {
			continue
		}
		base, owner := s.expandable(subnet.Identity)
		if base == nil {
			continue
		}
		s.full[identityKey(drivers.KindSubnet, *base)] = s.expansions(*base)
		woken = append(woken, owner)
	}
	s.mu.Unlock()
	e.wakeAll(woken)
}

// expandable returns the base identity and the owner of an expandable subnet that a subnet stands for.
func (s *store) expandable(id plan.Identity) (*plan.Identity, item) {
	resources := []drivers.Resource(nil)
	it := item{driver: sharedDriver}
	if o := s.owners[id.Owner]; o != nil {
		resources, it = o.set.Resources, o.item
	}
	for _, r := range resources {
		if r.Spec.Kind() == drivers.KindSubnet && r.Expand > 1 && plan.ExpansionOf(id.Name, r.Name) > 0 {
			base := s.identity(id.Owner, r)
			return &base, it
		}
	}
	return nil, item{}
}

// stepError says which step failed.
type stepError struct {
	step plan.Step
	err  error
}

func (f stepError) Error() string {
	return fmt.Sprintf("%s %s %q: %v", gerund(f.step.Op), f.step.Kind, f.step.Identity.Name, f.err)
}
func (f stepError) Unwrap() error { return f.err }

func gerund(op plan.Op) string {
	return map[plan.Op]string{
		plan.Create: "creating", plan.Update: "updating", plan.Delete: "deleting",
		plan.Attach: "attaching", plan.Detach: "detaching", plan.Tag: "tagging",
	}[op]
}

// inUseError names what keeps a resource from being deleted.
type inUseError struct {
	step  plan.Step
	users []string
}

func (u inUseError) Error() string {
	shown := u.users
	if len(shown) > 5 {
		shown = append(shown[:5:5], fmt.Sprintf("%d more", len(u.users)-5))
	}
	return fmt.Sprintf("%s %s %q: it is still used by %v", gerund(u.step.Op), u.step.Kind, u.step.Identity.Name, shown)
}

// ambiguousError says that a create was cut and its outcome is not known yet.
type ambiguousError struct {
	step  plan.Step
	until time.Time
}

func (a ambiguousError) Error() string {
	return fmt.Sprintf("creating %s %q was cut off and may still happen: looking for it until %s before trying again",
		a.step.Kind, a.step.Identity.Name, a.until.Format(time.TimeOnly))
}
