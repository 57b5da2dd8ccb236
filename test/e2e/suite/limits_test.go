// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestQuota lets the project run out of ports: as many pods as there is room for get one, an Event on the others says
// why they wait, and all get theirs once the quota is raised. Neutron counts before it makes, so that requests at the
// same moment may each find the last room: somewhat more pods than there is room for may get theirs, but never fewer.
func TestQuota(t *testing.T) {
	s := standing(t)
	createNamespace(t, "qu-a")
	s.settled(t)
	const all, room = 9, 2 // pods
	used, err := world.cloud.list(t.Context(), "ports", "fields=id&project_id="+world.cloud.project)
	if err != nil {
		t.Fatal(err)
	}
	path := "quotas/" + world.cloud.project
	had, err := world.admin.call(t.Context(), http.MethodGet, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	quota, _ := had["quota"].(map[string]any)
	set := func(ctx context.Context, ports any) error {
		_, err := world.admin.call(ctx, http.MethodPut, path, thing{"quota": thing{"port": ports}})
		return err
	}
	if err := set(t.Context(), len(used)+room); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set(context.Background(), quota["port"]); err != nil {
			t.Error(err)
		}
	})
	for i := range all {
		createPod(t, "qu-a", fmt.Sprint("p", i))
	}
	await(t, "pods to have the ports that there is room for, and all others to be told why not",
		func(ctx context.Context) string {
			list, err := pods("qu-a").List(ctx, metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			told, err := told(ctx, "qu-a", "RavenCannotApply", "OverQuota")
			with, silent := 0, 0
			for i := range list.Items {
				switch pod := &list.Items[i]; {
				case document(pod, portAnnotation) != nil:
					with++
				case !told[pod.GetName()]:
					silent++
				}
			}
			if err != nil || with < room || with == all || silent > 0 {
				return fmt.Sprintf("of %d %d have one, with room for %d; %d others were told nothing (%v)", all, with, room,
					silent, err)
			}
			return ""
		})
	if err := set(t.Context(), quota["port"]); err != nil {
		t.Fatal(err)
	}
	s.settled(t)
}

// told names the objects of a namespace that an Event of that reason is about, with these words in its message.
func told(ctx context.Context, namespace, reason, words string) (map[string]bool, error) {
	events, err := world.kube.Resource(resource("events")).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	about := map[string]bool{}
	for _, e := range events.Items {
		why, _, _ := unstructured.NestedString(e.Object, "reason")
		message, _, _ := unstructured.NestedString(e.Object, "message")
		name, _, _ := unstructured.NestedString(e.Object, "involvedObject", "name")
		if why == reason && strings.Contains(message, words) {
			about[name] = true
		}
	}
	return about, nil
}

// TestSubnetFull puts more pods into a namespace than its subnet has addresses for: it gets a second subnet, which is
// joined to the router as well, and both go with the namespace.
func TestSubnetFull(t *testing.T) {
	s := standing(t) // with 13 addresses in a subnet
	createNamespace(t, "sf-a")
	for i := range 16 {
		createPod(t, "sf-a", fmt.Sprintf("p%02d", i))
	}
	s.settled(t)
	network := annotated(t, "sf-a", networkAnnotation).str("id")
	subnets, err := world.cloud.list(t.Context(), "subnets", "network_id="+network)
	if err != nil {
		t.Fatal(err)
	}
	ports, err := world.cloud.list(t.Context(), "ports", "network_id="+network)
	if err != nil {
		t.Fatal(err)
	}
	in, gateways := map[string]int{}, map[string]bool{}
	for _, port := range ports {
		for _, ip := range port.things("fixed_ips") {
			if port.str("device_owner") == "compute:kuryr" {
				in[ip.str("subnet_id")]++
			} else {
				gateways[ip.str("ip_address")] = true
			}
		}
	}
	if len(subnets) != 2 || len(in) != 2 {
		t.Fatalf("there are %d subnets, and pods in %v", len(subnets), in)
	}
	for _, subnet := range subnets {
		if !gateways[subnet.str("gateway_ip")] {
			t.Errorf("subnet %s is joined to no router", subnet.str("cidr"))
		}
	}
	// What a pod is told of is the subnet that it is in.
	list, err := pods("sf-a").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		ips := document(pod, portAnnotation).things("fixed_ips")
		if len(ips) != 1 || ips[0].str("subnet_id") != document(pod, subnetAnnotation).str("id") {
			t.Errorf("pod %s has the addresses %v and is told of subnet %s", pod.GetName(), ips,
				document(pod, subnetAnnotation).str("id"))
		}
	}
	deleteNamespace(t, "sf-a")
	gone(t, "sf-a")
	s.settled(t)
}
