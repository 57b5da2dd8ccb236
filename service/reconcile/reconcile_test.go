// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers/contract"
	"github.com/kuryr/raven/drivers/namespace"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// systemNamespaces are in every cluster from the start; networkedNamespaces of them get networks.
const (
	systemNamespaces    = 4
	networkedNamespaces = 2
)

func (w *world) dump() string {
	return w.cloud.Dump(simcloud.DumpOptions{Hide: []string{"device_id"}})
}

// writes lists the requests that changed, or tried to change, the cloud.
func (w *world) writes() []string {
	var list []string
	for _, r := range w.cloud.Log(0) {
		if r.Method != "GET" && r.Kind != "token" {
			list = append(list, r.Method+" "+r.Path)
		}
	}
	return list
}

func TestNamespacesAndPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(setup{})
	w.createNamespace("shop")
	w.createPod("shop", "web-1")
	w.createPod("shop", "web-2")
	r.settled(systemNamespaces + 3)

	port := w.annotation(pods(), "shop", "web-1", contract.Port)
	subnet := w.annotation(namespaces(), "", "shop", namespace.SubnetAnnotation)
	if port == nil || subnet == nil {
		t.Fatalf("annotations: port %v, subnet %v", port, subnet)
	}
	if got := w.annotation(pods(), "shop", "web-1", contract.Subnet); cmp.Diff(subnet, got) != "" {
		t.Errorf("the pod's subnet is not its namespace's: %s", cmp.Diff(subnet, got))
	}

	w.delete(pods(), "shop", "web-1")
	r.settled(systemNamespaces + 2)
	if n := w.cloud.Count("port"); n != networkedNamespaces+1+1+1 { // router interfaces, that of the services, web-2
		t.Errorf("%d ports are left after a pod is gone", n)
	}
	w.delete(namespaces(), "", "shop")
	r.settled(systemNamespaces)
	if n := len(w.cloud.Networks()); n != networkedNamespaces+2 { // the services' and the external one
		t.Errorf("%d networks are left after the namespace is gone", n)
	}
}

func TestASecondReconcileWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(setup{})
	w.createNamespace("shop")
	w.createPod("shop", "web-1")
	r.settled(systemNamespaces + 2)
	before := w.writes()
	r.engine.Replay("namespace")
	r.engine.Replay("pod")
	r.settled(systemNamespaces + 2)
	r.stop()
	kube := w.kube.Count("patch pods") + w.kube.Count("patch namespaces")

	again := w.start(setup{})
	again.settled(systemNamespaces + 2)
	if got := w.writes(); len(got) != len(before) {
		t.Errorf("a replay and a restart wrote to the cloud: %v", got[len(before):])
	}
	if got := w.kube.Count("patch pods") + w.kube.Count("patch namespaces"); got != kube {
		t.Errorf("a restart wrote %d times to Kubernetes", got-kube)
	}
	if g := again.engine.Guards(); len(g) > 0 {
		t.Errorf("the guard holds %v", g)
	}
}
