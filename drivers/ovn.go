// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"fmt"
	"net/netip"
	"regexp"
)

// MaxAffinityTimeout is the bound of OVNVIP.AffinityTimeout, in seconds.
const MaxAffinityTimeout = 65535

// OVNLoadBalancerGroup is a group of OVN load balancers: all of them serve on the logical switches of its networks
// and on the logical routers of its routers. Its lists are filled by contributions: an owner adds its network and its
// router to the group that it claims.
type OVNLoadBalancerGroup struct {
	Name *string `raven:"name"`
	// Networks and Routers are the ids of Neutron's networks and routers. OVN's names of their switches and routers
	// follow from these.
	Networks []Value `raven:"networks,unordered"`
	Routers  []Value `raven:"routers,unordered"`
}

// OVNLoadBalancer is what one Service needs of OVN. It is kept as one northbound Load_Balancer row per protocol and
// affinity, all in one group and all changed in one transaction.
type OVNLoadBalancer struct {
	Name    *string  `raven:"name"`
	GroupID Value    `raven:"group_id,required,immutable"`
	VIPs    []OVNVIP `raven:"vips,unordered"`
}

// OVNVIP is one address and port that clients connect to. Protocol, address and port are what it is known by.
type OVNVIP struct {
	Protocol string `raven:"protocol"` // TCP, UDP or SCTP
	// Address is an IP address, or the floating_ip_address of a floating IP: as long as that is not known the VIP is
	// left out.
	Address Value `raven:"address"`
	Port    int64 `raven:"port"` // 1 to 65535
	// Backends are where connections go, of the IP version of the address. Empty: connections are rejected.
	Backends []OVNBackend `raven:"backends,unordered"`
	// AffinityTimeout is for how many seconds a client keeps its backend; 0: not at all. At most MaxAffinityTimeout. The
	// core keeps it as long as the backends are the same, and with it at least that long: OVN's own way to forget loses
	// connections (docs/adr/0015).
	AffinityTimeout int64 `raven:"affinity_timeout"`
	// External says that clients outside reach the VIP by way of a router, which answers for its address in whatever
	// subnet that is.
	External bool `raven:"external"`
	// Chassis gives the clients on each chassis backends of their own, in place of Backends, which are empty then. Clients
	// on a chassis that is not listed are not served; where a chassis has no backends, connections get no answer. Not with
	// External. Only a core with the capability ChassisBackends knows it.
	Chassis []OVNChassis `raven:"chassis,unordered"`
}

// OVNChassis is a chassis of OVN, and the backends of the clients on it.
type OVNChassis struct {
	// ID is its name in OVN's southbound database: external_ids:system-id of its Open vSwitch.
	ID string `raven:"id"`
	// Backends are where connections of its clients go, of the IP version of the VIP's address.
	Backends []OVNBackend `raven:"backends,unordered"`
}

// OVNBackend is one endpoint.
type OVNBackend struct {
	Address string `raven:"address"`
	Port    int64  `raven:"port"` // 1 to 65535
}

// Northbound says whether resources of the kind are kept in OVN's northbound database, and not by OpenStack's services.
func (k Kind) Northbound() bool { return k == KindOVNLoadBalancerGroup || k == KindOVNLoadBalancer }

// Kind implements Spec.
func (OVNLoadBalancerGroup) Kind() Kind { return KindOVNLoadBalancerGroup }

// Kind implements Spec.
func (OVNLoadBalancer) Kind() Kind { return KindOVNLoadBalancer }

// ovnBalancer checks an OVN load balancer.
func (v *validator) ovnBalancer(at string, s OVNLoadBalancer) {
	seen := map[string]bool{}
	for i, vip := range s.VIPs {
		here := fmt.Sprintf("%s: vips[%d]", at, i)
		v.choice(here+": protocol", &vip.Protocol, "TCP", "UDP", "SCTP")
		v.port(here+": port", &vip.Port)
		if vip.AffinityTimeout < 0 || vip.AffinityTimeout > MaxAffinityTimeout {
			v.say("%s: affinity_timeout: %d is not between 0 and %d", here, vip.AffinityTimeout, MaxAffinityTimeout)
		}
		addr, literal := netip.Addr{}, vip.Address.Ref == nil
		if literal {
			addr = v.plainAddress(here+": address", vip.Address.Literal)
		}
		key := fmt.Sprintf("%s %s %s %d", vip.Protocol, addr, refText(vip.Address), vip.Port)
		if seen[key] {
			v.say("%s: protocol, address and port are there twice", here)
		}
		seen[key] = true
		v.ovnBackends(here, addr, vip.Backends)
		v.ovnChassis(here, addr, vip)
	}
}

// chassisID is what a chassis may be called: printable text without spaces.
var chassisID = regexp.MustCompile(`^[!-~]{1,255}$`)

// ovnChassis checks the backends of a VIP on each chassis.
func (v *validator) ovnChassis(at string, addr netip.Addr, vip OVNVIP) {
	if len(vip.Chassis) > 0 && len(vip.Backends) > 0 {
		v.say("%s: backends and chassis are both there", at)
	}
	if len(vip.Chassis) > 0 && vip.External {
		v.say("%s: chassis and external are both there", at)
	}
	if len(vip.Chassis) > 0 && vip.Address.Ref != nil {
		v.say("%s: chassis: the address is not known beforehand: %s", at, refText(vip.Address))
	}
	seen := map[string]bool{}
	for i, c := range vip.Chassis {
		here := fmt.Sprintf("%s: chassis[%d]", at, i)
		if !chassisID.MatchString(c.ID) {
			v.say("%s: id: %q is not 1 to 255 printable characters without spaces", here, c.ID)
		}
		if seen[c.ID] {
			v.say("%s: id is there twice: %s", here, c.ID)
		}
		seen[c.ID] = true
		v.ovnBackends(here, addr, c.Backends)
	}
}

// ovnBackends checks the backends of a VIP; addr is not valid where it is not known yet.
func (v *validator) ovnBackends(at string, addr netip.Addr, backends []OVNBackend) {
	seen := map[netip.AddrPort]bool{}
	for i, b := range backends {
		here := fmt.Sprintf("%s: backends[%d]", at, i)
		v.port(here+": port", &b.Port)
		backend := v.plainAddress(here+": address", b.Address)
		if !backend.IsValid() {
			continue
		}
		if addr.IsValid() && addr.Is4() != backend.Is4() {
			v.say("%s: address: %s is not of the IP version of %s", here, backend, addr)
		}
		key := netip.AddrPortFrom(backend, uint16(b.Port))
		if seen[key] {
			v.say("%s: address and port are there twice: %s", here, key)
		}
		seen[key] = true
	}
}

// plainAddress checks an address that must be there, and returns it; not valid if it is not good.
func (v *validator) plainAddress(at, text string) netip.Addr {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" || addr.Is4In6() {
		v.say("%s: %q is no IP address", at, text)
		return netip.Addr{}
	}
	return addr
}

func refText(v Value) string {
	if v.Ref == nil {
		return ""
	}
	return v.Ref.String()
}
