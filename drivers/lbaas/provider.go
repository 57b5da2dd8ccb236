// SPDX-License-Identifier: Apache-2.0

package lbaas

import "slices"

// provider is what is known beforehand of one of Octavia's providers. What is not known is tried: the cloud then says
// so.
type provider struct {
	name string // empty: the cloud's default
	// algorithms that it has; nil: all.
	algorithms []string
	// lacksCIDRs: listeners cannot limit who may connect.
	lacksCIDRs bool
	// keepsClient: members see the client's own address.
	keepsClient bool
	// onSubnet: members have to be named with the subnet that they are on.
	onSubnet bool
	// additionalVIPs: one load balancer can have addresses of both IP versions.
	additionalVIPs bool
	// ignoresVIPs: it accepts and shows further addresses, and serves none of them.
	ignoresVIPs bool
	// ignoresGroups: security groups of the VIP's port keep no client out, for traffic does not come by it.
	ignoresGroups bool
	// affinitySeconds: how long a client of a TCP port keeps its member, for which Octavia has no setting; 0: as long as
	// people expect.
	affinitySeconds int64
	// monitors: protocols of Services whose members it can check.
	monitors []string
	// proxies: it can tell members the client's address by the PROXY protocol.
	proxies bool
}

// providerOf returns what is known of a provider. amphora was called octavia once.
func providerOf(name string) provider {
	all := []string{"TCP", "UDP", "SCTP"}
	switch name {
	case "ovn":
		return provider{
			name: name, algorithms: []string{sourceIPPort}, lacksCIDRs: true, keepsClient: true, onSubnet: true,
			ignoresVIPs:   true,
			ignoresGroups: true, affinitySeconds: 360, monitors: all[:2],
		}
	case "amphora", "octavia":
		return provider{
			name: name, algorithms: []string{roundRobin, leastConnections, sourceIP}, additionalVIPs: true, monitors: all,
			proxies: true,
		}
	default:
		return provider{name: name, monitors: all, proxies: true}
	}
}

func (p *provider) has(algorithm string) bool {
	return p.algorithms == nil || slices.Contains(p.algorithms, algorithm)
}

func (p *provider) String() string {
	if p.name == "" {
		return "the cloud's default provider"
	}
	return "provider " + p.name
}
