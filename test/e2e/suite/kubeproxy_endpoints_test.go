// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Parts of TestKubeProxy: who serves a Service, beside pods that are ready or not, and which Services are served at
// all.

// terminating are endpoints that are on their way out: they serve as long as they can while nobody else is ready, and
// no longer.
func (p *proxied) terminating(t *testing.T) {
	const app = "leaving"
	spec := bothProtocols()
	spec["selector"] = map[string]any{"app": app}
	createService(t, "kp-a", app, spec)
	for _, name := range []string{"l1", "l2"} {
		createPod(t, "kp-a", name, func(_, metadata map[string]any) {
			metadata["labels"], metadata["finalizers"] = map[string]any{"app": app}, []any{"kuryr.org/e2e"}
		})
		t.Cleanup(func() { release(t, "kp-a", name) })
	}
	endpoints(t, "kp-a", app, 2)
	p.settled(t)
	for _, name := range []string{"l1", "l2"} {
		plug(t, "kp-a", name)
	}
	vip, _ := addressOf(t, "kp-a", app)
	among := func(names ...string) {
		t.Helper()
		p.settled(t)
		for _, client := range []*nic{p.near, p.far} {
			for _, protocol := range []string{"tcp", "udp"} {
				client.balanced(t, protocol, vip, slices.Clone(names)...)
			}
		}
	}
	among("kp-a/l1", "kp-a/l2")
	deletePod(t, "kp-a", "l1")
	endpoints(t, "kp-a", app, 1)
	among("kp-a/l2")
	deletePod(t, "kp-a", "l2")
	endpoints(t, "kp-a", app, 0)
	among("kp-a/l1", "kp-a/l2")
	readiness(t, "kp-a", "l1", false) // it serves no more
	awaitServing(t, "kp-a", app, 1)
	among("kp-a/l2")
	for _, name := range []string{"l1", "l2"} {
		release(t, "kp-a", name)
	}
	awaitServing(t, "kp-a", app, 0)
	for _, client := range []*nic{p.near, p.far} {
		client.refused(t, "tcp", vip)
	}
	deleteService(t, "kp-a", app)
	p.settled(t)
}

// release takes a pod's finalizers and deletes it.
func release(t *testing.T, namespace, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if amiss := waitFor(ctx, patience, func(ctx context.Context) string {
		_, err := pods(namespace).Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{})
		if err == nil {
			err = pods(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err.Error()
		}
		return ""
	}); amiss != "" {
		t.Errorf("pod %s/%s has finalizers, and holds up all that follows: %s", namespace, name, amiss)
	}
}

// awaitServing waits until so many of a Service's endpoints serve, ready or not.
func awaitServing(t *testing.T, namespace, service string, want int) {
	t.Helper()
	await(t, fmt.Sprintf("%d endpoints of %s/%s that serve", want, namespace, service), func(ctx context.Context) string {
		list, err := endpointSlices(namespace).List(ctx,
			metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + service})
		if err != nil {
			return err.Error()
		}
		have := 0
		for _, slice := range list.Items {
			for _, e := range thing(slice.Object).things("endpoints") {
				if conditions, _ := e["conditions"].(map[string]any); conditions["serving"] != false {
					have++
				}
			}
		}
		if have != want {
			return fmt.Sprintf("there are %d", have)
		}
		return ""
	})
}

// notReady are endpoints that a Service wants before they are ready.
func (p *proxied) notReady(t *testing.T) {
	p.only(t)
	spec := bothProtocols()
	spec["publishNotReadyAddresses"] = true
	createService(t, "kp-a", "early", spec)
	endpoints(t, "kp-a", "early", len(p.endpoint))
	p.settled(t)
	vip, _ := addressOf(t, "kp-a", "early")
	p.all(t, vip, p.near, p.far)
	p.near.refused(t, "tcp", p.vip)
	deleteService(t, "kp-a", "early")
	p.only(t, "w1", "w2", "w3")
}

