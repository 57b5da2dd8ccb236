// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

func (e *env) services() dynamic.ResourceInterface {
	return e.client.Resource(gvr("services")).Namespace(e.namespace)
}

// service is a Service of one port.
func service(name string, spec map[string]any) *unstructured.Unstructured {
	s := object("v1", "Service", name)
	merged := map[string]any{
		"selector": map[string]any{"app": name}, "ports": []any{map[string]any{"name": "web", "port": int64(80)}},
	}
	for key, value := range spec {
		merged[key] = value
	}
	s.Object["spec"] = merged
	return s
}

// balanced is a Service of type LoadBalancer that no cloud makes one for.
func balanced(name string, spec map[string]any) *unstructured.Unstructured {
	merged := map[string]any{"type": "LoadBalancer", "loadBalancerClass": "raven.test/none"}
	for key, value := range spec {
		merged[key] = value
	}
	return service(name, merged)
}

// at returns what is in an object under a path, nil where there is nothing.
func at(u *unstructured.Unstructured, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
	return value
}

func addressesOf(u *unstructured.Unstructured) []string {
	list, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "clusterIPs")
	return list
}

// same checks a part of an object.
func same(t *testing.T, what string, u *unstructured.Unstructured, want any, path ...string) {
	t.Helper()
	if diff := cmp.Diff(want, at(u, path...)); diff != "" {
		t.Errorf("%s: %s: %s\nspec %v\nstatus %v", what, strings.Join(path, "."), diff, u.Object["spec"], u.Object["status"])
	}
}

// allocated checks that a Service has an address of each of its families, the first of which is its clusterIP.
func allocated(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	families, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "ipFamilies")
	ips := addressesOf(u)
	if len(ips) == 0 || len(ips) != len(families) || at(u, "spec", "clusterIP") != ips[0] {
		t.Fatalf("clusterIP %v, clusterIPs %v, ipFamilies %v", at(u, "spec", "clusterIP"), ips, families)
	}
	for i, ip := range ips {
		if addr, err := netip.ParseAddr(ip); err != nil || addr.Is4() != (families[i] == "IPv4") {
			t.Errorf("address %d is %q, of family %s (%v)", i, ip, families[i], err)
		}
	}
}

func testServices(t *testing.T, e *env) {
	one := create(t, e.services(), service("one", nil))
	allocated(t, one)
	for field, want := range map[string]any{
		"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster", "ipFamilyPolicy": "SingleStack",
		"externalTrafficPolicy": nil, "healthCheckNodePort": nil, "sessionAffinityConfig": nil,
		"ports": []any{map[string]any{"name": "web", "port": int64(80), "protocol": "TCP", "targetPort": int64(80)}},
	} {
		same(t, "a new Service", one, want, "spec", field)
	}
	same(t, "a new Service", one, map[string]any{}, "status", "loadBalancer")
	ip := addressesOf(one)[0]
	for name, address := range map[string]string{
		"an address that another has": ip, "an address of no range": "192.0.2.10",
	} {
		if u, err := e.services().Create(t.Context(), service("two", map[string]any{"clusterIP": address}),
			metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v, %v", name, err, u)
		}
	}
	two := create(t, e.services(), service("two", nil))
	allocated(t, two)
	if addressesOf(two)[0] == ip {
		t.Errorf("two Services have the address %s", ip)
	}
	if _, err := e.services().Patch(t.Context(), "two", types.MergePatchType,
		[]byte(`{"spec":{"clusterIP":"192.0.2.10"}}`), metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a change of the address: %v", err)
	}
	if err := e.services().Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	again := create(t, e.services(), service("again", map[string]any{"clusterIP": ip}))
	allocated(t, again)
	same(t, "an address that is asked for", again, ip, "spec", "clusterIP")

	bare := again.DeepCopy()
	for _, field := range []string{"clusterIP", "clusterIPs", "ipFamilies"} {
		unstructured.RemoveNestedField(bare.Object, "spec", field)
	}
	bare.SetResourceVersion("")
	kept, err := e.services().Update(t.Context(), bare, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("an update without the address: %v", err)
	}
	same(t, "an update without the address", kept, ip, "spec", "clusterIP")

	headless := create(t, e.services(), service("headless", map[string]any{"clusterIP": "None"}))
	same(t, "a headless Service", headless, "None", "spec", "clusterIP")
	same(t, "a headless Service", headless, []any{"None"}, "spec", "clusterIPs")
	external := create(t, e.services(),
		service("external", map[string]any{"type": "ExternalName", "externalName": "example.org", "selector": nil}))
	for _, field := range []string{"clusterIP", "clusterIPs", "ipFamilies", "internalTrafficPolicy"} {
		same(t, "an ExternalName", external, nil, "spec", field)
	}
	allocated(t,
		patch(t, e.services(), "external", types.MergePatchType,
			map[string]any{"spec": map[string]any{"type": "ClusterIP", "externalName": nil}}))
	gone := patch(t, e.services(), "external", types.MergePatchType,
		map[string]any{"spec": map[string]any{"type": "ExternalName", "externalName": "example.org"}})
	same(t, "a Service that becomes an ExternalName", gone, nil, "spec", "clusterIP")
}

