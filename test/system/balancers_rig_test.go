// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

func services() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "services"}
}

func endpointSlices() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
}

// brief is how long a provider works in these tests: long enough to be met at work.
func brief() simcloud.Work {
	const ms = time.Millisecond
	return simcloud.Work{
		Create: 120 * ms, Delete: 80 * ms, Update: 20 * ms, Listener: 20 * ms, Pool: 20 * ms, Member: 5 * ms,
		Monitor: 20 * ms,
	}
}

// newBalancerRig makes a rig whose cluster runs pods and keeps their endpoints, whose cloud has load balancers of one
// provider, and whose raven has the driver lbaas.
func newBalancerRig(t *testing.T, provider simcloud.Provider) *rig {
	t.Helper()
	return newBalancerRigWith(t, provider, "")
}

// newBalancerRigWith is newBalancerRig with ranges of clusterIPs, the usual one if empty.
func newBalancerRigWith(t *testing.T, provider simcloud.Provider, ranges string) *rig {
	t.Helper()
	return newBalancerRigIn(t, simcloud.Options{Providers: []simcloud.Provider{provider}}, ranges)
}

// newBalancerRigIn is newBalancerRigWith in a cloud with these options, whose first provider is Raven's.
func newBalancerRigIn(t *testing.T, o simcloud.Options, ranges string) *rig {
	t.Helper()
	cloud, provider := newCloud(t, o), o.Providers[0]
	r := newRigWith(t, simkube.Options{
		Kubelet: &simkube.Kubelet{NeedPort: true}, Endpoints: &simkube.EndpointController{}, ServiceCIDR: ranges,
	}, cloud)
	if _, err := r.kube.Follow(services(), r.note); err != nil {
		t.Fatal(err)
	}
	r.install("raven-driver-lbaas", "bin/raven-driver-lbaas")
	r.conf.Set("raven", "drivers", "namespace,pod,lbaas")
	r.conf.Set("neutron_defaults", "external_svc_net", "public")
	r.conf.Set("octavia_defaults", "provider", provider.Name)
	return r
}

// createService makes a Service that selects the pods labelled with its name.
func (r *rig) createService(namespace, name string, spec object) {
	r.t.Helper()
	all := object{"selector": object{"app": name}, "ports": []any{object{"name": "http", "port": 80, "targetPort": 8080}}}
	maps.Copy(all, spec)
	_, err := r.kube.Create(services(), object{
		"apiVersion": "v1", "kind": "Service", "metadata": object{"namespace": namespace, "name": name}, "spec": all,
	})
	r.check(err)
}

func (r *rig) patchService(namespace, name, patch string) {
	r.t.Helper()
	_, err := r.kube.Patch(services(), namespace, name, types.MergePatchType, []byte(patch))
	r.check(err)
}

// operators is the description of what an administrator made.
const operators = "by hand"

// floatingIP has an administrator make a floating IP with an address: Raven's credentials may not choose one.
func (r *rig) floatingIP(address string) {
	r.t.Helper()
	public := ""
	for _, n := range r.cloud.Networks() {
		if n["name"] == "public" {
			public = fmt.Sprint(n["id"])
		}
	}
	code, doc := r.cloud.Call(simcloud.UserAdmin, simcloud.ProjectKuryr, http.MethodPost, "/floatingips",
		object{"floatingip": object{
			"floating_network_id": public, "floating_ip_address": address, "description": operators,
		}})
	if code != http.StatusCreated {
		r.t.Fatalf("creating a floating IP: %d %v", code, doc)
	}
}

// balancerDump is the state of the cloud without what an administrator made: Raven leaves it there, and writes on it
// that it was used.
func (r *rig) balancerDump() string {
	var out strings.Builder
	for line := range strings.Lines(r.dump()) {
		if !strings.Contains(line, operators) {
			out.WriteString(line)
		}
	}
	return out.String()
}

func (r *rig) deleteService(namespace, name string) {
	r.t.Helper()
	r.check(r.kube.Delete(services(), namespace, name))
}

