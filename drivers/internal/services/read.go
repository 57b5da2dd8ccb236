// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"

	"github.com/kuryr/raven/drivers"
)

type endpointPort struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	Port     *int64 `json:"port"`
}

func (p *endpointPort) protocol() string {
	if p.Protocol == "" {
		return "TCP"
	}
	return p.Protocol
}

type target struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// pod is the pod that a targetRef names, in the namespace of the endpoints unless it says another.
func (t *target) pod(namespace string) PodName {
	if t == nil || t.Kind != "Pod" || t.Name == "" {
		return PodName{}
	}
	if t.Namespace != "" {
		namespace = t.Namespace
	}
	return PodName{Namespace: namespace, Name: t.Name}
}

type metadata struct {
	Namespace string            `json:"namespace"`
	Labels    map[string]string `json:"labels"`
}

// readSlice adds what an EndpointSlice offers. Of an endpoint's addresses the first counts, as for kube-proxy; a port
// without a number and an address that is a domain name are skipped. A condition that is not said is as good as true
// for ready and serving, as false for terminating.
func readSlice(object drivers.Object, offers []offer) ([]offer, error) {
	var slice struct {
		Metadata    metadata       `json:"metadata"`
		AddressType string         `json:"addressType"`
		Ports       []endpointPort `json:"ports"`
		Endpoints   []struct {
			Addresses  []string `json:"addresses"`
			Conditions struct {
				Ready       *bool `json:"ready"`
				Serving     *bool `json:"serving"`
				Terminating *bool `json:"terminating"`
			} `json:"conditions"`
			NodeName  string  `json:"nodeName"`
			TargetRef *target `json:"targetRef"`
			Hints     hints   `json:"hints"`
		} `json:"endpoints"`
	}
	if err := object.Into(&slice); err != nil {
		return nil, err
	}
	if slice.AddressType == "FQDN" {
		return offers, nil
	}
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if len(e.Addresses) == 0 {
			continue
		}
		addr, ok := address(e.Addresses[0])
		if !ok {
			continue
		}
		for j := range slice.Ports {
			p := &slice.Ports[j]
			if p.Port == nil {
				continue
			}
			offers = append(offers, offer{
				name: p.Name, protocol: p.protocol(),
				Backend: Backend{
					Addr: addr, Port: *p.Port, Node: e.NodeName, Pod: e.TargetRef.pod(slice.Metadata.Namespace),
					Terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
				},
				hints:   e.Hints,
				ready:   e.Conditions.Ready == nil || *e.Conditions.Ready,
				serving: e.Conditions.Serving == nil || *e.Conditions.Serving,
			})
		}
	}
	return offers, nil
}

type endpointAddress struct {
	IP        string  `json:"ip"`
	NodeName  string  `json:"nodeName"`
	TargetRef *target `json:"targetRef"`
}

// readEndpoints adds what an Endpoints object offers. Those that are not ready are left out: there is no telling
// which of them still serve.
func readEndpoints(object drivers.Object, offers []offer) ([]offer, error) {
	var endpoints struct {
		Metadata metadata `json:"metadata"`
		Subsets  []struct {
			Addresses []endpointAddress `json:"addresses"`
			Ports     []endpointPort    `json:"ports"`
		} `json:"subsets"`
	}
	if err := object.Into(&endpoints); err != nil {
		return nil, err
	}
	if endpoints.Metadata.Labels[skipMirrorLabel] == "true" {
		return offers, nil
	}
	for i := range endpoints.Subsets {
		subset := &endpoints.Subsets[i]
		for j := range subset.Addresses {
			a := &subset.Addresses[j]
			addr, ok := address(a.IP)
			if !ok {
				continue
			}
			for k := range subset.Ports {
				p := &subset.Ports[k]
				if p.Port == nil {
					continue
				}
				offers = append(offers, offer{
					name: p.Name, protocol: p.protocol(), ready: true, serving: true,
					Backend: Backend{Addr: addr, Port: *p.Port, Node: a.NodeName, Pod: a.TargetRef.pod(endpoints.Metadata.Namespace)},
				})
			}
		}
	}
	return offers, nil
}

func address(text string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(text)
	return addr.Unmap(), err == nil && addr.Zone() == ""
}
