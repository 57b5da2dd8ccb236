// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
)

// The watches that say where a Service's traffic goes.
const (
	slicesWatch    = "endpointslices"
	endpointsWatch = "endpoints"
)

const (
	serviceNameLabel = "kubernetes.io/service-name"
	// skipMirrorLabel on Endpoints says that they are no Service's backends: some are locks of leader elections.
	skipMirrorLabel = "endpointslice.kubernetes.io/skip-mirror"
)

// EndpointWatches returns the watches that Ask needs. A cluster may lack either.
func EndpointWatches() []drivers.Watch {
	return []drivers.Watch{
		{
			Name: slicesWatch, Kind: "EndpointSlice", Optional: true,
			GVR: schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
			Fields: []string{
				"metadata.labels['" + serviceNameLabel + "']", "addressType", "ports.name", "ports.port", "ports.protocol",
				"endpoints.addresses", "endpoints.conditions",
				"endpoints.nodeName", "endpoints.hints",
				"endpoints.targetRef.kind", "endpoints.targetRef.name", "endpoints.targetRef.namespace",
			},
		},
		{
			Name: endpointsWatch, Kind: "Endpoints", Optional: true,
			GVR:    schema.GroupVersionResource{Version: "v1", Resource: "endpoints"},
			Fields: []string{"metadata.labels['" + skipMirrorLabel + "']", "subsets"},
		},
	}
}

// Backend is one address and port that serves a port of a Service.
type Backend struct {
	Addr netip.Addr
	Port int64
	// Node is the name of the node that it runs on, empty where that is not known.
	Node string
	// Pod is the pod behind it, as namespace and name; both empty where there is none.
	Pod PodName
	// Terminating says that it is on its way out: it is used only because nothing else is ready.
	Terminating bool
}

// PodName names a pod.
type PodName struct{ Namespace, Name string }

// Port is a port of a Service and the backends that its traffic goes to, in the order of address and port.
type Port struct {
	ServicePort
	Backends []Backend

	offers []offer
}

// On returns the backends of one IP version on a node, as if there were no other nodes.
func (p *Port) On(node string, ip4 bool) []Backend {
	there := slices.DeleteFunc(slices.Clone(p.offers), func(o offer) bool { return o.Node != node })
	return choose(there, ip4)
}

// Of returns the backends of one IP version.
func (p *Port) Of(ip4 bool) []Backend {
	var some []Backend
	for i := range p.Backends {
		if p.Backends[i].Addr.Is4() == ip4 {
			some = append(some, p.Backends[i])
		}
	}
	return some
}

// Ask returns the ports of a Service with their backends, in the order of the Service, and whether that is known yet;
// what is returned before counts for nothing. EndpointSlices go first; Endpoints are asked for only where there are
// none, which is so in a cluster that does not serve EndpointSlices.
func Ask(needs *drivers.Needs, s *Service) (ports []Port, known bool, err error) {
	found, answered := needs.Get(drivers.Need{
		Watch: slicesWatch, Namespace: s.Metadata.Namespace, Selector: serviceNameLabel + "=" + s.Metadata.Name,
	})
	if !answered {
		return nil, false, nil
	}
	var offers []offer
	for _, object := range found {
		if offers, err = readSlice(object, offers); err != nil {
			return nil, true, err
		}
	}
	if len(found) == 0 {
		objects, answered := needs.Get(drivers.Need{
			Watch: endpointsWatch, Namespace: s.Metadata.Namespace, Name: s.Metadata.Name,
		})
		if !answered {
			return nil, false, nil
		}
		for _, object := range objects {
			if offers, err = readEndpoints(object, offers); err != nil {
				return nil, true, err
			}
		}
	}
	return resolve(s.Spec.Ports, offers), true, nil
}

// Offered says whether Kubernetes has said anything of a Service's endpoints. It does so for every Service with a
// selector, if only that there are none; before that what Ask returns is no answer yet. Of a Service without a
// selector there may never be any endpoints.
func Offered(needs *drivers.Needs, s *Service) bool {
	if len(s.Spec.Selector) == 0 {
		return true
	}
	found, _ := needs.Get(drivers.Need{
		Watch: slicesWatch, Namespace: s.Metadata.Namespace, Selector: serviceNameLabel + "=" + s.Metadata.Name,
	})
	if len(found) > 0 {
		return true
	}
	found, _ = needs.Get(drivers.Need{Watch: endpointsWatch, Namespace: s.Metadata.Namespace, Name: s.Metadata.Name})
	return len(found) > 0
}

// offer is one endpoint of one port, as the cluster says it.
type offer struct {
	name, protocol string // of the Service's port that it is for
	Backend
	hints
	ready, serving bool
}

// resolve gives every port what is offered for it, by kube-proxy's rule for each IP version: the ready ones; where
// there are none, those that still serve while they terminate.
func resolve(ports []ServicePort, offers []offer) []Port {
	type key struct{ name, protocol string }
	byPort := map[key][]offer{}
	for _, o := range offers {
		k := key{o.name, o.protocol}
		byPort[k] = append(byPort[k], o)
	}
	out := make([]Port, 0, len(ports))
	for _, p := range ports {
		all := merge(byPort[key{p.Name, p.Protocol}])
		port := Port{ServicePort: p, offers: all}
		for _, ip4 := range []bool{true, false} {
			port.Backends = append(port.Backends, choose(all, ip4)...)
		}
		out = append(out, port)
	}
	return out
}

func choose(all []offer, ip4 bool) []Backend {
	var ready, lingering []Backend
	for _, o := range all {
		switch {
		case o.Addr.Is4() != ip4:
		case o.ready:
			ready = append(ready, o.Backend)
		case o.serving && o.Terminating:
			lingering = append(lingering, o.Backend)
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return lingering
}

// merge sorts offers by address and port and leaves one of each: while an endpoint moves from one slice to another it
// is in both, and the better word counts, so that it never loses its traffic by that.
func merge(offers []offer) []offer {
	rank := func(o offer) int {
		switch {
		case o.ready:
			return 0
		case o.serving:
			return 1
		default:
			return 2
		}
	}
	slices.SortStableFunc(offers, func(a, b offer) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port), cmp.Compare(rank(a), rank(b)),
			cmp.Compare(b.Pod.Name, a.Pod.Name), cmp.Compare(b.Node, a.Node))
	})
	return slices.CompactFunc(offers, func(a, b offer) bool { return a.Addr == b.Addr && a.Port == b.Port })
}
