// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"net/netip"
	"reflect"
	"time"
)

const (
	managedByEndpoints = "endpoints.kubernetes.io/managed-by"
	endpointController = "endpoint-controller"
	retryDelay         = 20 * time.Millisecond // until a write that met a conflict is tried again
)

// podAddress returns a pod's address of a family, "" if it has none yet.
func podAddress(pod map[string]any, family string) string {
	status, _ := pod["status"].(map[string]any)
	ips, _ := status["podIPs"].([]any)
	for _, ip := range ips {
		m, _ := ip.(map[string]any)
		if a, err := netip.ParseAddr(text(m, "ip")); err == nil && a.Is4() == (family == "IPv4") {
			return a.String()
		}
	}
	return ""
}

func protocolOf(port map[string]any) string { return cmp.Or(text(port, "protocol"), "TCP") }

// podPorts are a Service's ports as numbers of one pod: named ones are looked up in its containers.
func podPorts(svc, pod map[string]any) []any {
	spec, _ := svc["spec"].(map[string]any)
	ports, _ := spec["ports"].([]any)
	out := make([]any, 0, len(ports))
	for _, p := range ports {
		m, _ := p.(map[string]any)
		number := m["targetPort"]
		if number == nil {
			number = m["port"]
		}
		if name, named := number.(string); named {
			if number = containerPort(pod, name, protocolOf(m)); number == nil {
				continue
			}
		}
		name, _ := m["name"].(string)
		entry := map[string]any{"name": name, "port": number, "protocol": protocolOf(m)}
		if app, ok := m["appProtocol"]; ok {
			entry["appProtocol"] = app
		}
		out = append(out, entry)
	}
	return out
}

func containerPort(pod map[string]any, name, protocol string) any {
	spec, _ := pod["spec"].(map[string]any)
	containers, _ := spec["containers"].([]any)
	for _, c := range containers {
		m, _ := c.(map[string]any)
		ports, _ := m["ports"].([]any)
		for _, p := range ports {
			port, _ := p.(map[string]any)
			if port["name"] == name && protocolOf(port) == protocol {
				return port["containerPort"]
			}
		}
	}
	return nil
}

// endpoints keeps a Service's Endpoints: those of its first family.
func (l *endpointLoop) endpoints(svc *item, groups []*endpointGroup) bool {
	subsets := []any{}
	for _, g := range groups {
		if g.family != families(svc.object)[0] {
			continue
		}
		var ready, other []any
		for _, e := range g.endpoints {
			m, _ := e.(map[string]any)
			conditions, _ := m["conditions"].(map[string]any)
			addresses, _ := m["addresses"].([]any)
			address := map[string]any{"ip": addresses[0], "targetRef": m["targetRef"]}
			if m["nodeName"] != nil {
				address["nodeName"] = m["nodeName"]
			}
			switch {
			case conditions["ready"] == true:
				ready = append(ready, address)
			case conditions["terminating"] != true:
				other = append(other, address)
			}
		}
		subset := map[string]any{"ports": g.ports}
		if ready != nil {
			subset["addresses"] = ready
		}
		if other != nil {
			subset["notReadyAddresses"] = other
		}
		if ready != nil || other != nil {
			subsets = append(subsets, subset)
		}
	}
	gvr := endpointsGVR()
	old, err := l.a.Get(gvr, svc.namespace, svc.name)
	if err == nil && reflect.DeepEqual(old["subsets"], any(subsets)) {
		return true
	}
	object := map[string]any{
		"metadata": map[string]any{
			"name": svc.name, "namespace": svc.namespace, "labels": map[string]any{managedByEndpoints: endpointController},
		},
		"subsets": subsets,
	}
	if err == nil {
		_, err = l.a.Update(gvr, object)
	} else {
		_, err = l.a.Create(gvr, object)
	}
	return err == nil
}
