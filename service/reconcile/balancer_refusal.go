package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// What of a load balancer is refused must not keep the rest of it from being served, nor be asked for at every change of the rest:
//
//	with parts, 501, or 400 that may be about a part   it is made without parts, and these one by one
//	with parts, in place of one that had them          it is refused, and the other one made again
//	in place of one that had only some of them         it is made with those, and the others one by one
//	without parts, 400                                 it is refused
//	a part, 400 or 501                                 told, and asked for again when terminalTry is over, or when it is to be otherwise
//
// An Octavia that does not know a protocol says so by 400, as it says everything that it cannot read; a provider says by 501 what it cannot do.

// blamesParts says whether the refusal of a load balancer with parts may be about one of these.
func blamesParts(err error) bool {
	switch openstack.Classify(err) { //nolint:exhaustive // the others are about the whole, or pass
	case openstack.ClassUnsupported:
		return true
	case openstack.ClassTerminal:
		text := strings.ToLower(err.Error())
		return !slices.ContainsFunc([]string{
			"additional_vips", "vip_address", "vip_network_id", "vip_subnet_id", "vip_port_id", "is not a valid ip for", "flavor", "availability",
		}, func(whole string) bool { return strings.Contains(text, whole) })
	}
	return false
}

// lesser returns what is asked for of a load balancer that was refused with all its parts. The store is locked.
func (s *store) lesser(key doubtKey, wanted map[string]any) map[string]any {
	gone, ok := s.swaps[key]
	if _, vetoed := s.vetoes[key]; !ok || vetoed || alike(wanted, gone.old) {
		return entrusted(wanted, trust{bare: true})
	}
	had := func(list string, name any) bool {
		return slices.ContainsFunc(listOf(gone.parts[list]), func(part any) bool { return nameIn(part) == name })
	}
	pools := map[any]bool{} // whether somebody who listens leads to it
	attrs := maps.Clone(wanted)
	attrs["listeners"] = slices.DeleteFunc(slices.Clone(listOf(wanted["listeners"])), func(element any) bool {
		listener, _ := element.(map[string]any)
		pool := listener["default_pool"]
		led := had("listeners", nameIn(element)) && (textOf(pool) == "" || had("pools", pool))
		pools[pool] = pools[pool] || led
		return !led
	})
	attrs["pools"] = slices.DeleteFunc(slices.Clone(listOf(wanted["pools"])), func(pool any) bool {
		led, named := pools[nameIn(pool)]
		return !had("pools", nameIn(pool)) || named && !led
	})
	return attrs
}

// partsOf are the listeners and pools of a load balancer.
func partsOf(lb plan.Observed) map[string]any {
	return map[string]any{"listeners": lb.Attrs["listeners"], "pools": lb.Attrs["pools"]}
}

func nameIn(part any) any {
	attrs, _ := part.(map[string]any)
	return attrs["name"]
}

// balancedAsBefore returns pools with the algorithms that those of a load balancer had which has gone: which of them there are is the provider's.
func balancedAsBefore(pools, before []any) []any {
	pools = slices.Clone(pools)
	for i, element := range pools {
		at := slices.IndexFunc(before, func(old any) bool { return nameIn(old) == nameIn(element) })
		if at < 0 {
			continue
		}
		old, _ := before[at].(map[string]any)
		pool, _ := element.(map[string]any)
		if algorithm := textOf(old["lb_algorithm"]); algorithm != "" {
			pool = maps.Clone(pool)
			pool["lb_algorithm"] = algorithm
			pools[i] = pool
		}
	}
	return pools
}

// refusalKey is a part of a load balancer, by the load balancer's id, as it was to be made.
type refusalKey struct {
	lb   string
	part plan.Part
	wish string
}

// partRefusal is why a part of a load balancer cannot be made, and until when it is not asked for again.
type partRefusal struct {
	err   stepError
	until time.Time
}

// refusable returns the key of a step that makes a part of a load balancer.
func refusable(step plan.Step) (refusalKey, bool) {
	if step.Part == nil || step.Op != plan.Create {
		return refusalKey{}, false
	}
	return refusalKey{step.ID, *step.Part, fmt.Sprint(step.Attrs)}, true
}

// refuse remembers that a part of a load balancer is refused for good.
func (e *Engine) refuse(fail stepError) {
	class := openstack.Classify(fail.err)
	if key, ok := refusable(fail.step); ok && (class == openstack.ClassTerminal || class == openstack.ClassUnsupported) {
		e.store.do(func() { e.store.refusedParts[key] = partRefusal{fail, e.clock.Now().Add(terminalTry)} })
	}
}

// refusalOf returns why a step is not to be asked for now, since it was refused before. The store is locked.
func (s *store) refusalOf(step plan.Step, now time.Time) error {
	key, ok := refusable(step)
	if !ok {
		return nil
	}
	if r, ok := s.refusedParts[key]; ok && now.Before(r.until) {
		return r.err
	}
	return nil
}
