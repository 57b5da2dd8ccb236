package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/octavia"
	"github.com/kuryr/raven/service/plan"
)

// What of a load balancer cannot be changed in place is changed by another load balancer, and the old one goes first, for the two would
// have one address. So that this never ends with none at all:
//
//	before the old one goes      all that the new one is made of is looked for; what is not there vetoes the replacement
//	the new one is refused       the old one is made again, and the refusal vetoes the replacement
//	as long as a veto stands     the load balancer stays as it is in these things; all else of it is as it is wished
//
// A veto ends with another wish, and one that comes from looking after a while: the cloud may have what it had not. One that comes from
// another load balancer of ours ends when that one goes, or something else is wished of it.

// Vetter looks for what a load balancer is made of.
type Vetter interface {
	// BalancerFlavor and BalancerZone say whether a load balancer can have them, and of which provider they are, "" if nobody knows.
	BalancerFlavor(ctx context.Context, id string) (there bool, provider string, err error)
	BalancerZone(ctx context.Context, name string) (there bool, provider string, err error)
	// BalancerRoom says for how many more there is room in the quota, where that is bounded.
	BalancerRoom(ctx context.Context) (room int, bounded bool, err error)
	// PortsAt lists the ports with an address on a subnet, or on a network where no subnet is named, or anywhere.
	PortsAt(ctx context.Context, networkID, subnetID, address string) ([]plan.Observed, error)
}

// fixed are the attributes of a load balancer that cannot be changed in place.
func fixed() []string {
	return []string{"provider", "flavor_id", "availability_zone", "vip_network_id", "vip_subnet_id", "vip_port_id", "vip_address", "additional_vips"}
}

// veto is why a load balancer must not be replaced by what is wished.
type veto struct {
	wish  string         // what of it cannot be changed in place
	old   map[string]any // what it is made of instead
	parts map[string]any // the listeners and pools of that one, if it has gone
	until time.Time      // zero: as long as the wish stands
	rival *rival         // nil: it is not about another load balancer
	err   error
}

// rival is a load balancer of ours that has an address which is wished for another one, and what was wished of it then.
type rival struct{ id, wish string }

// vetoError says that a load balancer stays as it is though something else is wished.
type vetoError struct {
	err  error
	wait time.Duration // until it is tried again; 0: never by itself
}

func (v vetoError) Error() string { return v.err.Error() }
func (v vetoError) Unwrap() error { return v.err }

// given returns what is wished of those attributes of a load balancer that cannot be changed in place, and a text that is equal for
// equal wishes. What is not known is nil, and the text then empty. The store is locked.
func (s *store) given(w *want, d *plan.Desired) (attrs map[string]any, wish string) {
	resolve := s.resolve(w)
	known := true
	var value func(any) any
	value = func(v any) any {
		switch v := v.(type) {
		case drivers.Ref:
			found, ok := resolve(v)
			known = known && ok
			return found
		case []any:
			out := make([]any, len(v))
			for i := range v {
				out[i] = value(v[i])
			}
			return out
		case map[string]any:
			out := make(map[string]any, len(v))
			for name := range v {
				out[name] = value(v[name])
			}
			return out
		}
		return v
	}
	attrs = map[string]any{}
	for _, name := range fixed() {
		if v, managed := d.Attrs[name]; managed {
			attrs[name] = value(v)
		}
	}
	if !known {
		return attrs, ""
	}
	return attrs, fmt.Sprint(attrs)
}

// restrain has a load balancer stay as it is where a veto stands against what is wished, and be made as it was if it has gone. The store is
// locked.
func (s *store) restrain(w *want, d *plan.Desired) {
	hints := octavia.HintsOf(d)
	hints.Bound = s.bound(w, d)
	d.Hints = hints
	if _, there := s.cloud.find(d.Identity, d.Kind); there {
		return
	}
	hints.Bound = hints.Bound || s.overtaken(w, d)
	if d.Hints = hints; hints.Bound {
		d.Attrs = asItWas(d.Attrs, s.vetoes[identityKey(d.Kind, d.Identity)].old)
	}
}

