// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"fmt"
	"strings"

	"github.com/kuryr/raven/service/plan"
)

// The parts of a load balancer.
const (
	Listener plan.PartKind = "listener"
	Pool     plan.PartKind = "pool"
	Members  plan.PartKind = "the members of pool" // all at once
	Monitor  plan.PartKind = "the health monitor of pool"
	VIPPort  plan.PartKind = "the VIP's port" // its security groups
)

// Repair says what may be done about a load balancer that is in ERROR. Whoever sets it counts how often.
type Repair string

// The ways to repair.
const (
	RepairNone     Repair = ""
	RepairFailover Repair = "failover" // by the provider; a part in ERROR is made anew
	RepairReplace  Repair = "replace"  // deleted and created; a part in ERROR is made anew
)

// Condition is what can be done with a load balancer now.
type Condition int

// The conditions.
//
//	Ready -> (a change) -> Busy -> Ready | Partial | Broken
//	Partial, Broken -> (repaired) -> Busy
//	any whose own status is not PENDING_* -> (deleted) -> Leaving -> gone
const (
	Ready   Condition = iota // ACTIVE, with all its parts
	Busy                     // it, or a part of it, is PENDING: it takes no change
	Partial                  // a part is in ERROR; it takes changes
	Broken                   // in ERROR: it takes nothing but a failover or its deletion
	Leaving                  // being deleted
)

const (
	statusError   = "ERROR"
	pendingPrefix = "PENDING_"
	inError       = "it is in ERROR"
)

// ConditionOf returns the condition of a load balancer, and why it is not Ready, for people.
func ConditionOf(o *plan.Observed) (Condition, string) {
	switch {
	case o.Status == "PENDING_DELETE" || o.Status == "DELETED":
		return Leaving, "it is being deleted"
	case strings.HasPrefix(o.Status, pendingPrefix):
		return Busy, "it is " + o.Status
	case o.Status == statusError:
		return Broken, inError
	}
	broken := ""
	for _, p := range statuses(o) {
		if strings.HasPrefix(p.status, pendingPrefix) && p.status != "PENDING_UPDATE" {
			// Some providers leave parts PENDING_UPDATE though they, and the load balancer, are done.
			return Busy, fmt.Sprintf("its %s is %s", p.part, p.status)
		}
		if p.status == statusError && broken == "" {
			broken = fmt.Sprintf("its %s is in ERROR", p.part)
		}
	}
	if broken != "" {
		return Partial, broken
	}
	return Ready, ""
}

type partStatus struct {
	part   plan.Part
	status string
}

// statuses lists the statuses of a load balancer's parts, as far as they are known.
func statuses(o *plan.Observed) []partStatus {
	var list []partStatus
	add := func(kind plan.PartKind, name string, doc any) {
		if status, _ := plan.Field(doc, "provisioning_status").(string); status != "" {
			list = append(list, partStatus{plan.Part{Kind: kind, Name: name}, status})
		}
	}
	for _, listener := range structures(o.Attrs["listeners"]) {
		add(Listener, textAt(listener, "name"), listener)
	}
	for _, pool := range structures(o.Attrs["pools"]) {
		add(Pool, textAt(pool, "name"), pool)
		add(Monitor, textAt(pool, "name"), pool["healthmonitor"])
		for _, member := range structures(pool["members"]) {
			add(Members, textAt(pool, "name"), member)
		}
	}
	return list
}

// structures returns the maps in a list.
func structures(list any) []map[string]any {
	elements, _ := list.([]any)
	out := make([]map[string]any, 0, len(elements))
	for _, element := range elements {
		if m, ok := element.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func textAt(m map[string]any, name string) string {
	s, _ := m[name].(string)
	return s
}
