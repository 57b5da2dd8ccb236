// SPDX-License-Identifier: Apache-2.0

package services

import (
	"github.com/kuryr/raven/drivers"
)

// NeededWatch returns the watch of Services for drivers of other objects, which ask for them: only what has to do with
// their virtual addresses.
func NeededWatch() drivers.Watch {
	w := Watch()
	w.Source = false
	w.Fields = []string{
		"metadata.labels['" + proxyLabel + "']", "spec.type", "spec.clusterIP", "spec.clusterIPs", "spec.ports",
	}
	return w
}

// Proxied is a Service with a virtual address, and its ports.
type Proxied struct {
	*Service
	Ports []Port
}

// SlicesWatch is the watch of EndpointSlices.
func SlicesWatch() drivers.Watch { return EndpointWatches()[0] }

// In returns the Services of a namespace that have a virtual address, with their ports, and whether that is known yet.
// It needs NeededWatch and SlicesWatch, and asks in one round: in a cluster that does not serve EndpointSlices no
// Service has a backend.
func In(needs *drivers.Needs, namespace string) (all []Proxied, known bool, err error) {
	objects, answered := needs.Get(drivers.Need{Watch: servicesWatch, Namespace: namespace})
	offers, offered, err := slicedOffers(needs, namespace)
	if err != nil || !answered || !offered {
		return nil, false, err
	}
	for _, object := range objects {
		s, err := Decode(object)
		if err != nil {
			return nil, true, err
		}
		if s.Proxied() {
			all = append(all, Proxied{s, resolve(s.Spec.Ports, offers[s.Metadata.Name])})
		}
	}
	return all, true, nil
}

// Any returns all backends of one IP version that Kubernetes tells of, also those that get no traffic now.
func (p *Port) Any(ip4 bool) []Backend {
	var all []Backend
	for i := range p.offers {
		if p.offers[i].Addr.Is4() == ip4 {
			all = append(all, p.offers[i].Backend)
		}
	}
	return all
}
