// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// keepServing takes out of a plan that OVN's load balancer is deleted while Octavia is unavailable and the one waits
// that is to serve instead.
func (h *Handover) keepServing(tx *state.Tx, p *plan.Plan) {
	if tx.Unavailable(drivers.KindLoadBalancer) == nil {
		return
	}
	awaited := slices.ContainsFunc(p.Steps, func(step plan.Step) bool {
		return step.Op == plan.Create && step.Kind == drivers.KindLoadBalancer && step.Part == nil
	})
	p.Steps = slices.DeleteFunc(p.Steps, func(step plan.Step) bool {
		return awaited && step.Op == plan.Delete && step.Kind == drivers.KindOVNLoadBalancer
	})
}

// withholdUnseen takes out of a plan Octavia's load balancers as long as it is not known whether one of OVN's, made
// before this process began, still serves: two must not. It says so. For the other way round see preflightUnseen: there
// it takes out only that a floating IP leaves a port, which may be that of a load balancer that was not listed yet.
func (h *Handover) withholdUnseen(tx *state.Tx, o *state.Object, p *plan.Plan, r *backend.Review) {
	text := ""
	unavailable := octaviaUnseen(tx)
	ovnUnseen := !tx.Listed(drivers.KindOVNLoadBalancer)
	p.Steps = slices.DeleteFunc(p.Steps, func(step plan.Step) bool {
		switch {
		case unavailable != nil && leaves(step) && wantsInstead(o.Set, drivers.KindLoadBalancer):
			text = fmt.Sprintf("waiting for %s, where the floating IP may lead to a load balancer of this Service: %v",
				h.octaviaName, unavailable)
			r.Wait = append(r.Wait, state.ByBackend(h.octaviaName))
			return true
		case ovnUnseen && step.Op == plan.Create && step.Kind == drivers.KindLoadBalancer:
			text = fmt.Sprintf("waiting for %s, where a load balancer of this Service may still be, and serve with the "+
				"endpoints that it had: %v", h.ovnName, tx.Unavailable(drivers.KindOVNLoadBalancer))
			r.Wait = append(r.Wait, state.ByBackend(h.ovnName))
			return true
		}
		return false
	})
	if text != "" {
		p.Pending = append(p.Pending, plan.Wait{Message: text})
		r.Withheld = cmp.Or(r.Withheld, text)
	}
}

// octaviaUnseen is why Octavia could not be read since this process began; nil if it was, or if there is none.
func octaviaUnseen(tx *state.Tx) error {
	if tx.Listed(drivers.KindLoadBalancer) {
		return nil
	}
	return tx.Unavailable(drivers.KindLoadBalancer)
}

// leaves says whether a step has a floating IP leave a port.
func leaves(step plan.Step) bool {
	value, changes := step.Attrs["port_id"]
	return step.Op == plan.Update && step.Kind == drivers.KindFloatingIP &&
		changes && textOf(value) == "" && textOf(step.Old["port_id"]) != ""
}

// unseenError says that one of Octavia's load balancers, of which it cannot be asked, may still serve.
type unseenError struct {
	port        plan.Observed
	address     string
	unavailable error
}

func (u unseenError) Error() string {
	return fmt.Sprintf("port %s (%q) has the address %s, so that a load balancer of Octavia's may still serve it, "+
		"with the endpoints that it had; it cannot be asked: %v",
		u.port.ID, textOf(u.port.Attrs["name"]), u.address, u.unavailable)
}

// preflightUnseen checks, before a load balancer is created in OVN, whether one of Octavia's still serves its addresses
// that was not listed since this process began, for Octavia could not be read: that one has a port there, which
// Neutron shows. Where there is none, Octavia is not waited for.
func (h *Handover) preflightUnseen(ctx context.Context, owner plan.Owner, step plan.Step) *backend.Failure {
	var unavailable error
	h.env.State.View(func(tx *state.Tx) { unavailable = octaviaUnseen(tx) })
	var found, err error
	if unavailable != nil {
		found, err = h.unseen(ctx, step, unavailable)
	}
	h.env.State.Update(func(*state.Tx) {
		if delete(h.withheld, owner); found != nil {
			h.withheld[owner] = true
		}
	})
	switch {
	case err != nil:
		return failed(step, err)
	case found != nil:
		return &backend.Failure{
			Phase: state.Waiting, RequeueAfter: h.env.Timing.SlowRetry,
			Wait: []state.Key{state.ByBackend(h.octaviaName)},
			Err:  &backend.StepError{Step: step, Err: found},
		}
	}
	return nil
}

// unseen returns an unseenError if one of Octavia's load balancers may serve an address of a new one.
func (h *Handover) unseen(ctx context.Context, step plan.Step, unavailable error) (found, err error) {
	seen := map[string]bool{}
	vips, _ := step.Attrs["vips"].([]any)
	for _, vip := range vips {
		address := textOf(plan.Field(vip, "address"))
		if address == "" || seen[address] {
			continue
		}
		seen[address] = true
		ports, err := h.networking.PortsAt(ctx, "", "", address)
		if err != nil {
			return nil, fmt.Errorf("checking whether Octavia serves %s: %w", address, err)
		}
		for _, port := range ports {
			if h.mayBeVIP(port) {
				return unseenError{port, address, unavailable}, nil
			}
		}
	}
	return nil, nil
}

// mayBeVIP says whether a port may be that of a load balancer of this cluster's: it is on a network of this cluster's,
// or one that an operator named, and not Neutron's own, as that of a floating IP.
func (h *Handover) mayBeVIP(port plan.Observed) (may bool) {
	network := textOf(port.Attrs["network_id"])
	if strings.HasPrefix(textOf(port.Attrs["device_owner"]), "network:") {
		return false
	}
	h.env.State.View(func(tx *state.Tx) {
		_, may = tx.Cache.Get(drivers.KindNetwork, network)
		for _, named := range tx.Lookups() {
			may = may || named.ID == network || textOf(named.Attrs["network_id"]) == network
		}
	})
	return may
}

func textOf(value any) string {
	text, _ := value.(string)
	return strings.TrimSpace(text)
}
