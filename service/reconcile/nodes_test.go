// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/contract"
	"github.com/kuryr/raven/drivers/namespace"
	"github.com/kuryr/raven/drivers/node"
	"github.com/kuryr/raven/drivers/pod"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

func nodes() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
}

// withNodes is a Raven with driver node, as an administrator: others see no binding:host_id.
func withNodes() setup {
	return setup{
		user:    simcloud.UserKuryrAdmin,
		drivers: map[string]drivers.Driver{"namespace": namespace.New(), "pod": pod.New(), "node": node.New()},
	}
}

// createNode makes a Node and returns its UID.
func (w *world) createNode(name string) string {
	w.t.Helper()
	made, err := w.kube.Create(nodes(), map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.text(made, "uid")
}

// onNode makes a pod that is scheduled to a node.
func (w *world) onNode(ns, name, node string) {
	w.t.Helper()
	object := podObject(ns, name)
	object["spec"].(map[string]any)["nodeName"] = node
	w.create(pods(), object)
}

// chassis has a node's daemon say under which name OVN knows the node.
func (w *world) chassis(node, name string) {
	w.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, contract.ChassisHostname, name)
	if _, err := w.kube.Patch(nodes(), "", node, types.MergePatchType, patch); err != nil {
		w.t.Fatal(err)
	}
}

// text returns a text of an object's metadata, or an annotation.
func (w *world) text(object map[string]any, key string) string {
	meta, _ := object["metadata"].(map[string]any)
	if text, ok := meta[key].(string); ok {
		return text
	}
	annotations, _ := meta["annotations"].(map[string]any)
	text, _ := annotations[key].(string)
	return text
}

// port returns the port in the cloud of an object by its annotation, or nil.
func (w *world) port(gvr schema.GroupVersionResource, ns, name string) map[string]any {
	w.t.Helper()
	annotated := w.annotation(gvr, ns, name, contract.Port)
	for _, p := range w.cloud.Ports() {
		if annotated != nil && p["id"] == annotated["id"] {
			return p
		}
	}
	return nil
}

// hosts returns the binding:host_id of ports by their names.
func (w *world) hosts(names ...string) map[string]any {
	hosts := map[string]any{}
	for _, p := range w.cloud.Ports() {
		for _, name := range names {
			if p["name"] == name {
				hosts[name] = p["binding:host_id"]
			}
		}
	}
	return hosts
}

func (w *world) hostsBecome(want map[string]any) {
	w.t.Helper()
	names := make([]string, 0, len(want))
	for name := range want {
		names = append(names, name)
	}
	w.eventually("the hosts of ports", func() (bool, string) {
		diff := cmp.Diff(want, w.hosts(names...))
		return diff == "", diff
	})
}

// A node has a port with its UID, and says on the Node all that its daemon needs; it goes with the Node, and the
// network of the nodes with the last one.
func TestNodesComeAndGo(t *testing.T) {
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(withNodes())
	r.settled(systemNamespaces)
	networks := len(w.cloud.Networks())
	ports := w.cloud.Count("port")
	uid := w.createNode("node-1")
	w.createNode("node-2")
	r.settled(systemNamespaces + 2)

	port := w.port(nodes(), "", "node-1")
	if port == nil || port["device_id"] != uid || port["device_owner"] != contract.DeviceOwner ||
		port["binding:host_id"] != "node-1" {
		t.Fatalf("the port of the node with UID %s is %v", uid, port)
	}
	object, err := w.kube.Get(nodes(), "", "node-1")
	if err != nil {
		t.Fatal(err)
	}
	if got := w.text(object, contract.VersionKey); got != contract.Version {
		t.Errorf("the version is %q", got)
	}
	if got := w.text(object, contract.PodCIDRs); got != `["192.168.0.0/16"]` {
		t.Errorf("the pods' ranges are %s", got)
	}
	network := w.annotation(nodes(), "", "node-1", contract.Network)
	subnet := w.annotation(nodes(), "", "node-1", contract.Subnet)
	if network["name"] != "raven-default-nodes" || network["mtu"] == nil || subnet["gateway_ip"] != "10.77.0.1" {
		t.Errorf("the network is %v, the subnet %v", network, subnet)
	}

	w.delete(nodes(), "", "node-2")
	r.settled(systemNamespaces + 1)
	if n := w.cloud.Count("port"); n != ports+2 { // the router's and that of node-1
		t.Errorf("%d ports after a node has gone, %d before there were any", n, ports)
	}
	// A node that comes back under another name is another node.
	w.delete(nodes(), "", "node-1")
	w.createNode("node-one")
	r.settled(systemNamespaces + 1)
	w.hostsBecome(map[string]any{"node-one": "node-one"})
	// The network may have gone with node-1, and is then made again with its router's port.
	w.eventually("the router's port and that of node-one", func() (bool, string) {
		n := w.cloud.Count("port")
		return n == ports+2, fmt.Sprintf("%d ports, %d before there were any", n, ports)
	})
	w.delete(nodes(), "", "node-one")
	w.eventually("the network of the nodes goes with the last one", func() (bool, string) {
		n, left := len(w.cloud.Networks()), w.cloud.Count("port")
		return n == networks && left == ports,
			fmt.Sprintf("%d networks and %d ports, %d and %d were there before", n, left, networks, ports)
	})
	r.settled(systemNamespaces)
}

