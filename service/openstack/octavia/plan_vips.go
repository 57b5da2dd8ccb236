// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// addressesOf lists the addresses of a load balancer with the subnet or network that each is on; of those it leaves to
// the cloud none.
func addressesOf(attrs map[string]any) []vip {
	var list []vip
	add := func(address any, kind drivers.Kind, at any) {
		id, _ := at.(string)
		if text := canonical("vip_address", address); text != "" && id != "" {
			list = append(list, vip{text, kind, id})
		}
	}
	add(attrs["vip_address"], drivers.KindSubnet, attrs["vip_subnet_id"])
	add(attrs["vip_address"], drivers.KindNetwork, attrs["vip_network_id"])
	for _, further := range structures(attrs["additional_vips"]) {
		add(further["ip_address"], drivers.KindSubnet, further["subnet_id"])
	}
	return list
}

// vip is an address of a load balancer, where it is.
type vip struct {
	address string
	kind    drivers.Kind
	id      string
}

// sameVIP returns an address that two load balancers cannot both have, or "".
func sameVIP(want, have map[string]any) string {
	present := addressesOf(have)
	for _, v := range addressesOf(want) {
		if slices.Contains(present, v) {
			return v.address
		}
	}
	return ""
}

// addressHolders returns a wait for every load balancer of this cluster, of any owner, that has an address which a new
// one wants.
func addressHolders(c *plan.Computation, m *plan.Match, attrs map[string]any) []plan.Wait {
	var waits []plan.Wait
	for _, v := range addressesOf(attrs) {
		for _, other := range c.UsersOf(v.kind, v.id) {
			if other.Kind != drivers.KindLoadBalancer || other.Identity.Key() == m.Key ||
				!slices.Contains(addressesOf(other.Attrs), v) || strings.HasPrefix(other.ID, "create ") {
				continue
			}
			waits = append(waits, plan.Wait{
				Resource: &plan.Resource{Kind: other.Kind, ID: other.ID, Identity: other.Identity},
				Message: fmt.Sprintf("waiting for load balancer %s to go, which has the address %s",
					other.Identity, v.address),
			})
		}
	}
	return waits
}

// pretends is the provider that shows further addresses which it does not make.
const pretends = "ovn"

// ignored says, for people, which further addresses of a load balancer its provider has ignored. Of one that stays as
// it is whatever is wished others tell why.
func ignored(c *plan.Computation, m *plan.Match) {
	wanted, _ := m.Desired.Attrs["additional_vips"].([]any)
	have, _ := m.Observed.Attrs["additional_vips"].([]any)
	provider := textAt(m.Observed.Attrs, "provider")
	if HintsOf(m.Desired).Pinned || len(wanted) == 0 || len(have) > 0 && provider != pretends || provider == "" {
		return
	}
	c.Plan.Notices = append(c.Plan.Notices, plan.Notice{Reason: "LoadBalancer", Message: fmt.Sprintf(
		"provider %s has ignored the %d additional addresses of load balancer %q, which are not served: "+
			"let it have a load balancer for each address",
		provider, len(wanted), name(m))})
}

// matchVIPs compares the further addresses of a load balancer. Where there are none because its provider ignores them
// another one of it would have none either.
func matchVIPs(d *plan.Desired, _ *plan.Observed, want, have any) (any, bool) {
	wanted, _ := want.([]any)
	observed, shown := have.([]any)
	if len(observed) == 0 && (!shown || HintsOf(d).Unmade) {
		return want, true
	}
	return want, len(wanted) == len(observed) && !slices.ContainsFunc(wanted, func(w any) bool {
		return !slices.ContainsFunc(observed, func(o any) bool {
			return plan.Form(canonicalText).Covers(w, o, "subnet_id", "ip_address")
		})
	})
}
