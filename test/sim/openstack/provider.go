// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Work is how long a provider works on something after Octavia answered the request for it. Zero: it is done by the
// next request.
type Work struct {
	Create, Delete                  time.Duration // a load balancer, bare or not
	Update                          time.Duration // any change, to begin with
	Listener, Pool, Member, Monitor time.Duration // each one that is created, changed or deleted
}

// over divides every time by scale; 0 is 1.
func (w Work) over(scale float64) Work {
	if scale == 0 {
		scale = 1
	}
	d := func(x time.Duration) time.Duration { return time.Duration(float64(x) / scale) }
	return Work{d(w.Create), d(w.Delete), d(w.Update), d(w.Listener), d(w.Pool), d(w.Member), d(w.Monitor)}
}

// Provider is a provider of load balancers: what it can do, and how long that takes.
type Provider struct {
	Name, Description string
	Work              Work
	// Lanes is how many pieces of work it does at once; the others wait. 0: all.
	Lanes int
	// StepByStep: pieces of one request are done one after another, and the load balancer is ACTIVE from the first one on.
	StepByStep bool
	// Protocols, Algorithms and Monitors that it supports. Nil: all that Octavia knows.
	Protocols, Algorithms, Monitors []string
	// Lacks are options that it refuses with 501: see the constants.
	Lacks []string
	// IgnoresAdditionalVIPs: they are accepted and shown, and nothing is made of them.
	IgnoresAdditionalVIPs bool
	// ForeignVIP: the VIP may be a port that the client made, which then survives the load balancer.
	ForeignVIP bool
	// StuckChildren: what a full create brings along stays PENDING_CREATE for good.
	StuckChildren bool
	// Reports operating statuses. One that does not has everything OFFLINE.
	Reports bool
	// Amphorae: a VIP port of Octavia's own, and ports and a security group of the administrator's beside it.
	Amphorae bool
}

// What a provider may lack.
const (
	LackAllowedCIDRs = "allowed_cidrs"
	LackMemberChecks = "monitor_port" // and monitor_address
	LackFailover     = "failover"
	LackFlavors      = "flavors"
	LackZones        = "availability zones" // which it says when the VIP's port is made: that stays behind
	LackMixedIP      = "mixed IP versions"
	LackOtherSubnets = "members of unnamed subnets" // a member without subnet_id must be in the VIP's subnet
	LackFullMonitors = "monitors in a full create"  // they stay PENDING_CREATE
	// A health monitor ends in ERROR unless every member is a Neutron port of its subnet, and that has a metadata port
	// with an address.
	LackForeignMonitors = "monitors of members that are no ports"
	// of a full create they stay PENDING_CREATE, with what belongs to them
	LackLoosePools = "pools without a listener"
	// a change of a health monitor leaves them PENDING_UPDATE until the next of another kind
	LackMonitoredUnlock = "listeners of a monitored pool"
)

// Amphora is the provider of that name as Octavia 11 has it, with no-op amphorae, which never report.
func Amphora(w Work) Provider {
	return Provider{
		Name: "amphora", Description: "The Octavia Amphora driver.", Work: w, Lanes: 4, ForeignVIP: true, Amphorae: true,
		Lacks:      []string{LackLoosePools},
		Algorithms: []string{"ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP"}, // SOURCE_IP_PORT: no
	}
}

// OVN is the provider of that name as ovn-octavia-provider 3 has it.
func OVN(w Work) Provider {
	return Provider{
		Name: "ovn", Description: "Octavia OVN driver.", Work: w, Lanes: 1, StepByStep: true, Reports: true,
		IgnoresAdditionalVIPs: true,
		Protocols:             []string{"TCP", "UDP", "SCTP"}, Algorithms: []string{"SOURCE_IP_PORT"},
		Monitors: []string{"UDP-CONNECT", "TCP"},
		Lacks: []string{
			LackAllowedCIDRs, LackMemberChecks, LackFailover, LackFlavors, LackMixedIP, LackOtherSubnets, LackFullMonitors,
			LackForeignMonitors, LackMonitoredUnlock,
		},
	}
}

// LabAmphora is Amphora with the times of a real Octavia 11 on two cores, divided by scale (0: 1). Requests
// themselves cost what LabLike says; both together give:
//
//	measured: a bare load balancer 3.1 s, one with 2 listeners, 2 pools and 10 members 7.8 s; 10 members replaced 4.0 s, 100: 32.0 s; a
//	cascading delete 2.2 s
func LabAmphora(scale float64) Provider {
	return Amphora(Work{
		Create: 2500 * time.Millisecond, Delete: 2 * time.Second, Update: 700 * time.Millisecond,
		Listener: 780 * time.Millisecond,
		Pool:     780 * time.Millisecond, Member: 155 * time.Millisecond, Monitor: 780 * time.Millisecond,
	}.over(scale))
}