// scale makes pods app-0 to app-(n-1) exist, and no others of the app.
func (r *rig) scale(namespace, app string, n int) {
	r.t.Helper()
	list, err := r.kube.List(pods(), namespace)
	r.check(err)
	have := map[string]bool{}
	for _, pod := range list {
		if at(pod, "metadata", "labels", "app") == app {
			have[fmt.Sprint(at(pod, "metadata", "name"))] = true
		}
	}
	for i := range n {
		name := fmt.Sprintf("%s-%d", app, i)
		if have[name] {
			delete(have, name)
			continue
		}
		_, err := r.kube.Create(pods(), object{
			"apiVersion": "v1", "kind": "Pod",
			"metadata": object{"namespace": namespace, "name": name, "labels": object{"app": app}},
			"spec":     object{"containers": []any{object{"name": "c", "image": "i"}}},
		})
		r.check(err)
	}
	for name := range have {
		r.deletePod(namespace, name)
	}
}

// at returns what a path of an object leads to, nil if nothing.
func at(o any, path ...string) any {
	for _, key := range path {
		m, _ := o.(object)
		o = m[key]
	}
	return o
}

func sameTexts(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

func texts(v any) []string {
	list, _ := v.([]any)
	out := make([]string, len(list))
	for i, x := range list {
		out[i] = fmt.Sprint(x)
	}
	return out
}

// balancersAmiss says where Services and load balancers do not agree: every clusterIP has one load balancer, and
// every further floating IP another one, ACTIVE, with a listener for every port and the ready endpoints as members;
// every Service of type LoadBalancer has the floating IP that its status names; and there is nothing else.
func (r *rig) balancersAmiss() string {
	var amiss []string
	wrong := func(format string, args ...any) { amiss = append(amiss, fmt.Sprintf(format, args...)) }
	byName := map[string][]object{}
	for _, lb := range r.cloud.LoadBalancers() {
		name, _, _ := strings.Cut(fmt.Sprint(lb["name"]), ":")
		byName[name] = append(byName[name], lb)
	}
	fips := map[string][]object{}
	for _, fip := range r.cloud.FloatingIPs() {
		if fip["port_id"] == nil && strings.Contains(fmt.Sprint(fip["description"]), operators) {
			continue
		}
		fips[fmt.Sprint(fip["port_id"])] = append(fips[fmt.Sprint(fip["port_id"])], fip)
	}
	list, err := r.kube.List(services(), "")
	r.check(err)
	for _, svc := range list {
		name := fmt.Sprintf("%v/%v", at(svc, "metadata", "namespace"), at(svc, "metadata", "name"))
		vip := fmt.Sprint(at(svc, "spec", "clusterIP"))
		if at(svc, "spec", "type") == "ExternalName" || vip == "None" {
			continue
		}
		lbs := byName[name]
		delete(byName, name)
		var leading []object
		serving := 0
		for _, lb := range lbs {
			if lb["vip_address"] == vip {
				serving++
			}
			if status := lb["provisioning_status"]; status != "ACTIVE" {
				wrong("load balancer %v is %v", lb["name"], status)
			}
			if want, have := r.wantedParts(svc), r.parts(lb["id"]); want != have {
				wrong("load balancer %v should have %s and has %s", lb["name"], want, have)
			}
			port := fmt.Sprint(lb["vip_port_id"])
			leading = append(leading, fips[port]...)
			delete(fips, port)
		}
		if serving != 1 || len(lbs) != max(1, len(leading)) {
			wrong("Service %s has %d load balancers for %d floating IPs, %d at %s", name, len(lbs), len(leading), serving, vip)
		}
		if text := addressAmiss(svc, leading); text != "" {
			wrong("Service %s: %s", name, text)
		}
	}
	for name, lbs := range byName {
		wrong("%d load balancers of %s belong to no object", len(lbs), name)
	}
	for port, list := range fips {
		wrong("%d floating IPs at port %s belong to no object", len(list), port)
	}
	if n := r.orphans(); n != "" {
		wrong("%s", n)
	}
	slices.Sort(amiss)
	return strings.Join(amiss, "; ")
}

// addressAmiss compares a Service's status with the floating IPs that lead to it.
func addressAmiss(svc object, fips []object) string {
	var shown, there []string
	for _, fip := range fips {
		there = append(there, fmt.Sprint(fip["floating_ip_address"]))
	}
	ingress, _ := at(svc, "status", "loadBalancer", "ingress").([]any)
	for _, one := range ingress {
		shown = append(shown, fmt.Sprint(at(one, "ip")))
	}
	wanted := 0
	if at(svc, "spec", "type") == "LoadBalancer" {
		wanted = 1
	}
	external := texts(at(svc, "spec", "externalIPs"))
	if len(shown) != wanted || len(there) != wanted+len(external) {
		return fmt.Sprintf("floating IPs %v, the status names %v, externalIPs are %v", there, shown, external)
	}
	for _, address := range append(shown, external...) {
		if !slices.Contains(there, address) {
			return fmt.Sprintf("%s is no floating IP of it: %v", address, there)
		}
	}
	return ""
}

// wantedParts says what a Service's load balancer should have, in the form of parts.
func (r *rig) wantedParts(svc object) string {
	namespace := fmt.Sprint(at(svc, "metadata", "namespace"))
	list, err := r.kube.List(endpointSlices(), namespace)
	r.check(err)
	ports, _ := at(svc, "spec", "ports").([]any)
	var out []string
	for _, p := range ports {
		protocol := cmp.Or(fmt.Sprint(at(p, "protocol")), "TCP")
		var members []string
		for _, slice := range list {
			if at(slice, "metadata", "labels", "kubernetes.io/service-name") == at(svc, "metadata", "name") {
				members = append(members, ready(slice, at(p, "name"), protocol)...)
			}
		}
		slices.Sort(members)
		out = append(out, fmt.Sprintf("%s %v → %v", protocol, at(p, "port"), members))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// ready lists the ready endpoints of a slice for a port.
func ready(slice object, name any, protocol string) []string {
	ports, _ := at(slice, "ports").([]any)
	endpoints, _ := at(slice, "endpoints").([]any)
	var members []string
	for _, p := range ports {
		if fmt.Sprint(cmp.Or(at(p, "name"), any(""))) != fmt.Sprint(cmp.Or(name, any(""))) ||
			at(p, "protocol") != any(protocol) {
			continue
		}
		for _, e := range endpoints {
			if at(e, "conditions", "ready") != false {
				members = append(members, fmt.Sprintf("%s:%v", texts(at(e, "addresses"))[0], at(p, "port")))
			}
		}
	}
	return members
}

// parts says what a load balancer has: protocol, port and members of each listener that is ACTIVE, in short.
func (r *rig) parts(id any) string {
	members := map[any][]string{}
	for _, m := range r.cloud.Objects("member") {
		if m["provisioning_status"] == "ACTIVE" {
			members[m["pool_id"]] = append(members[m["pool_id"]], fmt.Sprintf("%v:%v", m["address"], m["protocol_port"]))
		}
	}
	var out []string
	for _, l := range r.cloud.Objects("listener") {
		if l["loadbalancer_id"] == id && l["provisioning_status"] == "ACTIVE" {
			of := members[l["default_pool_id"]]
			slices.Sort(of)
			out = append(out, fmt.Sprintf("%v %v → %v", l["protocol"], l["protocol_port"], of))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// orphans says which parts of load balancers are there without one, or without use.
func (r *rig) orphans() string {
	listeners, pools := len(r.cloud.Objects("listener")), len(r.cloud.Objects("pool"))
	if listeners != pools {
		return fmt.Sprintf("%d listeners and %d pools", listeners, pools)
	}
	vips := 0
	for _, port := range r.cloud.Ports() {
		name := fmt.Sprint(port["name"])
		if strings.HasPrefix(name, "ovn-lb-vip-") ||
			strings.HasPrefix(name, "octavia-lb-") && !strings.Contains(name, "vrrp") {
			vips++
		}
	}
	if lbs := len(r.cloud.LoadBalancers()); vips != lbs {
		return fmt.Sprintf("%d VIP ports and %d load balancers", vips, lbs)
	}
	return ""
}

// awaitServices waits until Services and load balancers agree, and nothing is written any more.
func (r *rig) awaitServices(p *raven) {
	r.t.Helper()
	must(r.t, "load balancers", func() string { return r.servicesAmiss(p) })
}

func (r *rig) servicesAmiss(p *raven) string {
	before := r.cloud.Stats().Writes
	for range 2 {
		if amiss := r.balancersAmiss(); amiss != "" {
			return amiss + "; " + p.settled()
		}
		if amiss := r.amiss(p); amiss != "" {
			return amiss
		}
	}
	if r.cloud.Stats().Writes != before {
		return "it is still writing"
	}
	return ""
}

// events lists what is said about objects: reason and message.
func (r *rig) events() []string {
	list, err := r.kube.List(schema.GroupVersionResource{Version: "v1", Resource: "events"}, "")
	r.check(err)
	var out []string
	for _, e := range list {
		out = append(out, fmt.Sprintf("%v %v: %v", at(e, "involvedObject", "name"), e["reason"], e["message"]))
	}
	return out
}
