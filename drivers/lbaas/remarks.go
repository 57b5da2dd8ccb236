// SPDX-License-Identifier: Apache-2.0

package lbaas

import (
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/services"
)

// outputs says on the Service what serves it.
func (b *builder) outputs() {
	first := b.vips[0].balancer
	b.Document(VIPAnnotation, first, "")
	if len(b.Ports) > 0 {
		b.Document(PoolAnnotation, first, "pool")
	}
	if len(b.Ports) > 1 {
		b.Document(PoolsAnnotation, first, "pools")
	}
	if b.Made[vipSecurityGroup] {
		b.Document(VIPSecurityGroupAnnotation, vipSecurityGroup, "")
	}
	b.FloatingOutputs()
}

// remarks says what of the Service no load balancer can do.
func (b *builder) remarks() {
	b.Remarks()
	b.affinity()
	b.unchecked()
}

// affinity says where the time that a client keeps its member for cannot be set.
func (b *builder) affinity() {
	clientIP, seconds := b.Service.Affinity()
	own := b.wants.provider.affinitySeconds
	if !clientIP || seconds == own || own == 0 && seconds == services.DefaultAffinitySeconds {
		return
	}
	ports := b.Numbers(func(p *services.Port) bool { return p.Protocol == "TCP" })
	switch {
	case ports == "":
	case own == 0:
		b.Say(drivers.Warning, "AffinityTimeoutIgnored",
			"clients of TCP port %s keep their member, but not for timeoutSeconds %d: Octavia has a time for UDP and SCTP "+
				"only", ports, seconds)
	default:
		severity := drivers.Warning
		if seconds == services.DefaultAffinitySeconds {
			severity = drivers.Note // few ask for it: an API server fills it in
		}
		b.Say(severity, "AffinityTimeoutIgnored",
			"clients of TCP port %s keep their member for %d s after the last connection, and not for timeoutSeconds %d: "+
				"Octavia has a time for UDP and SCTP only, and %s one of its own for TCP", ports, own, seconds, &b.wants.provider)
	}
}

// unchecked says which ports have no health monitor though one is wanted.
func (b *builder) unchecked() {
	if b.wants.monitor == nil {
		return
	}
	ports := b.Numbers(func(p *services.Port) bool { return !slices.Contains(b.wants.provider.monitors, p.Protocol) })
	if ports != "" {
		b.Say(drivers.Warning, "NoHealthMonitor", "port %s has no health monitor: %s has none for its protocol", ports,
			&b.wants.provider)
	}
}
