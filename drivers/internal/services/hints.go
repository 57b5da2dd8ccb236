// SPDX-License-Identifier: Apache-2.0

package services

import "slices"

// hints say for which nodes and zones an endpoint is meant.
type hints struct {
	ForNodes []named `json:"forNodes"`
	ForZones []named `json:"forZones"`
}

type named struct {
	Name string `json:"name"`
}

// Hinted says whether endpoints of the port are meant for some nodes or zones.
func (p *Port) Hinted() bool {
	return slices.ContainsFunc(p.offers, func(o offer) bool { return len(o.ForNodes)+len(o.ForZones) > 0 })
}

// For returns the backends of one IP version for clients on a node, by kube-proxy's rule: those that are meant for the
// node, if all that are ready are meant for nodes and one is for this; else those that are meant for its zone, if all
// are meant for zones and one is for this; else all.
func (p *Port) For(node, zone string, ip4 bool) []Backend {
	ready := slices.DeleteFunc(slices.Clone(p.offers), func(o offer) bool { return !o.ready || o.Addr.Is4() != ip4 })
	for _, by := range []struct {
		name string
		of   func(offer) []named
	}{
		{node, func(o offer) []named { return o.ForNodes }}, {zone, func(o offer) []named { return o.ForZones }},
	} {
		var meant []Backend
		for _, o := range ready {
			if slices.Contains(by.of(o), named{by.name}) {
				meant = append(meant, o.Backend)
			}
		}
		if len(meant) > 0 && !slices.ContainsFunc(ready, func(o offer) bool { return len(by.of(o)) == 0 }) {
			return meant
		}
	}
	return p.Of(ip4)
}