func testServiceFamilies(t *testing.T, e *env) {
	dual := create(t, e.services(), service("dual", map[string]any{"ipFamilyPolicy": "PreferDualStack"}))
	allocated(t, dual)
	if len(addressesOf(dual)) == 1 {
		t.Log("the cluster has addresses of one family only")
		return
	}
	ips := addressesOf(dual)
	down := patch(t, e.services(), "dual", types.MergePatchType,
		map[string]any{"spec": map[string]any{"ipFamilyPolicy": "SingleStack"}})
	allocated(t, down)
	if diff := cmp.Diff(ips[:1], addressesOf(down)); diff != "" {
		t.Errorf("as SingleStack: %s", diff)
	}
	up := patch(t, e.services(), "dual", types.MergePatchType,
		map[string]any{"spec": map[string]any{"ipFamilyPolicy": "RequireDualStack"}})
	allocated(t, up)
	if now := addressesOf(up); len(now) != 2 || now[0] != ips[0] {
		t.Errorf("as RequireDualStack the Service has %v, before it had %v", now, ips)
	}
	for _, family := range []string{"IPv6", "IPv4"} {
		u := create(t, e.services(), service("only-"+strings.ToLower(family), map[string]any{"ipFamilies": []any{family}}))
		allocated(t, u)
		same(t, "a Service of one family", u, []any{family}, "spec", "ipFamilies")
	}
}

func testServiceTypes(t *testing.T, e *env) {
	given := map[string]any{
		"loadBalancerIP": "203.0.113.7", "loadBalancerSourceRanges": []any{"10.0.0.0/8", "192.0.2.0/24"},
		"externalIPs":           []any{"203.0.113.9"},
		"externalTrafficPolicy": "Local", "sessionAffinity": "ClientIP", "publishNotReadyAddresses": true,
	}
	u := create(t, e.services(), balanced("web", given))
	allocated(t, u)
	for field, want := range given {
		same(t, "a load balancer", u, want, "spec", field)
	}
	same(t, "a load balancer", u, "raven.test/none", "spec", "loadBalancerClass")
	same(t, "session affinity", u, map[string]any{"clientIP": map[string]any{"timeoutSeconds": int64(10800)}}, "spec",
		"sessionAffinityConfig")
	if port, _ := at(u, "spec", "healthCheckNodePort").(int64); port == 0 {
		t.Errorf("with externalTrafficPolicy Local healthCheckNodePort is %v", at(u, "spec", "healthCheckNodePort"))
	}
	if port := nodePort(u); port == 0 {
		t.Errorf("a load balancer's ports are %v", at(u, "spec", "ports"))
	}
	ip := addressesOf(u)[0]
	change := func(spec map[string]any) *unstructured.Unstructured {
		t.Helper()
		return patch(t, e.services(), "web", types.MergePatchType, map[string]any{"spec": spec})
	}
	u = change(map[string]any{"externalTrafficPolicy": "Cluster", "sessionAffinity": "None"})
	same(t, "externalTrafficPolicy Cluster", u, nil, "spec", "healthCheckNodePort")
	same(t, "no session affinity", u, nil, "spec", "sessionAffinityConfig")
	u = change(map[string]any{"type": "ClusterIP", "loadBalancerSourceRanges": nil})
	same(t, "a ClusterIP with externalIPs", u, "Cluster", "spec", "externalTrafficPolicy")
	same(t, "no load balancer any more", u, nil, "spec", "loadBalancerClass")
	if port := nodePort(u); port != 0 {
		t.Errorf("a ClusterIP has the node port %d", port)
	}
	u = change(map[string]any{"externalIPs": nil})
	same(t, "a ClusterIP without externalIPs", u, nil, "spec", "externalTrafficPolicy")
	same(t, "after all changes", u, ip, "spec", "clusterIP")
	u = create(t, e.services(), balanced("portless", map[string]any{"allocateLoadBalancerNodePorts": false}))
	if port := nodePort(u); port != 0 {
		t.Errorf("a load balancer that is to have no node ports has %d", port)
	}
	u = create(t, e.services(), service("node", map[string]any{"type": "NodePort"}))
	same(t, "a NodePort", u, "Cluster", "spec", "externalTrafficPolicy")
	if nodePort(u) == 0 {
		t.Errorf("a NodePort's ports are %v", at(u, "spec", "ports"))
	}
}

