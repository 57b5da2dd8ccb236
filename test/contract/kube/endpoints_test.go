// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

const serviceNameLabel = "kubernetes.io/service-name"

func (e *env) slices() dynamic.ResourceInterface {
	return e.client.Resource(schema.GroupVersionResource{
		Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices",
	}).Namespace(e.namespace)
}

// slice is an EndpointSlice that a user wrote by hand.
func slice(name, service string, addresses ...any) *unstructured.Unstructured {
	u := object("discovery.k8s.io/v1", "EndpointSlice", name)
	u.SetLabels(map[string]string{serviceNameLabel: service})
	u.Object["addressType"] = "IPv4"
	endpoints := []any{}
	for _, address := range addresses {
		endpoints = append(endpoints, map[string]any{"addresses": []any{address}})
	}
	u.Object["endpoints"] = endpoints
	u.Object["ports"] = []any{map[string]any{"port": int64(8080)}}
	return u
}

func testEndpointSlices(t *testing.T, e *env) {
	made := create(t, e.slices(), slice("web-1", "web", "192.0.2.1", "192.0.2.2"))
	same(t, "a slice", made, []any{map[string]any{"name": "", "protocol": "TCP", "port": int64(8080)}}, "ports")
	if got := endpointsIn(made); len(got) != 2 || !cmp.Equal(got[1]["addresses"], any([]any{"192.0.2.2"})) {
		t.Errorf("the endpoints of a new slice are %v", got)
	}
	for _, x := range endpointsIn(made) {
		if conditions, _ := x["conditions"].(map[string]any); len(conditions) != 0 {
			t.Errorf("an endpoint of which no condition was given is %v", x)
		}
	}
	create(t, e.slices(), slice("other-1", "other", "192.0.2.9"))
	of := metav1.ListOptions{LabelSelector: serviceNameLabel + "=web"}
	list, err := e.slices().List(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"web-1"}, names(list)); diff != "" {
		t.Errorf("by its Service's name: %s", diff)
	}
	of.ResourceVersion = list.GetResourceVersion()
	w := open(t, e.slices(), of)
	create(t, e.slices(), slice("other-2", "other", "192.0.2.8"))
	create(t, e.slices(), slice("web-2", "web"))
	if none := expect(t, w, watch.Added, "web-2"); len(endpointsIn(none)) != 0 {
		t.Errorf("a slice without endpoints is %v", none.Object)
	}
	conditions := map[string]any{"ready": false, "serving": true, "terminating": true}
	patch(t, e.slices(), "web-2", types.MergePatchType, map[string]any{"endpoints": []any{map[string]any{
		"addresses": []any{"192.0.2.3"}, "conditions": conditions, "nodeName": "node-1",
		"targetRef": map[string]any{"kind": "Pod", "name": "p", "namespace": e.namespace},
	}}})
	changed := endpointsIn(expect(t, w, watch.Modified, "web-2"))
	if len(changed) != 1 {
		t.Fatalf("the endpoints are %v", changed)
	}
	target, _ := changed[0]["targetRef"].(map[string]any)
	if diff := cmp.Diff(any(conditions), changed[0]["conditions"]); diff != "" || changed[0]["nodeName"] != "node-1" ||
		target["name"] != "p" {
		t.Errorf("the endpoint is %v: %s", changed[0], diff)
	}
	patch(t, e.slices(), "web-1", types.MergePatchType,
		map[string]any{"metadata": map[string]any{"labels": map[string]any{serviceNameLabel: "other"}}})
	expect(t, w, watch.Deleted, "web-1") // another Service's now
	if err := e.slices().Delete(t.Context(), "web-2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, w, watch.Deleted, "web-2")
}

func endpointsIn(u *unstructured.Unstructured) []map[string]any {
	list, _ := u.Object["endpoints"].([]any)
	var out []map[string]any
	for _, x := range list {
		m, _ := x.(map[string]any)
		out = append(out, m)
	}
	return out
}

