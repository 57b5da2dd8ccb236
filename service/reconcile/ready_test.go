// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kuryr/raven/drivers/kubeproxy"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// TestPortReady: a pod's port that was made is told once, by a Normal Event; a start that finds it tells nothing; one
// that is made anew is told again.
func TestPortReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	w.createPod("default", "a")
	r := w.start(setup{})
	told := func(times int) {
		t.Helper()
		w.eventually(fmt.Sprintf("%d Events PortReady", times), func() (bool, string) {
			list, err := w.kube.List(events(), "default")
			var texts []string
			for _, e := range list {
				if e["reason"] == "PortReady" && e["type"] == "Normal" && strings.Contains(fmt.Sprint(e["message"]), "192.168.") {
					texts = append(texts, fmt.Sprint(e["count"], " ", e["message"]))
				}
			}
			same := len(texts) == times
			for _, text := range texts {
				same = same && strings.HasPrefix(text, "1 port ")
			}
			return err == nil && same, strings.Join(texts, ", ")
		})
	}
	told(1)
	r.stop()

	r = w.start(setup{})
	r.settled(5) // four namespaces and the pod
	w.createPod("default", "b")
	told(2) // that of the other pod: what is told of a second time would be before it
	r.stop()
}

// TestLoadBalancerReady: of Octavia, and of OVN.
func TestLoadBalancerReady(t *testing.T) {
	t.Parallel()
	told := func(w *world, namespace, says string) {
		t.Helper()
		w.eventually("an Event that says "+says, func() (bool, string) {
			list, err := w.kube.List(events(), namespace)
			for _, e := range list {
				if e["reason"] == "LoadBalancerReady" && e["type"] == "Normal" {
					return err == nil && strings.Contains(fmt.Sprint(e["message"]), says), fmt.Sprint(e["message"])
				}
			}
			return false, fmt.Sprint(list)
		})
	}
	w := balancers(t, amphora())
	r := w.start(with(script("a", always(shopOf(1).set()))))
	w.createMap("a", "x")
	r.settled(1)
	told(w, "default", text(w.one("loadbalancer", "shop"), "vip_address"))
	r.stop()

	o := newOVNWorld(t)
	o.createNamespace("web")
	o.run(kubeproxy.New(), nil)
	o.createWeb("web", "shop", "10.96.0.10", "10.0.0.5")
	told(o.world, "web", "OVN serves 10.96.0.10")
}