// bound says whether a veto keeps a load balancer from being replaced. One that is gone is made as it was as long as the wish stands. The
// store is locked.
func (s *store) bound(w *want, d *plan.Desired) bool {
	key := identityKey(d.Kind, d.Identity)
	_, wish := s.given(w, d)
	lb, there := s.cloud.find(d.Identity, d.Kind)
	v, ok := s.vetoes[key]
	if !ok && there {
		v, ok = s.remember(lb, wish)
	}
	switch {
	case !ok:
		return false
	case wish != v.wish && wish != "":
		s.lapsed[key] = lb.ID
	case !there:
		return true
	case v.rival != nil && !s.remains(*v.rival):
	case v.until.IsZero() || s.balancerState.clock.Now().Before(v.until):
		if v.rival != nil {
			w.looked[waitGone(v.rival.id)] = true
		}
		return true
	}
	delete(s.vetoes, key)
	return false
}

// remains says whether a rival is still there, and the same is wished of it. The store is locked.
func (s *store) remains(r rival) bool {
	lb, ok := s.cloud.get(drivers.KindLoadBalancer, r.id)
	if !ok {
		return false
	}
	condition, _ := octavia.ConditionOf(&lb)
	_, wish := s.wishFor(lb.Identity)
	return condition != octavia.Leaving && (wish == r.wish || wish == "")
}

// wishFor returns what is wished of a load balancer, and its text, which is "" if nobody wishes it, or nobody knows. The store is locked.
func (s *store) wishFor(id plan.Identity) (attrs map[string]any, text string) {
	o := s.owners[id.Owner]
	if o == nil || o.gone {
		return nil, ""
	}
	for _, r := range o.set.Resources {
		if r.Spec.Kind() == drivers.KindLoadBalancer && s.identity(o.id, r).Key() == id.Key() {
			return s.given(s.names(o.id, o.set), &plan.Desired{Attrs: s.attributes(r.Spec)})
		}
	}
	return nil, ""
}

// vetoed lists the vetoes on what an owner wishes.
func (e *Engine) vetoed(o *owner) []error {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	var errs []error
	now := e.clock.Now()
	for _, r := range o.set.Resources {
		if r.Spec.Kind() != drivers.KindLoadBalancer {
			continue
		}
		if v, ok := e.store.vetoes[identityKey(drivers.KindLoadBalancer, e.store.identity(o.id, r))]; ok {
			wait := terminalTry
			if !v.until.IsZero() {
				wait = max(v.until.Sub(now), time.Second)
			}
			errs = append(errs, vetoError{v.err, wait})
		}
	}
	return errs
}

// vet decides whether a load balancer may go for another one to be made, as far as reading tells. What is vetoed stays, and another
// plan is made.
func (e *Engine) vet(ctx context.Context, o *owner, step plan.Step) error {
	key := identityKey(step.Kind, step.Identity)
	var (
		lb           plan.Observed
		wanted       map[string]any
		wish         string
		due, stopped bool
	)
	e.store.do(func() {
		w := e.store.desire(o.id, o.set)
		for i := range w.desired {
			d := &w.desired[i]
			there, ok := e.store.cloud.find(d.Identity, d.Kind)
			if d.Kind == step.Kind && identityKey(d.Kind, d.Identity) == key && ok && there.ID == step.ID {
				lb, due, stopped = there, true, octavia.HintsOf(d).Bound
				wanted, wish = e.store.given(w, d)
			}
		}
	})
	if !due {
		return nil // nobody wants it any more, or it is there twice
	}
	old := makings(lb)
	if !stopped {
		problem, err := e.lacking(ctx, lb, wanted, map[string]bool{lb.ID: true})
		if err != nil {
			return err
		}
		if problem.text != "" {
			v := veto{wish: wish, old: old, until: e.clock.Now().Add(terminalTry), rival: problem.rival}
			v.err = fmt.Errorf("load balancer %s stays as it is: %s%s", lb.ID, e.origin(o, problem.value), problem.text)
			e.store.do(func() { e.store.vetoes[key] = v })
			return mendedError{stepError{step: step, err: v.err}}
		}
	}
	e.store.do(func() { e.store.swaps[key] = swap{old, partsOf(lb), step.Identity, lb.ID, e.clock.Now()} })
	return nil
}

// makings are those attributes of a load balancer that another one like it would be made with.
func makings(lb plan.Observed) map[string]any {
	old := map[string]any{}
	for _, name := range fixed() {
		if name != "vip_port_id" && name != "vip_network_id" { // the one goes with it, the other is the subnet's
			old[name] = lb.Attrs[name]
		}
	}
	return old
}

