package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// What of a load balancer cannot be changed in place is changed by another load balancer, and the old one goes first, for the two would
// have one address. So that this never ends with none at all:
//
//	before the old one goes      all that the new one is made of is looked for; what is not there vetoes the replacement
//	the new one is refused       the old one is made again, and the refusal vetoes the replacement
//	as long as a veto stands     the load balancer stays as it is in these things; all else of it is as it is wished
//
// A veto ends with another wish, and one that comes from looking after a while: the cloud may have what it had not.

// Vetter looks for what a load balancer is made of.
type Vetter interface {
	// BalancerFlavor and BalancerZone say whether a load balancer can have them, and of which provider they are, "" if nobody knows.
	BalancerFlavor(ctx context.Context, id string) (there bool, provider string, err error)
	BalancerZone(ctx context.Context, name string) (there bool, provider string, err error)
	// PortsAt lists the ports with an address on a subnet, or on a network where no subnet is named.
	PortsAt(ctx context.Context, networkID, subnetID, address string) ([]plan.Observed, error)
}

// fixed are the attributes of a load balancer that cannot be changed in place.
func fixed() []string {
	return []string{"provider", "flavor_id", "availability_zone", "vip_network_id", "vip_subnet_id", "vip_port_id", "vip_address", "additional_vips"}
}

// veto is why a load balancer must not be replaced by what is wished.
type veto struct {
	wish  string    // what of it cannot be changed in place
	until time.Time // zero: as long as the wish stands
	err   error
}

// vetoError says that a load balancer stays as it is though something else is wished.
type vetoError struct {
	err  error
	wait time.Duration // until it is tried again; 0: never by itself
}

func (v vetoError) Error() string { return v.err.Error() }
func (v vetoError) Unwrap() error { return v.err }

// swap is a load balancer that goes for another one: what it was made of, should the other be refused.
type swap struct {
	old  map[string]any
	wish string
}

// given returns what is wished of those attributes of a load balancer that cannot be changed in place, and a text that is equal for
// equal wishes; what is not known is nil. The store is locked.
func (s *store) given(w *want, d *plan.Desired) (attrs map[string]any, wish string) {
	resolve := s.resolve(w)
	var value func(any) any
	value = func(v any) any {
		switch v := v.(type) {
		case drivers.Ref:
			found, _ := resolve(v)
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
	return attrs, fmt.Sprint(attrs)
}

// bound says whether a veto keeps a load balancer from being replaced. The store is locked.
func (s *store) bound(w *want, d *plan.Desired) bool {
	v, ok := s.vetoes[identityKey(d.Kind, d.Identity)]
	if !ok {
		return false
	}
	_, wish := s.given(w, d)
	if wish == v.wish && (v.until.IsZero() || s.balancerState.clock.Now().Before(v.until)) {
		return true
	}
	delete(s.vetoes, identityKey(d.Kind, d.Identity))
	return false
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
				lb, due, stopped = there, true, d.Bound
				wanted, wish = e.store.given(w, d)
			}
		}
	})
	if !due {
		return nil // nobody wants it any more, or it is there twice
	}
	if !stopped {
		problem, err := e.lacking(ctx, lb, wanted)
		if err != nil {
			return err
		}
		if problem.text != "" {
			v := veto{wish: wish, until: e.clock.Now().Add(terminalTry)}
			v.err = fmt.Errorf("load balancer %s stays as it is: %s%s", lb.ID, e.origin(o, problem.value), problem.text)
			e.store.do(func() { e.store.vetoes[key] = v })
			return mendedError{stepError{step: step, err: v.err}}
		}
	}
	old := map[string]any{}
	for _, name := range fixed() {
		old[name] = lb.Attrs[name]
	}
	delete(old, "vip_port_id") // goes with it
	delete(old, "vip_network_id")
	e.store.do(func() { e.store.swaps[key] = swap{old, wish} })
	return nil
}

// problem is what stands against a load balancer, and the value that it is about.
type problem struct{ value, text string }

// lacking looks for what another load balancer in place of one would be made of.
func (e *Engine) lacking(ctx context.Context, lb plan.Observed, wanted map[string]any) (problem, error) {
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
			return problem{provider, fmt.Sprintf("the cloud has no provider %q, but %s", provider, strings.Join(names, ", "))}, nil
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
			return problem{value, fmt.Sprintf("these credentials cannot see whether the cloud has a %s %q", of.title, value)}, nil
		case err != nil:
			return problem{}, fmt.Errorf("looking whether the cloud has a %s %q: %w", of.title, value, err)
		case !there:
			return problem{value, fmt.Sprintf("the cloud has no %s %q that is enabled", of.title, value)}, nil
		case provider == "ovn":
			return problem{value, fmt.Sprintf("provider ovn has no %s", of.title)}, nil
		case its != "" && provider != "" && its != provider:
			return problem{value, fmt.Sprintf("%s %q is of provider %s, not of %s", of.title, value, its, provider)}, nil
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
				return problem{value, fmt.Sprintf("the cloud has no %s %q", of.kind, value)}, nil
			case err != nil:
				return problem{}, fmt.Errorf("looking whether the cloud has %s %s: %w", of.kind, value, err)
			case of.kind == drivers.KindNetwork && len(listOf(found.Attrs["subnets"])) == 0:
				return problem{value, fmt.Sprintf("network %q has no subnet", value)}, nil
			}
		}
	}
	return e.occupied(ctx, lb, wanted)
}