// nodePort is that of the first port.
func nodePort(u *unstructured.Unstructured) int64 {
	ports, _, _ := unstructured.NestedSlice(u.Object, "spec", "ports")
	if len(ports) == 0 {
		return 0
	}
	first, _ := ports[0].(map[string]any)
	port, _ := first["nodePort"].(int64)
	return port
}

// applyIngress writes addresses in a Service's status as Raven does.
func applyIngress(
	t *testing.T, e *env, name string, uid types.UID, addresses ...string,
) (*unstructured.Unstructured, error) {
	t.Helper()
	balancer := map[string]any{}
	if len(addresses) > 0 {
		ingress := []any{}
		for _, address := range addresses {
			ingress = append(ingress, map[string]any{"ip": address})
		}
		balancer["ingress"] = ingress
	}
	u := object("v1", "Service", name)
	u.SetUID(uid)
	u.SetNamespace(e.namespace)
	u.Object["status"] = map[string]any{"loadBalancer": balancer}
	return e.services().ApplyStatus(t.Context(), name, u, metav1.ApplyOptions{FieldManager: "raven-test", Force: true})
}

func testServiceStatus(t *testing.T, e *env) {
	made := create(t, e.services(), balanced("web", nil))
	ingress := func(what string, u *unstructured.Unstructured, want ...string) {
		t.Helper()
		var list any
		if len(want) > 0 {
			entries := []any{}
			for _, address := range want {
				entries = append(entries, map[string]any{"ip": address, "ipMode": "VIP"})
			}
			list = entries
		}
		same(t, what, u, list, "status", "loadBalancer", "ingress")
	}
	must := func(addresses ...string) *unstructured.Unstructured {
		t.Helper()
		u, err := applyIngress(t, e, "web", made.GetUID(), addresses...)
		if err != nil {
			t.Fatalf("writing %v in the status: %v", addresses, err)
		}
		ingress("what was written", u, addresses...)
		return u
	}
	first := must("203.0.113.7", "2001:db8::7")
	if again := must("203.0.113.7", "2001:db8::7"); again.GetResourceVersion() != first.GetResourceVersion() {
		t.Errorf("the same written twice is version %s and %s", first.GetResourceVersion(), again.GetResourceVersion())
	}
	owned := ""
	for _, entry := range first.GetManagedFields() {
		if entry.Manager == "raven-test" && entry.Operation == metav1.ManagedFieldsOperationApply &&
			entry.Subresource == "status" {
			owned = entry.FieldsV1.GetRawString()
		}
	}
	if owned != `{"f:status":{"f:loadBalancer":{"f:ingress":{}}}}` {
		t.Errorf("the writer owns %q of %v", owned, first.GetManagedFields())
	}
	must("2001:db8::7") // others are removed, the order stays that of the request
	if u := patch(t, e.services(), "web", types.MergePatchType,
		map[string]any{
			"status": map[string]any{"loadBalancer": nil}, "spec": map[string]any{"loadBalancerIP": "203.0.113.8"},
		}); at(u, "spec", "loadBalancerIP") != "203.0.113.8" {
		t.Errorf("the Service is %v", u.Object)
	} else {
		ingress("a patch of the Service itself", u, "2001:db8::7")
	}
	u, err := e.services().Patch(t.Context(), "web", types.MergePatchType,
		[]byte(`{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}},"spec":{"loadBalancerIP":"192.0.2.2"}}`),
		metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatalf("another's patch of the status: %v", err)
	}
	ingress("another's patch of the status", u, "192.0.2.1")
	same(t, "another's patch of the status", u, "203.0.113.8", "spec", "loadBalancerIP")
	must("203.0.113.7")
	must()
	must("203.0.113.7")
}

