package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// What of a load balancer is refused must not keep the rest of it from being served, nor be asked for at every change of the rest:
//
//	with parts, 501, or 400 that may be about a part   it is made without parts, and these one by one
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
