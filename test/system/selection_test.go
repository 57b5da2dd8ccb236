// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Only selected namespaces and their pods have networks and ports. One that leaves the selection loses them, which is
// said once on each object, and one that comes back gets them again.
func TestNamespacesAreSelected(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.conf.Set("namespace_subnet", "namespace_selector", "net=on")
	r.createNamespace("shop")
	r.createPod("shop", "a")
	d := r.start()
	label := func(value string) {
		t.Helper()
		_, err := r.kube.Patch(namespaces(), "", "shop", types.MergePatchType,
			[]byte(fmt.Sprintf(`{"metadata":{"labels":{"net":%q}}}`, value)))
		r.check(err)
	}
	has := func(networks, ports int) {
		t.Helper()
		must(t, fmt.Sprintf("%d networks and %d ports", networks, ports), func() string {
			n, p := 0, 0
			for _, network := range r.cloud.Networks() {
				if network["name"] == "shop" {
					n++
				}
			}
			for _, port := range r.cloud.Ports() {
				if port["name"] == "a" {
					p++
				}
			}
			if amiss := d.settled(); n != networks || p != ports || amiss != "" {
				return fmt.Sprintf("%d networks, %d ports; %s", n, p, amiss)
			}
			return ""
		})
	}
	has(0, 0)
	label("on")
	has(1, 1)
	label("off")
	has(0, 0)
	label("on")
	has(1, 1)
	label("off")
	has(0, 0)
	must(t, "Events on the pod", func() string {
		events, err := r.kube.List(schema.GroupVersionResource{Version: "v1", Resource: "events"}, "shop")
		r.check(err)
		var texts []string
		for _, e := range events {
			involved, _ := e["involvedObject"].(map[string]any)
			if e["reason"] == "NamespaceNotSelected" && involved["name"] == "a" {
				texts = append(texts, fmt.Sprint(e["type"], " ", e["count"], " ", e["message"]))
			}
		}
		want := "Normal 3 the pod gets no port: [namespace_subnet] namespace_selector = net=on does not select namespace shop"
		if len(texts) != 1 || texts[0] != want {
			return fmt.Sprintf("they are %q", texts)
		}
		return ""
	})
	if got := r.raven("describe", "pod/a", "-n", "shop", "--address", d.address()); got.status != 0 ||
		!strings.Contains(got.out, "note: the pod gets no port") {
		t.Errorf("raven describe: exit status %d: %s%s", got.status, got.out, got.errors)
	}
	d.stop()
}