// occupied looks for who has the addresses of a load balancer that is to be made.
func (e *Engine) occupied(ctx context.Context, lb plan.Observed, wanted map[string]any) (problem, error) {
	type place struct{ network, subnet, address string }
	places := []place{{textOf(wanted["vip_network_id"]), textOf(wanted["vip_subnet_id"]), textOf(wanted["vip_address"])}}
	had := []place{{"", textOf(lb.Attrs["vip_subnet_id"]), textOf(lb.Attrs["vip_address"])}}
	further := func(attrs map[string]any) (list []place) {
		for _, element := range listOf(attrs["additional_vips"]) {
			vip, _ := element.(map[string]any)
			list = append(list, place{"", textOf(vip["subnet_id"]), textOf(vip["ip_address"])})
		}
		return list
	}
	places, had = append(places, further(wanted)...), append(had, further(lb.Attrs)...)
	for _, p := range places {
		if p.address == "" || p.network+p.subnet == "" || slices.Contains(had, p) {
			continue
		}
		if p.subnet != "" {
			subnet, err := e.cloud.Get(ctx, drivers.KindSubnet, p.subnet)
			switch {
			case openstack.Classify(err) == openstack.ClassNotFound:
				return problem{p.subnet, fmt.Sprintf("the cloud has no subnet %q", p.subnet)}, nil
			case err != nil:
				return problem{}, fmt.Errorf("looking whether the cloud has subnet %s: %w", p.subnet, err)
			case !holds(subnet, p.address):
				return problem{p.address, fmt.Sprintf("%s is no address of subnet %q", p.address, p.subnet)}, nil
			}
		}
		ports, err := e.cloud.PortsAt(ctx, p.network, p.subnet, p.address)
		if err != nil {
			return problem{}, fmt.Errorf("looking for who has the address %s: %w", p.address, err)
		}
		for _, port := range ports {
			if !e.ofBalancer(port.ID) {
				return problem{p.address, fmt.Sprintf("port %s (%q) has the address %s", port.ID, textOf(port.Attrs["name"]), p.address)}, nil
			}
		}
	}
	return problem{}, nil
}

// ofBalancer says whether a port is the VIP's of a load balancer of ours: it goes, or the create waits for it.
func (e *Engine) ofBalancer(port string) bool {
	found := false
	e.store.do(func() {
		for _, lb := range e.store.cloud.ofKind(drivers.KindLoadBalancer) {
			found = found || textOf(lb.Attrs["vip_port_id"]) == port
		}
	})
	return found
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

// replaceBalancer makes a load balancer, and if that is refused in place of one that has gone, the one that has gone.
func (e *Engine) replaceBalancer(ctx context.Context, step *plan.Step) (plan.Observed, error) {
	key := identityKey(step.Kind, step.Identity)
	var gone swap
	var instead bool
	e.store.do(func() { gone, instead = e.store.swaps[key] })
	wanted := step.Attrs
	made, err := e.createWithVIPs(ctx, step)
	class := openstack.Classify(err)
	refused := class == openstack.ClassTerminal || class == openstack.ClassUnsupported || class == openstack.ClassNotFound
	if left := (leftError{}); !instead || err != nil && (!refused || errors.As(err, &left)) {
		return made, err
	}
	if err == nil {
		e.store.do(func() { delete(e.store.swaps, key) })
		return made, nil
	}
	attrs := maps.Clone(wanted)
	for _, name := range fixed() {
		delete(attrs, name)
		if value := gone.old[name]; value != nil {
			attrs[name] = value
		}
	}
	step.Attrs = attrs
	made, again := e.createBalancer(ctx, step)
	if again != nil {
		return made, err
	}
	v := veto{wish: gone.wish, err: fmt.Errorf("load balancer %s is made anew as it was, since another one was refused: %w", made.ID, err)}
	e.store.do(func() {
		delete(e.store.swaps, key)
		e.store.vetoes[key] = v
	})
	return made, nil
}

// forgetSwaps drops what was noted of load balancers that nobody wants any more. The store is locked.
func (s *store) forgetSwaps() {
	wanted := map[doubtKey]bool{}
	for id, o := range s.owners {
		for _, r := range o.set.Resources {
			if r.Spec.Kind() == drivers.KindLoadBalancer {
				wanted[identityKey(drivers.KindLoadBalancer, s.identity(id, r))] = true
			}
		}
	}
	maps.DeleteFunc(s.vetoes, func(key doubtKey, _ veto) bool { return !wanted[key] })
	maps.DeleteFunc(s.swaps, func(key doubtKey, _ swap) bool { return !wanted[key] })
}

// createWithVIPs makes a load balancer without the further addresses where those are what it is refused for: the first is then served, and
// people are told of the others.
func (e *Engine) createWithVIPs(ctx context.Context, step *plan.Step) (plan.Observed, error) {
	wanted := step.Attrs
	made, err := e.createBalancer(ctx, step)
	class := openstack.Classify(err)
	refused := class == openstack.ClassTerminal || class == openstack.ClassUnsupported
	if !refused || len(listOf(wanted["additional_vips"])) == 0 || !strings.Contains(err.Error(), "additional_vips") {
		return made, err
	}
	step.Attrs = maps.Clone(wanted)
	delete(step.Attrs, "additional_vips")
	if made, err = e.createBalancer(ctx, step); err == nil {
		e.store.do(func() { e.store.unmade[provider(made)] = true })
	}
	return made, err
}
