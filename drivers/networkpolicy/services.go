// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/policy"
	"github.com/kuryr/raven/drivers/internal/services"
)

//nolint:gochecknoglobals // constants
var (
	everyIPv4 = netip.MustParsePrefix("0.0.0.0/0")
	everyIPv6 = netip.MustParsePrefix("::/0")
)

// allowance is what a policy lets out, as the rules have it.
type allowance struct {
	peer policy.Peer
	port policy.Port // by its number
}

// covers says whether a range of ports has one.
func (a *allowance) covers(protocol string, port int64) bool {
	return a.port.Protocol == "" ||
		a.port.Protocol == protocol && (a.port.Min == 0 || a.port.Min <= port && port <= a.port.Max)
}

func (a *allowance) contains(address netip.Addr) bool {
	return slices.ContainsFunc(a.peer.Ranges, func(r netip.Prefix) bool { return r.Contains(address) })
}

// toServices adds rules for the virtual addresses of Services. OVN judges a connection to a Service twice, by its
// virtual address and by the endpoint that was chosen: to the latter the other rules lead already. A rule for a virtual
// address alone would let the first packets pass. Therefore there is one only where all endpoints are allowed.
func (b *builder) toServices() {
	everything := func(a allowance) bool {
		return a.port.Protocol == "" &&
			slices.Contains(a.peer.Ranges, everyIPv4) && slices.Contains(a.peer.Ranges, everyIPv6)
	}
	if len(b.egress) == 0 || slices.ContainsFunc(b.egress, everything) {
		return // nothing is allowed, or all virtual addresses are
	}
	for _, a := range b.egress { // at once with the namespaces: there are few rounds
		if a.peer.Pods != nil {
			b.selected(*a.peer.Pods)
		}
	}
	for _, namespace := range b.namespacesOfPeers() {
		all, _, err := services.In(b.needs, namespace)
		if err != nil {
			b.err = err
			return
		}
		for _, s := range all {
			addresses, err := s.ClusterIPs()
			if err != nil {
				continue // no driver serves it
			}
			for i := range s.Ports {
				b.toService(s.Name(), &s.Ports[i], addresses)
			}
		}
	}
}

// toService adds the rules for one port of a Service, or says that it is closed because only some endpoints are
// allowed.
func (b *builder) toService(name string, port *services.Port, addresses []netip.Addr) {
	protocol := strings.ToLower(port.Protocol)
	for _, address := range addresses {
		there := slices.ContainsFunc(b.egress, func(a allowance) bool {
			return a.contains(address) && a.covers(protocol, port.Port)
		})
		backends := port.Any(address.Is4())
		if there || len(backends) == 0 {
			continue
		}
		closed := slices.DeleteFunc(slices.Clone(backends), func(one services.Backend) bool {
			return b.letsOut(protocol, one)
		})
		switch {
		case len(closed) == 0:
			only := policy.Peer{Ranges: []netip.Prefix{netip.PrefixFrom(address, address.BitLen())}}
			b.allow("egress", only, policy.Port{Protocol: protocol, Min: port.Port, Max: port.Port})
		case len(closed) < len(backends):
			b.set.Diagnostics = append(b.set.Diagnostics, drivers.Diagnostic{
				Severity: drivers.Warning, Reason: "ServiceClosed",
				Message: fmt.Sprintf("Service %s, port %d (%s) stays closed by its address %s: of its %d endpoints the policy "+
					"allows %d only", name, port.Port, protocol, address, len(backends), len(backends)-len(closed)),
			})
		}
	}
}

// letsOut says whether the policy lets its pods reach an endpoint.
func (b *builder) letsOut(protocol string, one services.Backend) bool {
	return slices.ContainsFunc(b.egress, func(a allowance) bool {
		if !a.covers(protocol, one.Port) {
			return false
		}
		if a.peer.Pods == nil {
			return a.contains(one.Addr)
		}
		return slices.ContainsFunc(b.selected(*a.peer.Pods), func(pod source) bool {
			return pod.Metadata.Namespace == one.Pod.Namespace && pod.Metadata.Name == one.Pod.Name && !pod.Spec.HostNetwork
		})
	})
}

// namespacesOfPeers returns the namespaces in which Services can have endpoints that the policy allows, sorted.
func (b *builder) namespacesOfPeers() []string {
	in := map[string]bool{}
	for _, a := range b.egress {
		selector := "" // of namespaces
		switch pair := a.peer.Pods; {
		case pair == nil:
		case pair.Namespace != "":
			in[pair.Namespace] = true
			continue
		default:
			selector = pair.Namespaces.String()
		}
		found, _ := b.needs.Get(drivers.Need{Watch: namespaces, Selector: selector})
		for _, object := range found {
			meta, err := object.Meta()
			if err != nil {
				b.err = err
			}
			in[meta.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(in))
}