// problem is what stands against a load balancer, and the value that it is about.
type problem struct {
	value, text string
	rival       *rival
}

// lacking looks for what another load balancer in place of one would be made of. Those that are seen go as well.
func (e *Engine) lacking(ctx context.Context, lb plan.Observed, wanted map[string]any, seen map[string]bool) (problem, error) {
	differs := func(name string) bool {
		want := textOf(wanted[name])
		return want != "" && want != textOf(lb.Attrs[name])
	}
	provider := textOf(wanted["provider"])
	if differs("provider") {
		names, err := e.cloud.LoadBalancerProviders(ctx)
		if err != nil {
			return problem{}, fmt.Errorf("looking whether the cloud has provider %s: %w", provider, err)
		}
		if !slices.Contains(names, provider) {
			return problem{value: provider, text: fmt.Sprintf("the cloud has no provider %q, but %s", provider, strings.Join(names, ", "))}, nil
		}
	}
	for _, of := range []struct {
		attribute, title string
		look             func(context.Context, string) (bool, string, error)
	}{
		{"flavor_id", "flavor of load balancers", e.cloud.BalancerFlavor},
		{"availability_zone", "availability zone of load balancers", e.cloud.BalancerZone},
	} {
		value := textOf(wanted[of.attribute])
		if value == "" || !differs(of.attribute) && !differs("provider") {
			continue
		}
		there, its, err := of.look(ctx, value)
		switch {
		case openstack.Classify(err) == openstack.ClassForbidden:
			return problem{value: value, text: fmt.Sprintf("these credentials cannot see whether the cloud has a %s %q", of.title, value)}, nil
		case err != nil:
			return problem{}, fmt.Errorf("looking whether the cloud has a %s %q: %w", of.title, value, err)
		case !there:
			return problem{value: value, text: fmt.Sprintf("the cloud has no %s %q that is enabled", of.title, value)}, nil
		case provider == "ovn":
			return problem{value: value, text: fmt.Sprintf("provider ovn has no %s", of.title)}, nil
		case its != "" && provider != "" && its != provider:
			return problem{value: value, text: fmt.Sprintf("%s %q is of provider %s, not of %s", of.title, value, its, provider)}, nil
		}
	}
	for _, of := range []struct {
		attribute string
		kind      drivers.Kind
	}{{"vip_network_id", drivers.KindNetwork}, {"vip_subnet_id", drivers.KindSubnet}, {"vip_port_id", drivers.KindPort}} {
		if value := textOf(wanted[of.attribute]); differs(of.attribute) {
			found, err := e.cloud.Get(ctx, of.kind, value)
			switch {
			case openstack.Classify(err) == openstack.ClassNotFound:
				return problem{value: value, text: fmt.Sprintf("the cloud has no %s %q", of.kind, value)}, nil
			case err != nil:
				return problem{}, fmt.Errorf("looking whether the cloud has %s %s: %w", of.kind, value, err)
			case of.kind == drivers.KindNetwork && len(listOf(found.Attrs["subnets"])) == 0:
				return problem{value: value, text: fmt.Sprintf("network %q has no subnet", value)}, nil
			}
		}
	}
	return e.occupied(ctx, lb, wanted, seen)
}

// origin says where an owner's object has a value from, as the beginning of a sentence.
func (e *Engine) origin(o *owner, value string) string {
	e.runMu.Lock()
	w := e.watchers[o.item.driver]
	e.runMu.Unlock()
	if w == nil || value == "" {
		return ""
	}
	object, _, _ := w.source.Get(o.item.key)
	var doc struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec map[string]any `json:"spec"`
	}
	if len(object.Raw) == 0 || object.Into(&doc) != nil {
		return ""
	}
	for _, key := range slices.Sorted(maps.Keys(doc.Metadata.Annotations)) {
		if strings.EqualFold(strings.TrimSpace(doc.Metadata.Annotations[key]), value) {
			return fmt.Sprintf("annotation %s: ", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(doc.Spec)) {
		if textOf(doc.Spec[key]) == value {
			return fmt.Sprintf("spec.%s: ", key)
		}
	}
	return fmt.Sprintf("the options of driver %s: ", o.item.driver)
}
