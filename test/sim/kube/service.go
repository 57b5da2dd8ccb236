// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// serviceRanges are the ranges that cluster IPs come from, the default one first. What can not be read is left out.
func (a *API) serviceRanges() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range strings.Split(a.options.ServiceCIDR, ",") {
		if p, err := netip.ParsePrefix(strings.TrimSpace(s)); err == nil {
			out = append(out, p)
		}
	}
	return out
}

func familyOf(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// defaultService fills in what the server adds to a Service: addresses, families, node ports and the ports' protocols.
func (a *API) defaultService(object map[string]any) {
	spec := section(object, "spec")
	setDefault(spec, "type", "ClusterIP")
	setDefault(spec, "sessionAffinity", "None")
	switch spec["sessionAffinity"] {
	case "ClientIP":
		setDefault(spec, "sessionAffinityConfig", map[string]any{"clientIP": map[string]any{"timeoutSeconds": int64(10800)}})
	case "None":
		delete(spec, "sessionAffinityConfig")
	}
	a.defaultExposure(spec)
	defaultIngress(spec, section(object, "status"))
	ports, _ := spec["ports"].([]any)
	ports = slices.Clone(ports)
	for i := range ports {
		old, ok := ports[i].(map[string]any)
		if !ok {
			continue
		}
		port := section(map[string]any{"port": old}, "port")
		setDefault(port, "protocol", "TCP")
		setDefault(port, "targetPort", port["port"])
		given, _ := port["nodePort"].(int64)
		switch {
		case spec["type"] == "ClusterIP":
			delete(port, "nodePort")
		case given == 0 && (spec["type"] == "NodePort" || spec["allocateLoadBalancerNodePorts"] == true):
			port["nodePort"] = a.nextNodePort()
		}
		ports[i] = port
	}
	if len(ports) > 0 {
		spec["ports"] = ports
	}
	if spec["type"] == "ExternalName" {
		for _, key := range []string{"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"} {
			delete(spec, key)
		}
		return
	}
	setDefault(spec, "internalTrafficPolicy", "Cluster")
	a.serviceAddresses(spec)
}

// defaultExposure fills in what only Services have that are reached from outside, and takes it from others.
func (a *API) defaultExposure(spec map[string]any) {
	balancer := spec["type"] == "LoadBalancer"
	if balancer || spec["type"] == "NodePort" || spec["type"] == "ClusterIP" && hasItems(spec["externalIPs"]) {
		setDefault(spec, "externalTrafficPolicy", "Cluster")
	} else {
		delete(spec, "externalTrafficPolicy")
	}
	if balancer {
		setDefault(spec, "allocateLoadBalancerNodePorts", true)
	} else {
		delete(spec, "allocateLoadBalancerNodePorts")
		delete(spec, "loadBalancerClass")
	}
	check, _ := spec["healthCheckNodePort"].(int64)
	switch local := balancer && spec["externalTrafficPolicy"] == "Local"; {
	case !local:
		delete(spec, "healthCheckNodePort")
	case check == 0:
		spec["healthCheckNodePort"] = a.nextNodePort()
	}
}

// defaultIngress says of each address in a load balancer's status that it is one that packets may come in by.
func defaultIngress(spec, status map[string]any) {
	setDefault(status, "loadBalancer", map[string]any{})
	ingress, _ := section(status, "loadBalancer")["ingress"].([]any)
	if len(ingress) == 0 || spec["type"] != "LoadBalancer" {
		return
	}
	out := make([]any, 0, len(ingress))
	for _, x := range ingress {
		one, _ := x.(map[string]any)
		one = maps.Clone(one)
		if text(one, "ip") != "" {
			setDefault(one, "ipMode", "VIP")
		}
		out = append(out, one)
	}
	section(status, "loadBalancer")["ingress"] = out
}

// serviceStatus keeps addresses in the status to load balancers: others may not be given any, and a Service that is
// none any more loses its own.
func serviceStatus(res *resource, object map[string]any, o writeOptions) error {
	if res.kind.Resource() != services() || text(object, "spec", "type") == "LoadBalancer" {
		return nil
	}
	if status, _ := object["status"].(map[string]any); o.subresource == "status" {
		if balancer, _ := status["loadBalancer"].(map[string]any); hasItems(balancer["ingress"]) {
			return invalid(res, text(object, "metadata", "name"), "status.loadBalancer.ingress",
				"Forbidden: may only be used when `spec.type` is 'LoadBalancer'")
		}
		return nil
	}
	section(object, "status")["loadBalancer"] = map[string]any{}
	return nil
}

// serviceAddresses gives a Service an address of each family that it is to have.
func (a *API) serviceAddresses(spec map[string]any) {
	given := textList(spec["clusterIPs"])
	if ip := text(spec, "clusterIP"); ip != "" && len(given) == 0 {
		given = []string{ip}
	}
	headless := len(given) > 0 && given[0] == "None"
	families := textList(spec["ipFamilies"])
	if len(families) == 0 {
		for _, ip := range given {
			if addr, err := netip.ParseAddr(ip); err == nil {
				families = append(families, familyOf(addr))
			}
		}
	}
	ranges := a.serviceRanges()
	if len(families) == 0 && len(ranges) > 0 {
		families = []string{familyOf(ranges[0].Addr())}
	}
	setDefault(spec, "ipFamilyPolicy", "SingleStack")
	if policy := spec["ipFamilyPolicy"]; policy == "PreferDualStack" || policy == "RequireDualStack" {
		for _, r := range ranges {
			if f := familyOf(r.Addr()); !slices.Contains(families, f) {
				families = append(families, f)
			}
		}
	} else if len(families) > 1 && len(given) > 1 && spec["ipFamilyPolicy"] == "SingleStack" {
		families, given = families[:1], given[:1]
	}
	if headless {
		given = []string{"None"}
	}
	for i := len(given); i < len(families) && !headless; i++ {
		given = append(given, a.nextClusterIP(families[i]))
	}
	if len(given) == 0 {
		return
	}
	spec["clusterIP"], spec["clusterIPs"], spec["ipFamilies"] = given[0], anyList(given), anyList(families)
}

func anyList(in []string) []any {
	out := make([]any, 0, len(in))
	for _, s := range in {
		out = append(out, s)
	}
	return out
}

// clusterIPs are the addresses that Services have, each with its Service's key.
func (a *API) clusterIPs() map[string]string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	taken := map[string]string{}
	for key, it := range a.resources[services()].objects {
		spec, _ := it.object["spec"].(map[string]any)
		for _, ip := range textList(spec["clusterIPs"]) {
			taken[ip] = key
		}
		taken[text(spec, "clusterIP")] = key
	}
	return taken
}

