// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuryr/raven/test/sim/kube"
)

func core(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: resource}
}

func slicesOf() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
}

// endpointRig is an API with a kubelet and the endpoint controller.
type endpointRig struct {
	t *testing.T
	a *kube.API
}

func newEndpointRig(t *testing.T, o kube.Options) endpointRig {
	t.Helper()
	o.Kubelet = &kube.Kubelet{NeedPort: true}
	a := kube.New(o)
	t.Cleanup(a.Close)
	return endpointRig{t, a}
}

func (r endpointRig) create(gvr schema.GroupVersionResource, name string, object map[string]any) map[string]any {
	r.t.Helper()
	meta, _ := object["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["name"], meta["namespace"] = name, "default"
	object["metadata"] = meta
	out, err := r.a.Create(gvr, object)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r endpointRig) pod(name, ip string, ports ...any) {
	r.t.Helper()
	r.create(core("pods"), name, map[string]any{
		"metadata": map[string]any{
			"labels":      map[string]any{"app": "web"},
			"annotations": map[string]any{"kuryr.org/neutron-port": fmt.Sprintf(`{"fixed_ips":[{"ip_address":%q}]}`, ip)},
		},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "ports": ports}}},
	})
}

// state is the endpoints of a Service's slices, as text.
func (r endpointRig) state(service string) []string {
	r.t.Helper()
	list, err := r.a.List(slicesOf(), "default")
	if err != nil {
		r.t.Fatal(err)
	}
	out := []string{}
	for _, s := range list {
		labels, _ := s["metadata"].(map[string]any)["labels"].(map[string]any)
		if labels["kubernetes.io/service-name"] != service {
			continue
		}
		var ports []string
		for _, p := range s["ports"].([]any) {
			m, _ := p.(map[string]any)
			ports = append(ports, fmt.Sprintf("%v/%v", m["port"], m["protocol"]))
		}
		endpoints, _ := s["endpoints"].([]any)
		if len(endpoints) == 0 {
			out = append(out, "empty")
		}
		for _, e := range endpoints {
			m, _ := e.(map[string]any)
			c, _ := m["conditions"].(map[string]any)
			line := fmt.Sprint(m["addresses"].([]any)[0], " ", strings.Join(ports, ","))
			for _, name := range []string{"ready", "serving", "terminating"} {
				if c[name] == true {
					line += " " + name
				}
			}
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

func (r endpointRig) becomes(service string, want ...string) {
	r.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		got := r.state(service)
		diff := cmp.Diff(append([]string{}, want...), got)
		if diff == "" {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("endpoints (-want +got): %s", diff)
		}
		time.Sleep(time.Millisecond)
	}
}

func webService(port any) map[string]any {
	return map[string]any{"spec": map[string]any{
		"selector": map[string]any{"app": "web"}, "ports": []any{map[string]any{"port": int64(80), "targetPort": port}},
	}}
}

func TestEndpointSlicesFollowPods(t *testing.T) {
	r := newEndpointRig(t, kube.Options{PodGrace: 50 * time.Millisecond, Endpoints: &kube.EndpointController{PerSlice: 2}})
	r.becomes("kubernetes", "192.0.2.1 6443/TCP ready")
	r.create(core("services"), "web", webService("http"))
	r.becomes("web", "empty")
	named := map[string]any{"name": "http", "containerPort": int64(8080)}
	r.pod("a", "10.0.0.1", named)
	r.becomes("web", "10.0.0.1 8080/TCP ready serving")
	r.pod("b", "10.0.0.2", named)
	r.pod("c", "10.0.0.3", map[string]any{"name": "http", "containerPort": int64(9090)})
	r.becomes("web", "10.0.0.1 8080/TCP ready serving", "10.0.0.2 8080/TCP ready serving",
		"10.0.0.3 9090/TCP ready serving")
	if err := r.a.Delete(core("pods"), "default", "a"); err != nil {
		t.Fatal(err)
	}
	r.becomes("web", "10.0.0.1 8080/TCP serving terminating", "10.0.0.2 8080/TCP ready serving",
		"10.0.0.3 9090/TCP ready serving")
	r.becomes("web", "10.0.0.2 8080/TCP ready serving", "10.0.0.3 9090/TCP ready serving")
	patch := `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`
	if _, err := r.a.Patch(core("pods"), "default", "b", types.MergePatchType, []byte(patch)); err != nil {
		t.Fatal(err)
	}
	r.becomes("web", "10.0.0.2 8080/TCP", "10.0.0.3 9090/TCP ready serving")
	for range 5 {
		r.pod(fmt.Sprintf("d%d", len(r.state("web"))), fmt.Sprintf("10.0.0.%d", 10+len(r.state("web"))), named)
		want := len(r.state("web")) + 1
		deadline := time.Now().Add(10 * time.Second)
		for len(r.state("web")) != want && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
	}
	list, err := r.a.List(slicesOf(), "default")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if n := len(s["endpoints"].([]any)); n > 2 {
			t.Errorf("a slice has %d endpoints", n)
		}
	}
	endpoints, err := r.a.Get(core("endpoints"), "default", "web")
	if err != nil || len(endpoints["subsets"].([]any)) != 2 {
		t.Errorf("the Endpoints are %v, %v", endpoints, err)
	}
	if err := r.a.Delete(core("services"), "default", "web"); err != nil {
		t.Fatal(err)
	}
	r.becomes("web")
}

func TestServiceAddresses(t *testing.T) {
	r := newEndpointRig(t, kube.Options{ServiceCIDR: "10.96.0.0/24,fd00::/112"})
	get := func(name string, spec map[string]any) map[string]any {
		t.Helper()
		spec["ports"] = []any{map[string]any{"port": int64(80)}}
		out, _ := r.create(core("services"), name, map[string]any{"spec": spec})["spec"].(map[string]any)
		return out
	}
	if s := get("single", map[string]any{}); !cmp.Equal(s["clusterIPs"], any([]any{"10.96.0.2"})) ||
		s["clusterIP"] != "10.96.0.2" {
		t.Errorf("single: %v", s)
	}
	if s := get("dual", map[string]any{"ipFamilyPolicy": "PreferDualStack"}); !cmp.Equal(s["clusterIPs"],
		any([]any{"10.96.0.3", "fd00::2"})) {
		t.Errorf("dual: %v", s)
	}
	if s := get("six", map[string]any{"ipFamilies": []any{"IPv6"}}); !cmp.Equal(s["clusterIPs"], any([]any{"fd00::3"})) {
		t.Errorf("six: %v", s)
	}
	if s := get("headless", map[string]any{"clusterIP": "None"}); !cmp.Equal(s["clusterIPs"], any([]any{"None"})) {
		t.Errorf("headless: %v", s)
	}
	if s := get("name", map[string]any{"type": "ExternalName", "externalName": "x"}); s["clusterIP"] != nil {
		t.Errorf("ExternalName: %v", s)
	}
	s := get("outside", map[string]any{"type": "LoadBalancer"})
	if port := s["ports"].([]any)[0].(map[string]any)["nodePort"]; port != int64(30000) {
		t.Errorf("LoadBalancer: node port %v", port)
	}
}
