// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// Hints are the plan.Desired.Hints of a load balancer.
type Hints struct {
	// Unmade says that the load balancer's provider was seen to make no further addresses.
	Unmade bool
	// Pinned says that the load balancer must not be replaced: what cannot be changed in place stays as it is.
	Pinned bool
	// Repair is what may be done about a load balancer, or a part of it, that is in ERROR now.
	Repair Repair
	// Resting are the parts of a load balancer, by kind and name, that are left alone though they are in ERROR.
	Resting []plan.Part
}

// HintsOf returns the hints of a load balancer; those of one without are zero.
func HintsOf(d *plan.Desired) Hints {
	hints, _ := d.Hints.(Hints)
	return hints
}

// Kinds describes the kind of resources that Octavia keeps. A load balancer is compared with all its parts; see
// balance.
func Kinds() []plan.Descriptor {
	return []plan.Descriptor{{
		Kind: drivers.KindLoadBalancer, Rank: 90, Status: true, Serial: true, Alternative: drivers.KindOVNLoadBalancer,
		References: plan.IDs("vip_subnet_id", "vip_network_id", "vip_sg_ids[]", "additional_vips[].subnet_id",
			"pools[].members[].subnet_id"),
		Trim:   trim,
		Stable: stable,
		Leaving: func(o *plan.Observed) bool {
			condition, _ := ConditionOf(o)
			return condition == Leaving
		},
		Form:       canonicalText,
		Matchers:   map[string]plan.Matcher{"additional_vips": matchVIPs},
		Uncompared: []string{"listeners", "pools", "vip_sg_ids"},
		Deferred:   []string{"vip_sg_ids"}, // the VIP's port gets them later: see vip
		InUse:      inUse,
		Refine:     bind,
		Unfit:      unfit,
		Body: func(c *plan.Computation, m *plan.Match, attrs map[string]any) (map[string]any, []plan.Wait) {
			return attrs, addressHolders(c, m, attrs)
		},
		Clash: func(want, have map[string]any) bool { return sameVIP(want, have) != "" },
		Extend: func(c *plan.Computation, m *plan.Match) {
			if m.Stays() {
				balance(c, m)
				ignored(c, m)
			}
		},
		Depart: depart,
	}}
}

// canonical returns a text that is the same for all forms in which Octavia may write one value of an attribute.
func canonical(name string, value any) string {
	return plan.Form(canonicalText).Canonical(name, value, false)
}

// canonicalSet is canonical where the order of lists does not count.
func canonicalSet(name string, value any) string {
	return plan.Form(canonicalText).Canonical(name, value, true)
}

// canonicalText is the canonical form of the texts that Octavia has.
func canonicalText(name, text string) string {
	switch name {
	case "vip_address", "ip_address", "address", "monitor_address", "allowed_cidrs":
		return plan.Address(text)
	case "provider":
		if text == "octavia" { // the old name
			return "amphora"
		}
	case "protocol":
		return strings.ToLower(text)
	}
	return text
}

// inUse says whether anything uses a load balancer; what leads to it leads to its VIP's port.
func inUse(c *plan.Computation, o *plan.Observed) bool {
	port := canonical("vip_port_id", o.Attrs["vip_port_id"])
	return port != "" && len(c.UsersOf(drivers.KindPort, port)) > 0 || len(c.Users(o)) > 0
}

// bind leaves what cannot be changed in place of a load balancer that must not be replaced.
func bind(_ *plan.Computation, m *plan.Match) {
	if HintsOf(m.Desired).Pinned {
		m.Differences = slices.DeleteFunc(m.Differences, func(d plan.Difference) bool { return d.Immutable })
	}
}

// unfit says why a load balancer has to be made anew, and "" if it may stay.
func unfit(m *plan.Match) string {
	condition, why := ConditionOf(m.Observed)
	switch {
	case condition == Leaving:
		return "it is being deleted"
	case HintsOf(m.Desired).Repair == RepairReplace && condition != Ready && condition != Partial:
		return why
	}
	return ""
}

// depart has the deletion of a load balancer wait where it cannot be deleted now.
func depart(_ *plan.Computation, o *plan.Observed, s *plan.Step) {
	s.Repairs = s.Reason == inError || o.Status == statusError
	at := &plan.Resource{Kind: o.Kind, ID: o.ID, Identity: o.Identity}
	switch {
	case o.Status == "PENDING_DELETE" || o.Status == "DELETED":
		s.Waits = append(s.Waits, plan.Wait{
			Resource: at, Message: fmt.Sprintf("waiting for load balancer %s to be gone", o.Identity),
		})
	case strings.HasPrefix(o.Status, pendingPrefix):
		s.Waits = append(s.Waits, plan.Wait{
			Busy: at, Message: fmt.Sprintf("waiting for load balancer %s, which is %s", o.Identity, o.Status),
		})
	}
}

// trim drops from the parts of a load balancer what changes by itself and is not compared.
func trim(attrs map[string]any) {
	mapParts(attrs, "listeners", byName, trimmed)
	mapParts(attrs, "pools", byName, func(pool map[string]any) map[string]any {
		pool = trimmed(pool)
		if monitor, ok := pool["healthmonitor"].(map[string]any); ok {
			pool["healthmonitor"] = trimmed(monitor)
		} else {
			delete(pool, "healthmonitor") // some answers have none, others a null
		}
		mapParts(pool, "members", byAddress, trimmed)
		return pool
	})
	if groups, ok := attrs["vip_sg_ids"].([]any); ok {
		groups = slices.Clone(groups)
		slices.SortFunc(groups, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		attrs["vip_sg_ids"] = groups
	}
}

// trimmed returns a part without what changes by itself and is never compared.
func trimmed(part map[string]any) map[string]any {
	return leaveOut(part, "operating_status", "updated_at", "created_at", "tenant_id", "project_id", "tags",
		"loadbalancers",
		"l7policies", "insert_headers", "listeners", "tls_container_ref", "sni_container_refs")
}

func leaveOut(doc map[string]any, names ...string) map[string]any {
	doc = maps.Clone(doc)
	for _, name := range names {
		delete(doc, name)
	}
	return doc
}

// mapParts replaces in place a list of parts by what f makes of each, in an order that does not depend on that of the
// answer. Of parts that are there twice the first stays the first.
func mapParts(doc map[string]any, name string, order func(a, b any) int, f func(map[string]any) map[string]any) {
	list, ok := doc[name].([]any)
	if !ok {
		return
	}
	out := make([]any, len(list))
	for i, element := range list {
		part, _ := element.(map[string]any)
		out[i] = f(part)
	}
	slices.SortStableFunc(out, order)
	doc[name] = out
}

func byName(a, b any) int {
	return cmp.Compare(textOf(structure(a), "name"), textOf(structure(b), "name"))
}

func byAddress(a, b any) int { return cmp.Compare(memberKey(structure(a)), memberKey(structure(b))) }

// stable returns the attributes of a load balancer without its parts' statuses, which change by themselves.
func stable(attrs map[string]any) map[string]any {
	bare := func(part map[string]any) map[string]any { return leaveOut(part, "provisioning_status") }
	attrs = maps.Clone(attrs)
	mapParts(attrs, "listeners", byName, bare)
	mapParts(attrs, "pools", byName, func(pool map[string]any) map[string]any {
		pool = bare(pool)
		if monitor, ok := pool["healthmonitor"].(map[string]any); ok {
			pool["healthmonitor"] = bare(monitor)
		}
		mapParts(pool, "members", byAddress, bare)
		return pool
	})
	return attrs
}