// LabOVN is OVN with the times of the real one.
//
//	measured: 0.8 s, 5.2 s; 7.6 s, 77.7 s; 0.7 s
func LabOVN(scale float64) Provider {
	return OVN(Work{
		Create: 300 * time.Millisecond, Delete: 500 * time.Millisecond, Update: 30 * time.Millisecond,
		Listener: 130 * time.Millisecond,
		Pool:     130 * time.Millisecond, Member: 385 * time.Millisecond, Monitor: 250 * time.Millisecond,
	}.over(scale))
}

func (p *Provider) lacks(what string) bool { return slices.Contains(p.Lacks, what) }

// provider returns a provider by name.
func (c *Cloud) provider(name string) (*Provider, bool) {
	for i := range c.opts.Providers {
		if c.opts.Providers[i].Name == name {
			return &c.opts.Providers[i], true
		}
	}
	return nil, false
}

// providerOf returns the provider of a load balancer.
func (c *Cloud) providerOf(lb *object) *Provider {
	p, ok := c.provider(str(lb.doc, "provider"))
	if !ok {
		return &Provider{Name: str(lb.doc, "provider")}
	}
	return p
}

func (p *Provider) unsupported(what string) *apiError {
	return octavia(501, "ProviderUnsupportedOptionError", "Provider '%s' does not support a requested option: %s",
		p.Name, what)
}

func (p *Provider) known(list []string, value string) bool {
	return list == nil || slices.Contains(list, value)
}

// title is the provider's name in its own messages.
func (p *Provider) title() string { return strings.ToUpper(p.Name) }

func (p *Provider) checkListener(doc map[string]any) error {
	if proto := str(doc, "protocol"); !p.known(p.Protocols, proto) {
		return p.unsupported(p.title() + " provider does not support " + proto + " protocol")
	}
	if p.lacks(LackAllowedCIDRs) && len(list(doc, "allowed_cidrs")) > 0 {
		return p.unsupported(p.title() + " provider does not support allowed_cidrs option")
	}
	return nil
}

func (p *Provider) checkPool(doc map[string]any) error {
	if proto := str(doc, "protocol"); !p.known(p.Protocols, proto) {
		return p.unsupported(p.title() + " provider does not support " + proto + " protocol")
	}
	if a := str(doc, "lb_algorithm"); !p.known(p.Algorithms, a) {
		if p.Amphorae {
			return p.unsupported("Amphora provider does not support " + a + " algorithm.")
		}
		return p.unsupported(p.title() + " provider does not support " + a + " algorithm")
	}
	return nil
}

func (p *Provider) checkMonitor(doc map[string]any) error {
	if kind := str(doc, "type"); !p.known(p.Monitors, kind) {
		return p.unsupported(p.title() + " provider does not support " + kind + " health monitor type. Supported types: " +
			strings.Join(p.Monitors, ", "))
	}
	return nil
}

// monitorable says whether a provider that probes from within the network reaches every member of a pool.
func (t *tx) monitorable(pool *object) bool {
	for _, m := range t.c.children("member", "pool_id", pool.id) {
		subnet := str(m.doc, "subnet_id")
		if subnet == "" {
			if lb := t.loadBalancerOf(pool); lb != nil {
				subnet = str(lb.doc, "vip_subnet_id")
			}
		}
		port, probe := false, false
		for p := range t.c.by("port", "fixed_ips.subnet_id", subnet) {
			if str(p.doc, "device_owner") == distributed {
				probe = true
			} else if hasAddress(p, str(m.doc, "address")) {
				port = true
			}
		}
		if !port || !probe {
			return false
		}
	}
	return true
}

// checkMember: lb is the load balancer that the member is for.
func (t *tx) checkMember(p *Provider, lb *object, doc map[string]any) error {
	if p.lacks(LackMemberChecks) && (doc["monitor_port"] != nil || doc["monitor_address"] != nil) {
		return p.unsupported(p.title() + " Load Balancer does not support different member monitor address or port.")
	}
	a, err := netip.ParseAddr(str(doc, "address"))
	if err != nil {
		return nil //nolint:nilerr // checked by the schema
	}
	vip, err := netip.ParseAddr(str(lb.doc, "vip_address"))
	if p.lacks(LackMixedIP) && err == nil && vip.Is4() != a.Is4() {
		return p.unsupported(p.title() +
			" provider does not support mixing IPv4/IPv6 configuration within the same Load Balancer.")
	}
	if !p.lacks(LackOtherSubnets) || str(doc, "subnet_id") != "" {
		return nil
	}
	if s, ok := t.any("subnet", str(lb.doc, "vip_subnet_id")); !ok || !s.ipam.prefix.Contains(a) {
		return p.unsupported("Subnet is required, or Loadbalancer associated with Pool must have a subnet, for Member " +
			"creation with " + p.title() +
			" Provider Driver if it is not the same as LB VIP subnet")
	}
	return nil
}
