// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"net/netip"
	"testing"

	"github.com/kuryr/raven/drivers/internal/ranges"
)

// Kubernetes assigns any address of its range: wherever that lies in the subnet, Neutron must give none of them by
// itself.
func TestPlanKeepsOutOfKubernetesRange(t *testing.T) {
	c := &config{}
	for _, subnet := range []string{"10.0.0.0/8", "10.96.0.0/12", "10.96.0.0/27", "fd00:10:96::/108"} {
		outer := netip.MustParsePrefix(subnet)
		inner := []netip.Prefix{}
		for p, bits := outer, outer.Bits(); p.Bits() < bits+3; {
			low, high := ranges.Halves(p)
			inner = append(inner, low, high)
			p = high
		}
		for _, cidr := range inner {
			f := &family{version: ranges.Version(outer), serviceSubnet: outer}
			s, err := c.plan(f, []netip.Prefix{cidr})
			if err != nil {
				t.Errorf("%s in %s: %v", cidr, outer, err)
				continue
			}
			for what, addr := range map[string]netip.Addr{"gateway": s.gateway, "first": s.first, "last": s.last} {
				if cidr.Contains(addr) || !outer.Contains(addr) || addr == outer.Addr() {
					t.Errorf("%s in %s: %s is %s", cidr, outer, what, addr)
				}
			}
			if s.last.Less(s.first) || !s.gateway.Less(s.first) || s.first.Less(cidr.Addr()) != s.last.Less(cidr.Addr()) {
				t.Errorf("%s in %s: gateway %s, pool %s to %s", cidr, outer, s.gateway, s.first, s.last)
			}
			if outer.Addr().Is4() && s.last == ranges.Last(outer) {
				t.Errorf("%s in %s: the pool ends with the broadcast address", cidr, outer)
			}
		}
	}
}