// nextClusterIP counts through the range of a family and skips what is taken; "" if there is none.
func (a *API) nextClusterIP(family string) string {
	taken := a.clusterIPs()
	ranges := a.serviceRanges()
	i := slices.IndexFunc(ranges, func(p netip.Prefix) bool { return familyOf(p.Addr()) == family })
	if i < 0 {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.lastIP[family]
	if !last.IsValid() {
		last = ranges[i].Masked().Addr().Next()
	}
	for range 1 << 16 {
		last = last.Next()
		if !ranges[i].Contains(last) {
			last = ranges[i].Masked().Addr().Next()
		}
		if taken[last.String()] == "" {
			a.lastIP[family] = last
			return last.String()
		}
	}
	return ""
}

const firstNodePort, lastNodePort = 30000, 32767

// nextNodePort counts through the node ports and skips what is taken.
func (a *API) nextNodePort() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := map[int64]bool{}
	for _, it := range a.resources[services()].objects {
		spec, _ := it.object["spec"].(map[string]any)
		ports, _ := spec["ports"].([]any)
		for _, p := range ports {
			m, _ := p.(map[string]any)
			n, _ := m["nodePort"].(int64)
			taken[n] = true
		}
		check, _ := spec["healthCheckNodePort"].(int64)
		taken[check] = true
	}
	for range lastNodePort - firstNodePort + 1 {
		a.lastNodePort++
		if a.lastNodePort < firstNodePort || a.lastNodePort > lastNodePort {
			a.lastNodePort = firstNodePort
		}
		if !taken[a.lastNodePort] {
			break
		}
	}
	return a.lastNodePort
}

// serviceConflict refuses an address that another Service has, one that is in no range, and a change of one. old may
// be nil.
func (a *API) serviceConflict(res *resource, old, object map[string]any) error {
	if res.kind.Resource() != services() {
		return nil
	}
	was, now := text(old, "spec", "clusterIP"), text(object, "spec", "clusterIP")
	if was != "" && now != "" && was != now {
		return invalid(res, text(object, "metadata", "name"), "spec.clusterIPs[0]",
			fmt.Sprintf("Invalid value: [%q]: may not change once set", now))
	}
	own := objectKey(text(object, "metadata", "namespace"), text(object, "metadata", "name"))
	spec, _ := object["spec"].(map[string]any)
	taken := a.clusterIPs()
	for i, ip := range textList(spec["clusterIPs"]) {
		at := fmt.Sprintf("spec.clusterIPs[%d]", i)
		addr, err := netip.ParseAddr(ip)
		if err != nil {
			continue // None
		}
		if other, there := taken[ip]; there && other != own {
			return invalid(res, text(object, "metadata", "name"), at,
				fmt.Sprintf("Invalid value: [%q]: failed to allocate IP %s: provided IP is already allocated", ip, ip))
		}
		if !slices.ContainsFunc(a.serviceRanges(), func(p netip.Prefix) bool { return p.Contains(addr) }) {
			return invalid(res, text(object, "metadata", "name"), at,
				fmt.Sprintf("Invalid value: [%q]: failed to allocate IP %s: the provided network does not match the current "+
					"range", ip, ip))
		}
	}
	return nil
}