// testEndpoints follows what the controllers make of a Service and its pods.
func testEndpoints(t *testing.T, e *env) {
	if !e.whole {
		t.Skip("RAVEN_CONTRACT_COMPACT is not set: it is not known whether the endpoint controllers run")
	}
	svc := create(t, e.services(), service("web", map[string]any{
		// A pod that runs nowhere is an endpoint only where it need not be ready.
		"publishNotReadyAddresses": true,
		"ports":                    []any{map[string]any{"name": "web", "port": int64(80), "targetPort": int64(8080)}},
	}))
	p := pod("p")
	p.SetLabels(map[string]string{"app": "web"})
	made := create(t, e.pods(), p)
	address := "192.0.2.1"
	if strings.Contains(addressesOf(svc)[0], ":") {
		address = "2001:db8::1"
	}
	ready := func(is string) {
		t.Helper()
		body := fmt.Sprintf(`{"status":{"phase":"Running","podIP":%q,"podIPs":[{"ip":%q}],"conditions":[{"type":"Ready","status":%q}]}}`, address, address, is)
		if _, err := e.pods().Patch(t.Context(), "p", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{},
			"status"); err != nil {
			t.Fatal(err)
		}
	}
	shown := func(want ...any) {
		t.Helper()
		eventually(t, "what the slices of the Service should show", func() string { return cmp.Diff(want, offered(t, e)) })
	}
	entry := func(serving bool) any {
		return []any{
			[]any{address},
			map[string]any{"ready": true, "serving": serving, "terminating": false},
			"Pod", e.namespace, "p", string(made.GetUID()),
			[]any{map[string]any{"name": "web", "port": int64(8080), "protocol": "TCP"}},
		}
	}
	ready("True")
	shown(entry(true))
	if e.simulated { // the real controller cannot write Endpoints of such a pod
		eventually(t, "the Service's Endpoints", func() string { return cmp.Diff([]any{address}, endpointIPs(t, e)) })
	} else if ips := endpointIPs(t, e); len(ips) > 0 {
		t.Errorf("its Endpoints have %v: that is no difference any more", ips)
	}
	ready("False")
	shown(entry(false))
	ready("True")
	shown(entry(true))
	t.Log(
		"known: a ready pod that is on no node: simulated: an endpoint; real: in slices only if the Service publishes " +
			"what is not ready, in Endpoints never",
	)
	patch(t, e.services(), "web", types.MergePatchType,
		map[string]any{"spec": map[string]any{"publishNotReadyAddresses": false}})
	if e.simulated {
		shown(entry(true))
	} else {
		shown()
	}
	patch(t, e.services(), "web", types.MergePatchType,
		map[string]any{"spec": map[string]any{"publishNotReadyAddresses": true}})
	shown(entry(true))
	zero := int64(0)
	if err := e.pods().Delete(t.Context(), "p", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	shown()
	if err := e.services().Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of a deleted Service's slices", func() string {
		list, err := e.slices().List(t.Context(), metav1.ListOptions{LabelSelector: serviceNameLabel + "=web"})
		if err != nil {
			return err.Error()
		}
		return cmp.Diff([]string(nil), names(list))
	})
}

// offered is what the slices of Service web offer: of each endpoint its addresses, conditions, pod and ports.
func offered(t *testing.T, e *env) []any {
	t.Helper()
	list, err := e.slices().List(t.Context(), metav1.ListOptions{LabelSelector: serviceNameLabel + "=web"})
	if err != nil {
		t.Fatal(err)
	}
	var all []any
	for i := range list.Items {
		for _, x := range endpointsIn(&list.Items[i]) {
			target, _ := x["targetRef"].(map[string]any)
			all = append(all,
				[]any{
					x["addresses"], x["conditions"], target["kind"], target["namespace"], target["name"], target["uid"],
					list.Items[i].Object["ports"],
				})
		}
	}
	return all
}

// endpointIPs are the ready addresses in the Endpoints of Service web.
func endpointIPs(t *testing.T, e *env) []any {
	t.Helper()
	u, err := e.client.Resource(gvr("endpoints")).Namespace(e.namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var ips []any
	subsets, _ := u.Object["subsets"].([]any)
	for _, s := range subsets {
		m, _ := s.(map[string]any)
		addresses, _ := m["addresses"].([]any)
		for _, a := range addresses {
			one, _ := a.(map[string]any)
			ips = append(ips, one["ip"])
		}
	}
	return ips
}
