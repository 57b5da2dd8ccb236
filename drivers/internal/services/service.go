// SPDX-License-Identifier: Apache-2.0

// Package services says what a Kubernetes Service promises and where its traffic goes, by the rules of kube-proxy. It
// must never know how a load balancer is made: the drivers that hold the role service-proxy share it.
package services

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
)

const (
	servicesWatch = "services"
	writtenWatch  = "services-written"
)

// proxyLabel on a Service hands it to another proxy than the cluster's own, whatever its value is.
const proxyLabel = "service.kubernetes.io/service-proxy-name"

// The types of Services.
const (
	TypeClusterIP    = "ClusterIP"
	TypeNodePort     = "NodePort"
	TypeLoadBalancer = "LoadBalancer"
	TypeExternalName = "ExternalName"
)

// Service is what is read of a Service. Only that is decoded: objects of old API servers have fields of shapes that
// today's types refuse.
type Service struct {
	Metadata struct {
		Name              string            `json:"name"`
		Namespace         string            `json:"namespace"`
		UID               string            `json:"uid"`
		Labels            map[string]string `json:"labels"`
		Annotations       map[string]string `json:"annotations"`
		DeletionTimestamp string            `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Type                     string            `json:"type"`
		ClusterIP                string            `json:"clusterIP"`
		ClusterIPs               []string          `json:"clusterIPs"`
		Selector                 map[string]string `json:"selector"`
		Ports                    []ServicePort     `json:"ports"`
		SessionAffinity          string            `json:"sessionAffinity"`
		SessionAffinityConfig    AffinityConfig    `json:"sessionAffinityConfig"`
		ExternalIPs              []string          `json:"externalIPs"`
		LoadBalancerIP           string            `json:"loadBalancerIP"`
		LoadBalancerClass        *string           `json:"loadBalancerClass"`
		LoadBalancerSourceRanges []string          `json:"loadBalancerSourceRanges"`
		ExternalTrafficPolicy    string            `json:"externalTrafficPolicy"`
		InternalTrafficPolicy    string            `json:"internalTrafficPolicy"`
		HealthCheckNodePort      int64             `json:"healthCheckNodePort"`
	} `json:"spec"`
	// Status is read by drivers whose watch says so.
	Status struct {
		LoadBalancer struct {
			Ingress []struct {
				IP     string `json:"ip"`
				IPMode string `json:"ipMode"`
			} `json:"ingress"`
		} `json:"loadBalancer"`
	} `json:"status"`
}

// ServicePort is a port as a Service declares it.
type ServicePort struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	Port     int64  `json:"port"`
	NodePort int64  `json:"nodePort"`
}

// AffinityConfig is spec.sessionAffinityConfig.
type AffinityConfig struct {
	ClientIP struct {
		TimeoutSeconds *int64 `json:"timeoutSeconds"`
	} `json:"clientIP"`
}

// DefaultAffinitySeconds is how long Kubernetes keeps a client's backend unless a Service says otherwise.
const DefaultAffinitySeconds = 10800

// Watch returns the source watch of Services: what Service holds, and the given annotations.
func Watch(annotations ...string) drivers.Watch {
	fields := []string{
		"metadata.labels['" + proxyLabel + "']",
		"spec.type", "spec.clusterIP", "spec.clusterIPs", "spec.selector", "spec.ports", "spec.sessionAffinity",
		"spec.sessionAffinityConfig", "spec.externalIPs", "spec.loadBalancerIP", "spec.loadBalancerClass",
		"spec.loadBalancerSourceRanges", "spec.externalTrafficPolicy", "spec.internalTrafficPolicy",
		"spec.healthCheckNodePort",
	}
	for _, key := range annotations {
		fields = append(fields, "metadata.annotations['"+key+"']")
	}
	return drivers.Watch{
		Name: servicesWatch, GVR: schema.GroupVersionResource{Version: "v1", Resource: "services"}, Kind: "Service",
		Fields: fields, Source: true,
	}
}

// WrittenWatch returns the watch of the annotations that are written on Services. They are asked for only where a
// Service has a value that cannot be read: no other Service is to be reconciled when Raven writes one.
func WrittenWatch(annotations ...string) drivers.Watch {
	var fields []string
	for _, key := range annotations {
		fields = append(fields, "metadata.annotations['"+key+"']")
	}
	return drivers.Watch{
		Name: writtenWatch, GVR: schema.GroupVersionResource{Version: "v1", Resource: "services"}, Kind: "Service",
		Fields: fields,
	}
}

// written returns the annotations that were written on a Service, and whether they are known yet.
func written(needs *drivers.Needs, s *Service) (map[string]string, bool) {
	found, known := needs.Get(drivers.Need{Watch: writtenWatch, Namespace: s.Metadata.Namespace, Name: s.Metadata.Name})
	for _, object := range found {
		meta, err := object.Meta()
		if err == nil {
			return meta.Annotations, known
		}
	}
	return nil, known
}

// Decode reads a Service.
func Decode(object drivers.Object) (*Service, error) {
	var s Service
	if err := object.Into(&s); err != nil {
		return nil, err
	}
	if s.Metadata.Name == "" || s.Metadata.Namespace == "" {
		return nil, fmt.Errorf("object of watch %q has no metadata.name or no metadata.namespace", object.Watch)
	}
	for i := range s.Spec.Ports {
		if s.Spec.Ports[i].Protocol == "" {
			s.Spec.Ports[i].Protocol = "TCP"
		}
	}
	return &s, nil
}

// Name is the Service's name with its namespace, as people write it.
func (s *Service) Name() string { return s.Metadata.Namespace + "/" + s.Metadata.Name }

// Proxied says whether the Service has a virtual address that this cluster's proxy serves: not a headless one, not an
// ExternalName, and none that is handed to another proxy by label.
func (s *Service) Proxied() bool {
	_, another := s.Metadata.Labels[proxyLabel]
	return !another && s.Spec.Type != TypeExternalName && s.Spec.ClusterIP != "None" && s.Spec.ClusterIP != ""
}

// ClusterIPs returns the virtual addresses, the primary one first, one of each IP version at most. One that is no
// address is an error.
func (s *Service) ClusterIPs() ([]netip.Addr, error) {
	texts := s.Spec.ClusterIPs
	if len(texts) == 0 {
		texts = []string{s.Spec.ClusterIP} // a cluster of before dual stack
	}
	addrs := make([]netip.Addr, 0, len(texts))
	for _, text := range texts {
		addr, err := netip.ParseAddr(text)
		if err != nil || addr.Zone() != "" {
			return nil, fmt.Errorf("spec.clusterIPs: %q is no IP address", text)
		}
		addr = addr.Unmap()
		if slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Is4() == addr.Is4() }) {
			return nil, fmt.Errorf("spec.clusterIPs: %s is a second address of its IP version", addr)
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// Affinity says whether a client's connections go to one backend, and for how many seconds after the last one.
func (s *Service) Affinity() (clientIP bool, seconds int64) {
	if s.Spec.SessionAffinity != "ClientIP" {
		return false, 0
	}
	if given := s.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds; given != nil && *given > 0 {
		return true, *given
	}
	return true, DefaultAffinitySeconds
}