// The ports of a node and of its pods are bound to the chassis that the node's daemon names, and a change of that name
// writes to these ports only.
func TestPortsFollowTheChassis(t *testing.T) {
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(withNodes())
	w.createNamespace("shop")
	w.createNode("node-1")
	w.createNode("node-2")
	for i := range 3 {
		w.onNode("shop", fmt.Sprintf("one-%d", i), "node-1")
		w.onNode("shop", fmt.Sprintf("two-%d", i), "node-2")
	}
	w.onNode("shop", "nowhere", "no-such-node")
	r.settled(systemNamespaces + 1 + 2 + 7)
	w.hostsBecome(map[string]any{
		"node-1": "node-1", "one-0": "node-1", "one-2": "node-1", "two-1": "node-2", "nowhere": "no-such-node",
	})
	before := len(w.writes())
	w.chassis("node-1", "compute-7.example.org")
	w.hostsBecome(map[string]any{
		"node-1": "compute-7.example.org", "one-0": "compute-7.example.org", "one-1": "compute-7.example.org",
		"one-2": "compute-7.example.org", "two-0": "node-2", "node-2": "node-2", "nowhere": "no-such-node",
	})
	r.settled(systemNamespaces + 1 + 2 + 7)
	if got := w.writes()[before:]; len(got) != 4 {
		t.Errorf("the change of one node wrote %v", got)
	}
	annotated := w.annotation(pods(), "shop", "one-0", contract.Port)
	if annotated["binding:host_id"] != "compute-7.example.org" {
		t.Errorf("the pod says that its port is on %v", annotated["binding:host_id"])
	}
	// What is no name of a chassis changes nothing.
	before = len(w.writes())
	w.chassis("node-2", "two words")
	w.eventually("the pods on node-2 are refused", func() (bool, string) {
		refused := 0
		for _, o := range r.engine.Objects(reconcile.Filter{Kind: "Pod"}) {
			if o.State == state.Terminal {
				refused++
			}
		}
		return refused == 3, fmt.Sprint(refused)
	})
	if got := w.writes()[before:]; len(got) > 0 {
		t.Errorf("a chassis name that is none wrote %v", got)
	}
}

// What stands on a pod is all that a plugin needs.
func TestPodsCarryTheirNetwork(t *testing.T) {
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(setup{})
	w.createNamespace("shop")
	w.createPod("shop", "web")
	r.settled(systemNamespaces + 2)
	of := w.annotation(namespaces(), "", "shop", contract.Network)
	if diff := cmp.Diff(of, w.annotation(pods(), "shop", "web", contract.Network)); diff != "" || of["mtu"] == nil {
		t.Errorf("the pod's network is not that of its namespace, %v: %s", of, diff)
	}
	object, err := w.kube.Get(pods(), "shop", "web")
	if err != nil {
		t.Fatal(err)
	}
	if got := w.text(object, contract.VersionKey); got != contract.Version {
		t.Errorf("the version is %q", got)
	}
	if n := w.kube.Count("patch pods"); n != 1 {
		t.Errorf("the annotations of a pod took %d writes", n)
	}
}

// A restart finds everything as it should be.
func TestARestartWithNodesWritesNothing(t *testing.T) {
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(withNodes())
	w.createNamespace("shop")
	w.createNode("node-1")
	w.chassis("node-1", "compute-7.example.org")
	w.onNode("shop", "web", "node-1")
	w.hostsBecome(map[string]any{"node-1": "compute-7.example.org", "web": "compute-7.example.org"})
	r.settled(systemNamespaces + 3)
	r.stop()
	before := len(w.writes())
	count := func() int {
		return w.kube.Count("patch pods") + w.kube.Count("patch namespaces") + w.kube.Count("patch nodes")
	}
	patches := count()
	again := w.start(withNodes())
	again.settled(systemNamespaces + 3)
	if got := w.writes()[before:]; len(got) > 0 {
		t.Errorf("a restart wrote to the cloud: %v", got)
	}
	if got := count(); got != patches {
		t.Errorf("a restart wrote %d times to Kubernetes", got-patches)
	}
}
