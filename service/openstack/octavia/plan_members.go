// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"fmt"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// members plans one change of all members of a pool that differ: only those, as long as none goes.
func (b *partsPlan) members(pool plan.Part, want, have map[string]any) {
	value, managed := want["members"]
	if !managed {
		return
	}
	resolved, waits := b.c.Value(value)
	part := plan.Part{Kind: Members, Name: pool.Name, Pool: pool.ID}
	there := map[string]map[string]any{}
	for _, member := range structures(have["members"]) {
		there[memberKey(member)] = member
	}
	var changed, whole []any
	added, differ, repairs := 0, 0, false
	for _, member := range structures(resolved) {
		old := there[memberKey(member)]
		if elsewhere(member, old) {
			continue // it goes, and comes back: a member stays on its subnet
		}
		whole = append(whole, member)
		delete(there, memberKey(member))
		broken := b.recreates(part) && old["provisioning_status"] == statusError
		repairs = repairs || broken
		switch {
		case old == nil:
			added++
		case broken || memberDiffers(member, old):
			differ++
		default:
			continue
		}
		changed = append(changed, member)
	}
	if len(changed) == 0 && len(there) == 0 {
		return
	}
	reason := fmt.Sprintf("%d of its %d members are new, %d differ, %d go", added, len(whole), differ, len(there))
	attrs := map[string]any{"members": changed, "additive": true}
	if len(there) > 0 {
		attrs = map[string]any{"members": whole, "additive": false}
	}
	if attrs["members"].([]any) == nil { //nolint:forcetypeassert // set above
		attrs["members"] = []any{}
	}
	b.step(stepMembers, plan.Update, part, attrs, reason, waits...)
	b.ordered[stepMembers][len(b.ordered[stepMembers])-1].Repairs = repairs
}

// elsewhere says whether a member is on another subnet than it should be.
func elsewhere(want, have map[string]any) bool {
	subnet := canonical("subnet_id", want["subnet_id"])
	_, unknown := want["subnet_id"].(drivers.Ref)
	return have != nil && !unknown && subnet != "" && subnet != canonical("subnet_id", have["subnet_id"])
}

// memberDiffers compares what can be changed of a member.
func memberDiffers(want, have map[string]any) bool {
	changed, _ := changes(want, have, "name", "weight", "backup", "monitor_address", "monitor_port", "admin_state_up")
	return len(changed) > 0
}

// memberKey is what a member is known by.
func memberKey(member map[string]any) string {
	return canonical("address", member["address"]) + " " + canonical("protocol_port", member["protocol_port"])
}