// byHand is a Service without a selector, whose EndpointSlices somebody writes: there are two, with one endpoint in
// both and one that is no pod, but reached through the router. Each is on another node and hinted for another zone,
// at which nobody looks, whatever the Service asks for.
func (p *proxied) byHand(t *testing.T) {
	out := outside(t)
	out.serve(t)
	spec := bothProtocols()
	spec["selector"], spec["internalTrafficPolicy"], spec["trafficDistribution"] = nil, "Local", "PreferClose"
	createService(t, "kp-a", "by-hand", spec)
	p.offer(t, "by-hand-1", p.endpoint["w1"], p.endpoint["w2"])
	p.offer(t, "by-hand-2", p.endpoint["w2"], out)
	p.settled(t)
	vip, _ := addressOf(t, "kp-a", "by-hand")
	for _, client := range []*nic{p.near, p.far} {
		for _, protocol := range []string{"tcp", "udp"} {
			client.balanced(t, protocol, vip, "kp-a/w1", "kp-a/w2", out.pod)
		}
	}
	if err := endpointSlices("kp-a").Delete(t.Context(), "by-hand-2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.settled(t)
	p.far.balanced(t, "tcp", vip, "kp-a/w1", "kp-a/w2")
	if err := endpointSlices("kp-a").Delete(t.Context(), "by-hand-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.far.refused(t, "tcp", vip)
	deleteService(t, "kp-a", "by-hand")
	p.settled(t)
}

// offer writes an EndpointSlice of the Service by-hand.
func (p *proxied) offer(t *testing.T, name string, those ...*nic) {
	t.Helper()
	var list []any
	for i, one := range those {
		where := fmt.Sprintf("%s-%d", name, i)
		list = append(list, map[string]any{
			"addresses": []any{one.addresses[0]}, "conditions": map[string]any{"ready": true},
			"nodeName": where, "zone": where,
			"hints": map[string]any{"forZones": []any{map[string]any{"name": where}}},
		})
	}
	port := func(name, protocol string) any {
		return map[string]any{"name": name, "protocol": protocol, "port": int64(8080)}
	}
	object := &unstructured.Unstructured{Object: thing{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": list,
		"metadata": map[string]any{"name": name, "labels": map[string]any{"kubernetes.io/service-name": "by-hand"}},
		"ports":    []any{port("web", "TCP"), port("ask", "UDP")},
	}}
	if _, err := endpointSlices("kp-a").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// policies that say Local are served as Cluster, and the Service is told.
func (p *proxied) policies(t *testing.T) {
	patchService(t, "kp-a", "web",
		`{"spec":{"type":"LoadBalancer","internalTrafficPolicy":"Local","externalTrafficPolicy":"Local"}}`)
	for _, words := range []string{"internalTrafficPolicy", "externalTrafficPolicy"} {
		awaitEvent(t, "kp-a", "web", "TrafficPolicyNotServed", words)
	}
	p.settled(t)
	_, floating := addressOf(t, "kp-a", "web")
	p.all(t, floating, outside(t))
	p.all(t, p.vip, p.near, p.far)
	patchService(t, "kp-a", "web",
		`{"spec":{"type":"ClusterIP","internalTrafficPolicy":"Cluster","externalTrafficPolicy":null}}`)
	p.settled(t)
}

// awaitEvent waits for an Event of a Service.
func awaitEvent(t *testing.T, namespace, service, reason, words string) {
	t.Helper()
	await(t, fmt.Sprintf("the Event %s of %s/%s that speaks of %s", reason, namespace, service, words),
		func(ctx context.Context) string {
			about, err := told(ctx, namespace, reason, words)
			if err != nil || !about[service] {
				return fmt.Sprintf("there is none (%v)", err)
			}
			return ""
		})
}

// unserved is a port that the Service does not have, and a Service that is given to another proxy, and back.
func (p *proxied) unserved(t *testing.T) {
	for _, client := range []*nic{p.near, p.far} {
		client.unanswered(t, "tcp", net.JoinHostPort(p.vip, "81"))
		client.unanswered(t, "udp", net.JoinHostPort(p.vip, "81"))
	}
	patchService(t, "kp-a", "web", fmt.Sprintf(`{"metadata":{"labels":{%q:"another"}}}`, proxyNameLabel))
	p.settled(t)
	for _, client := range []*nic{p.near, p.far} {
		client.unanswered(t, "tcp", net.JoinHostPort(p.vip, "80"))
	}
	patchService(t, "kp-a", "web", fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, proxyNameLabel))
	p.settled(t)
	p.all(t, p.vip, p.near, p.far)
}

// affinityMoves has endpoints come and go while a client is kept with one: it is with one all the time, and with
// another one when its own goes.
func (p *proxied) affinityMoves(t *testing.T) {
	patchService(t, "kp-a", "web", `{"spec":{"sessionAffinity":"ClientIP"}}`)
	p.settled(t)
	for _, client := range []*nic{p.near, p.far} {
		own := strings.TrimPrefix(client.keeps(t, "tcp", p.vip, p.everywhere...), "kp-a/")
		others := slices.DeleteFunc(slices.Collect(maps.Keys(p.endpoint)), func(name string) bool { return name == own })
		p.only(t, others...)
		client.keeps(t, "tcp", p.vip, "kp-a/"+others[0], "kp-a/"+others[1])
		p.only(t, own, others[0])
		client.keeps(t, "tcp", p.vip, "kp-a/"+own, "kp-a/"+others[0])
		p.only(t, "w1", "w2", "w3")
	}
	patchService(t, "kp-a", "web", `{"spec":{"sessionAffinity":"None","sessionAffinityConfig":null}}`)
	p.settled(t)
}

// ports are two of one Service, of which one is named in the pods, with another number in each.
func (p *proxied) ports(t *testing.T) {
	port := func(name string, number int64, target any) any {
		return map[string]any{"name": name, "protocol": "TCP", "port": number, "targetPort": target}
	}
	createService(t, "kp-a", "ports", map[string]any{
		"selector": map[string]any{"app": "ports"}, "ports": []any{port("web", 80, "main"), port("more", 443, int64(8081))},
	})
	for name, number := range map[string]int64{"n1": 8080, "n2": 8081} {
		createPod(t, "kp-a", name, func(spec, metadata map[string]any) {
			metadata["labels"] = map[string]any{"app": "ports"}
			containers := spec["containers"].([]any)
			containers[0].(map[string]any)["ports"] = []any{map[string]any{"name": "main", "containerPort": number}}
		})
	}
	endpoints(t, "kp-a", "ports", 2)
	p.settled(t)
	plug(t, "kp-a", "n1")
	plug(t, "kp-a", "n2")
	vip, _ := addressOf(t, "kp-a", "ports")
	for _, client := range []*nic{p.near, p.far} {
		client.balanced(t, "tcp", vip, "kp-a/n1", "kp-a/n2:8081")
		client.balancedAt(t, "tcp", net.JoinHostPort(vip, "443"), "kp-a/n1:8081", "kp-a/n2:8081")
	}
	deletePod(t, "kp-a", "n1")
	deletePod(t, "kp-a", "n2")
	deleteService(t, "kp-a", "ports")
	p.settled(t)
}

// affinityStays has clients come again after longer than the Service asks for: they find their endpoint, and no
// connection is lost by which OVN would learn that. The Service is told.
func (p *proxied) affinityStays(t *testing.T) {
	const timeout = 3 * time.Second
	patchService(t, "kp-a", "web",
		fmt.Sprintf(`{"spec":{"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":%d}}}}`,
			int(timeout.Seconds())))
	awaitEvent(t, "kp-a", "web", "AffinityTimeoutNotServed", "timeoutSeconds 3")
	p.settled(t)
	for _, client := range []*nic{p.near, p.far} {
		for _, protocol := range []string{"tcp", "udp"} {
			who := client.keeps(t, protocol, p.vip, p.everywhere...)
			for range 3 {
				client.rests(t, 2*timeout)
				answers, err := client.calls(t.Context(), protocol, net.JoinHostPort(p.vip, "80"), 1)
				if err != nil || answers[who] != 1 {
					t.Errorf("%s was with %s by %s, and is answered by %v (%v)", client.pod, who, protocol, answers, err)
				}
			}
		}
	}
	patchService(t, "kp-a", "web", `{"spec":{"sessionAffinity":"None","sessionAffinityConfig":null}}`)
	p.settled(t)
}

// rests lets a client call nobody for that long.
func (n *nic) rests(t *testing.T, long time.Duration) {
	t.Helper()
	began := time.Now()
	await(t, n.pod+" to have rested", func(context.Context) string {
		if rest := time.Since(began); rest < long {
			return fmt.Sprintf("it has for %s", rest)
		}
		return ""
	})
}
