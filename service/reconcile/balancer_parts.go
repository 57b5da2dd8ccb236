package reconcile

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// balance prepares what a load balancer should be for the plan. The store is locked.
func (s *store) balance(w *want, d *plan.Desired) {
	s.mend(d, s.clock.Now())
	pools := slices.Clone(listOf(d.Attrs["pools"]))
	for i, element := range pools {
		pool, _ := element.(map[string]any)
		members := listOf(pool["members"])
		if len(members) == 0 {
			continue
		}
		placed := make([]any, len(members))
		for j, element := range members {
			placed[j] = s.placeMember(w, element)
		}
		pool = maps.Clone(pool)
		pool["members"] = placed
		pools[i] = pool
	}
	if pools != nil {
		d.Attrs["pools"] = pools
	}
}

// placeMember gives a member whose subnet is one of several that stand for an expandable one the subnet that holds its address.
func (s *store) placeMember(w *want, element any) any {
	member, _ := element.(map[string]any)
	ref, ok := member["subnet_id"].(drivers.Ref)
	if !ok {
		return element
	}
	subnet, ok := s.referred(w, ref)
	if !ok || subnet.Kind != drivers.KindSubnet || holds(subnet, member["address"]) {
		return element
	}
	network, _ := subnet.Attrs["network_id"].(string)
	for _, other := range s.cloud.subnetsOf(network) {
		if other.Identity.Owner == subnet.Identity.Owner && holds(other, member["address"]) {
			member = maps.Clone(member)
			member["subnet_id"] = other.ID
			return member
		}
	}
	return element
}

func holds(subnet plan.Observed, address any) bool {
	prefix, errPrefix := netip.ParsePrefix(textOf(subnet.Attrs["cidr"]))
	addr, errAddr := netip.ParseAddr(textOf(address))
	return errPrefix == nil && errAddr == nil && prefix.Contains(addr)
}

// pendingParts counts the parts that are being created, the health monitors among them, and the parts that are ready.
func pendingParts(lb plan.Observed) (pending, monitors, others int) {
	count := func(doc map[string]any, monitor bool) {
		switch status, _ := doc["provisioning_status"].(string); {
		case doc == nil:
		case status == "PENDING_CREATE":
			pending++
			if monitor {
				monitors++
			}
		default:
			others++
		}
	}
	for _, element := range listOf(lb.Attrs["listeners"]) {
		listener, _ := element.(map[string]any)
		count(listener, false)
	}
	for _, element := range listOf(lb.Attrs["pools"]) {
		pool, _ := element.(map[string]any)
		count(pool, false)
		monitor, _ := pool["healthmonitor"].(map[string]any)
		count(monitor, true)
	}
	return pending, monitors, others
}

// readyMembers counts the members that are known to be there, whatever became of them.
func readyMembers(lb plan.Observed) (ready int) {
	for _, element := range listOf(lb.Attrs["pools"]) {
		pool, _ := element.(map[string]any)
		for _, element := range listOf(pool["members"]) {
			member, _ := element.(map[string]any)
			if status := textOf(member["provisioning_status"]); status != "" && status != "PENDING_CREATE" {
				ready++
			}
		}
	}
	return ready
}

// membersAndVIPs lists the parts of a load balancer that name subnets.
func membersAndVIPs(o plan.Observed) [][]any {
	if o.Kind != drivers.KindLoadBalancer {
		return nil
	}
	lists := [][]any{listOf(o.Attrs["additional_vips"])}
	for _, element := range listOf(o.Attrs["pools"]) {
		pool, _ := element.(map[string]any)
		lists = append(lists, listOf(pool["members"]))
	}
	return lists
}

// keepParts drops from the parts of a load balancer what changes by itself and nobody compares.
func keepParts(attrs map[string]any) {
	trim := func(doc map[string]any) map[string]any {
		doc = maps.Clone(doc)
		for _, name := range []string{
			"operating_status", "updated_at", "created_at", "tenant_id", "project_id", "tags", "loadbalancers", "l7policies", "insert_headers",
			"listeners", "tls_container_ref", "sni_container_refs",
		} {
			delete(doc, name)
		}
		return doc
	}
	parts := func(doc map[string]any, name string, f func(map[string]any) map[string]any) {
		list, ok := doc[name].([]any)
		if !ok {
			return
		}
		out := make([]any, len(list))
		for i, element := range list {
			part, _ := element.(map[string]any)
			out[i] = f(part)
		}
		doc[name] = out
	}
	parts(attrs, "listeners", trim)
	parts(attrs, "pools", func(pool map[string]any) map[string]any {
		pool = trim(pool)
		if monitor, ok := pool["healthmonitor"].(map[string]any); ok {
			pool["healthmonitor"] = trim(monitor)
		}
		parts(pool, "members", trim)
		return pool
	})
}