// testServiceStatusRefused: of what Services the status names no addresses.
func testServiceStatusRefused(t *testing.T, e *env) {
	made := create(t, e.services(), balanced("web", nil))
	if _, err := applyIngress(t, e, "web", made.GetUID(), "203.0.113.7"); err != nil {
		t.Fatal(err)
	}
	if u, err := applyIngress(t, e, "web", "11111111-2222-4333-8444-555555555555",
		"203.0.113.9"); !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
		t.Errorf("written on another UID: %v, %v", err, u)
	}
	if u, err := applyIngress(t, e, "none", made.GetUID(), "203.0.113.9"); !apierrors.IsNotFound(err) &&
		!apierrors.IsConflict(err) {
		t.Errorf("written on nothing: %v, %v", err, u)
	}
	if _, err := e.services().Get(t.Context(), "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a write to the status has made a Service: %v", err)
	}
	u := patch(t, e.services(), "web", types.MergePatchType, map[string]any{"spec": map[string]any{"type": "ClusterIP"}})
	same(t, "a Service that is no load balancer any more", u, nil, "status", "loadBalancer", "ingress")
	if u, err := applyIngress(t, e, "web", made.GetUID(), "203.0.113.7"); !apierrors.IsInvalid(err) {
		t.Errorf("an address in the status of a ClusterIP: %v, %v", err, u)
	}
	if _, err := applyIngress(t, e, "web", made.GetUID()); err != nil {
		t.Errorf("no address in the status of a ClusterIP: %v", err)
	}
}

func testServiceWatch(t *testing.T, e *env) {
	create(t, e.services(), service("before", nil))
	list, err := e.services().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "before" {
		t.Fatalf("the Services are %v (%v)", list, err)
	}
	allocated(t, &list.Items[0])
	w := open(t, e.services(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	made := create(t, e.services(), balanced("web", nil))
	if diff := cmp.Diff(addressesOf(made), addressesOf(expect(t, w, watch.Added, "web"))); diff != "" {
		t.Errorf("a watch shows other addresses: %s", diff)
	}
	patch(t, e.services(), "web", types.JSONPatchType,
		[]any{map[string]any{"op": "replace", "path": "/spec/ports/0/port", "value": 81}})
	ports, _ := at(expect(t, w, watch.Modified, "web"), "spec", "ports").([]any)
	if port, _ := ports[0].(map[string]any); len(ports) != 1 || port["port"] != int64(81) || port["name"] != "web" {
		t.Errorf("after a change the ports are %v", ports)
	}
	if _, err := applyIngress(t, e, "web", made.GetUID(), "203.0.113.7"); err != nil {
		t.Fatal(err)
	}
	if written := expect(t, w, watch.Modified, "web"); at(written, "status", "loadBalancer", "ingress") == nil {
		t.Errorf("after a write to the status a watch shows %v", written.Object)
	}
	if err := e.services().Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, w, watch.Deleted, "web")
}

// eventually waits until nothing is amiss.
func eventually(t *testing.T, what string, amiss func() string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		is := amiss()
		if is == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come: %s", what, is)
		}
		<-time.After(50 * time.Millisecond) // the server has others to serve
	}
}

func encode(t *testing.T, value any) string {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
