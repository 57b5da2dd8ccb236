// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

func serviceObjects(namespace string) dynamic.ResourceInterface {
	return world.kube.Resource(resource("services")).Namespace(namespace)
}

func endpointSlices(namespace string) dynamic.ResourceInterface {
	return world.kube.Resource(schema.GroupVersionResource{
		Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices",
	}).Namespace(namespace)
}

// bothProtocols is a Service's ports: TCP and UDP, on one number.
func bothProtocols() map[string]any {
	port := func(name, protocol string) any {
		return map[string]any{"name": name, "protocol": protocol, "port": int64(80), "targetPort": int64(8080)}
	}
	return map[string]any{"ports": []any{port("web", "TCP"), port("ask", "UDP")}}
}

// createService makes a Service that selects the pods labelled app=web, for TCP unless spec says otherwise. It goes
// with its namespace.
func createService(t *testing.T, namespace, name string, spec map[string]any, annotations ...string) {
	t.Helper()
	all := map[string]any{
		"selector": map[string]any{"app": "web"},
		"ports":    []any{map[string]any{"name": "web", "protocol": "TCP", "port": int64(80), "targetPort": int64(8080)}},
	}
	maps.Copy(all, spec)
	notes := map[string]any{}
	for _, one := range annotations {
		key, value, _ := strings.Cut(one, "=")
		notes[key] = value
	}
	object := &unstructured.Unstructured{Object: thing{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": name, "annotations": notes}, "spec": all,
	}}
	if _, err := serviceObjects(namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func patchService(t *testing.T, namespace, name, patch string, subresources ...string) {
	t.Helper()
	_, err := serviceObjects(namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}, subresources...)
	if err != nil {
		t.Fatal(err)
	}
}

func deleteService(t *testing.T, namespace, name string) {
	t.Helper()
	if err := serviceObjects(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// webPods makes pods that the Services select.
func webPods(t *testing.T, namespace string, names ...string) {
	t.Helper()
	for _, name := range names {
		createPod(t, namespace, name, func(_, metadata map[string]any) { metadata["labels"] = map[string]any{"app": "web"} })
	}
}

// endpoints waits until so many of a Service's endpoints are ready.
func endpoints(t *testing.T, namespace, service string, want int) {
	t.Helper()
	await(t, fmt.Sprintf("%d ready endpoints of %s/%s", want, namespace, service), func(ctx context.Context) string {
		c, err := look(ctx)
		if err != nil {
			return err.Error()
		}
		for i := range c.services {
			if svc := &c.services[i]; svc.GetNamespace() == namespace && svc.GetName() == service {
				ready := map[string]bool{}
				for _, slice := range c.slicesOf(svc) {
					for _, e := range slice.things("endpoints") {
						if conditions, _ := e["conditions"].(map[string]any); conditions["ready"] != false {
							ready[e.strs("addresses")[0]] = true
						}
					}
				}
				if len(ready) == want && len(c.slicesOf(svc)) > 0 {
					return ""
				}
				return fmt.Sprintf("there are %v", slices.Sorted(maps.Keys(ready)))
			}
		}
		return "there is no such Service"
	})
}

// readiness is what the kubelet says of a pod.
func readiness(t *testing.T, namespace, pod string, ready bool) {
	t.Helper()
	word := "False"
	if ready {
		word = "True"
	}
	patchPod(t, namespace, pod,
		fmt.Sprintf(`{"status":{"conditions":[{"type":"Initialized","status":"True"},{"type":"Ready","status":%q},{"type":"ContainersReady","status":%q}]}}`,
			word, word), "status")
}

// addressOf is a Service's clusterIP, and what its status names.
func addressOf(t *testing.T, namespace, name string) (clusterIP, ingress string) {
	t.Helper()
	svc, err := serviceObjects(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	clusterIP, _, _ = unstructured.NestedString(svc.Object, "spec", "clusterIP")
	list, _, _ := unstructured.NestedSlice(svc.Object, "status", "loadBalancer", "ingress")
	for _, one := range list {
		entry, _ := one.(map[string]any)
		ingress = thing(entry).str("ip")
	}
	return clusterIP, ingress
}

// awaitIngress waits until a Service's status names an address.
func awaitIngress(t *testing.T, namespace, name string) (address string) {
	t.Helper()
	await(t, fmt.Sprintf("the status of %s/%s to name an address", namespace, name), func(context.Context) string {
		if _, address = addressOf(t, namespace, name); address == "" {
			return "it names none"
		}
		return ""
	})
	return address
}

// TestServices sends packets to Services of provider ovn: by TCP and UDP, to the clusterIP from a pod of another
// namespace and to a floating IP and an externalIP from outside. Calls are balanced over the ready endpoints and over
// no others; with sessionAffinity they stay with one. The Service is there before its pods and outlives them; what it
// had goes with it.
func TestServices(t *testing.T) {
	needPackets(t)
	s := balancing(t)
	externalIP := operatorsAddress(t)
	createNamespace(t, "sv-a")
	createNamespace(t, "sv-b")
	createService(t, "sv-a", "web", bothProtocols())
	endpoints(t, "sv-a", "web", 0)
	createPod(t, "sv-b", "client")
	s.settled(t)
	pods, all := []string{"w1", "w2", "w3"}, []string{"sv-a/w1", "sv-a/w2", "sv-a/w3"}
	webPods(t, "sv-a", pods...)
	endpoints(t, "sv-a", "web", 3)
	s.settled(t)
	for _, pod := range pods {
		plug(t, "sv-a", pod)
	}
	client := plug(t, "sv-b", "client")
	vip, _ := addressOf(t, "sv-a", "web")
	balancedInOVN(t, "sv-a", "web")
	client.balanced(t, "tcp", vip, all...)
	client.balanced(t, "udp", vip, all...)

	t.Log("an endpoint is not ready")
	readiness(t, "sv-a", "w2", false)
	endpoints(t, "sv-a", "web", 2)
	s.settled(t)
	client.balanced(t, "tcp", vip, "sv-a/w1", "sv-a/w3")
	client.balanced(t, "udp", vip, "sv-a/w1", "sv-a/w3")
	readiness(t, "sv-a", "w2", true)

	t.Log("affinity, and addresses outside")
	patchService(t, "sv-a", "web", `{"spec":{"sessionAffinity":"ClientIP","type":"LoadBalancer"}}`)
	endpoints(t, "sv-a", "web", 3)
	s.settled(t)
	client.keeps(t, "tcp", vip, all...)
	client.keeps(t, "udp", vip, all...)
	patchService(t, "sv-a", "web", fmt.Sprintf(`{"spec":{"sessionAffinity":"None","externalIPs":[%q]}}`, externalIP))
	await(t, "the load balancer of the externalIP", func(ctx context.Context) string {
		fips, err := world.cloud.list(ctx, "floatingips", "floating_ip_address="+externalIP)
		if err != nil || len(fips) != 1 || fips[0].str("port_id") == "" {
			return fmt.Sprintf("its floating IP is %v (%v)", fips, err)
		}
		return s.amiss(ctx)
	})
	_, floating := addressOf(t, "sv-a", "web")
	out := outside(t)
	for _, address := range []string{floating, externalIP} {
		out.balanced(t, "tcp", address, all...)
		out.balanced(t, "udp", address, all...)
	}
	client.balanced(t, "tcp", vip, all...)

	t.Log("no pods")
	patchService(t, "sv-a", "web", `{"spec":{"externalIPs":null}}`)
	for _, pod := range pods {
		deletePod(t, "sv-a", pod)
	}
	endpoints(t, "sv-a", "web", 0)
	s.settled(t)
	client.silence(t, "tcp", vip)

	t.Log("no Service")
	deleteService(t, "sv-a", "web")
	s.settled(t)
	nothingAt(t, vip, floating)
}

// operatorsAddress has an administrator make a floating IP in Raven's project, whose address a Service may then ask
// for.
func operatorsAddress(t *testing.T) string {
	t.Helper()
	prefix, err := netip.ParsePrefix(world.externalCIDR)
	if err != nil {
		t.Fatal(err)
	}
	bytes := prefix.Masked().Addr().As4()
	bytes[3] += 240
	return operatorsAt(t, netip.AddrFrom4(bytes))
}

// operatorsAt is operatorsAddress at an address.
func operatorsAt(t *testing.T, address netip.Addr) string {
	t.Helper()
	fip, err := world.admin.create(t.Context(), "floatingips", thing{
		"floating_network_id": world.external, "floating_ip_address": address.String(), "project_id": world.cloud.project,
		"description": "an administrator's",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := world.admin.remove(context.Background(), "floatingips", fip.str("id")); err != nil {
			t.Error(err)
		}
	})
	return fip.str("floating_ip_address")
}

// balancedInOVN checks that OVN itself balances what Octavia says: each port of the clusterIP to the ready endpoints.
func balancedInOVN(t *testing.T, namespace, name string) {
	t.Helper()
	svc, err := serviceObjects(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	vip, _, _ := unstructured.NestedString(svc.Object, "spec", "clusterIP")
	rows, err := nbctl(t.Context(), "--bare", "--columns=vips", "find", "Load_Balancer",
		"name="+document(svc, vipAnnotation).str("id"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range c.wanted(svc) {
		_, members, _ := strings.Cut(line, "[")
		members, _, _ = strings.Cut(members, "]")
		for _, member := range strings.Fields(members) {
			if !strings.Contains(rows, vip+":80=") || !strings.Contains(rows, member) {
				t.Errorf("OVN does not balance %s to %s: %s", vip, member, rows)
			}
		}
	}
}

// nothingAt checks that no load balancer, no port and no floating IP has an address.
func nothingAt(t *testing.T, vip, floating string) {
	t.Helper()
	for kind, query := range map[string]string{
		balancerKind: "vip_address=" + vip, "ports": "fixed_ips=ip_address%3D" + vip,
		"floatingips": "floating_ip_address=" + floating,
	} {
		found, err := world.cloud.list(t.Context(), kind, query)
		if err != nil || len(found) > 0 {
			t.Errorf("%s with %s: %v (%v)", kind, query, found, err)
		}
	}
}

// TestServicesGoWithTheirNamespace deletes a namespace whose Services are served, and others that are still being
// made, with its pods: nothing of it is left, and the namespace is gone.
func TestServicesGoWithTheirNamespace(t *testing.T) {
	s := balancing(t)
	createNamespace(t, "sg-a")
	webPods(t, "sg-a", "w1", "w2")
	createService(t, "sg-a", "served", map[string]any{"type": "LoadBalancer"})
	endpoints(t, "sg-a", "served", 2)
	s.settled(t)
	_, floating := addressOf(t, "sg-a", "served")
	createService(t, "sg-a", "new", bothProtocols())
	createService(t, "sg-a", "newer", map[string]any{"type": "LoadBalancer"})
	vip, _ := addressOf(t, "sg-a", "new")
	underWay(t, vip, func(lb thing) bool { return lb != nil })
	deleteNamespace(t, "sg-a")
	gone(t, "sg-a")
	s.settled(t)
	nothingAt(t, vip, floating)
}

// underWay waits, looking as often as it can, until the load balancer at an address is as asked; it is nil while
// there is none.
func underWay(t *testing.T, vip string, so func(lb thing) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		found, err := world.cloud.list(ctx, balancerKind, "vip_address="+vip)
		if err != nil && ctx.Err() != nil {
			t.Fatalf("waiting for a load balancer at %s to be changed: %v", vip, err)
		}
		if err != nil { // a server under load may refuse one look
			t.Logf("looking at the load balancer at %s: %v", vip, err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if len(found) == 0 {
			found = []thing{nil}
		}
		if so(found[0]) {
			return
		}
	}
}
