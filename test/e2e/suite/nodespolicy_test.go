// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"net"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuryr/raven/test/harness"
)

// policies is the configuration of pods on real nodes with NetworkPolicies.
var policies = harness.Settings{}.Set("raven", "drivers", "namespace,pod,kubeproxy,node,networkpolicy")

// TestNodesNetworkPolicy isolates pods on real nodes: the kubelet's probes and the programs of their own node reach
// them, neither another node does nor who comes by a NodePort or a hostPort of their own node. A pod reaches itself.
func TestNodesNetworkPolicy(t *testing.T) {
	network := &ravenNetwork{conf: policies}
	nodes := realNodes(t, network)
	before := traces(t, nodes)
	r := newRealPods(t, network, nodes)
	service, err := world.kube.Resource(resource("services")).Namespace(r.namespace).Get(t.Context(), "web",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ports, _, _ := unstructured.NestedSlice(service.Object, "spec", "ports")
	nodePort := fmt.Sprint(ports[0].(map[string]any)["nodePort"])
	control := world.stack.Network().Control
	page := func(address, port string) string { return "http://" + net.JoinHostPort(address, port) + "/hostname" }
	r.across(t)
	fromHost(t, control, page(nodes[0].Address, hostPort), r.pods[0])
	policyOf(t, r.namespace, "deny", `{podSelector: {}, policyTypes: [Ingress]}`)
	for i, node := range nodes {
		other := nodes[1-i]
		fromHost(t, node.Namespace, page(r.addresses[i], webPort), r.pods[i])
		for _, refused := range []struct{ space, url string }{
			{other.Namespace, page(r.addresses[i], webPort)},
			{control, page(r.addresses[i], webPort)},
			{control, page(node.Address, hostPort)},
			{control, page(node.Address, nodePort)},
			{node.Namespace, page(r.vip, "80")},
		} {
			await(t, refused.url+" not to answer in "+refused.space, func(ctx context.Context) string {
				if askFrom(ctx, refused.space, refused.url, r.pods[i]) == "" {
					return "it answers"
				}
				return ""
			})
		}
	}
	t.Log("an isolated pod reaches itself by its Service, and nobody else does")
	only := r.service(t, "only", thing{"name": r.pods[0]})
	r.answers(t, 0, curl("http://"+only+"/hostname"), r.pods[0])
	r.refused(t, 1, curl("http://"+only+"/hostname"))
	t.Log("a pod that is isolated from its first moment on passes its probes")
	deletePod(t, r.namespace, r.pods[0])
	await(t, r.pods[0]+" to be gone", func(ctx context.Context) string {
		if _, _, err := getPod(ctx, r.namespace, r.pods[0]); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("it is there (%v)", err)
		}
		return ""
	})
	r.create(t, 0)
	r.addresses[0] = r.ready(t, 0)
	fromHost(t, nodes[0].Namespace, page(r.addresses[0], webPort), r.pods[0])
	r.ready(t, 1)
	if err := networkPoliciesOf(r.namespace).Delete(t.Context(), "deny", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.across(t)
	fromHost(t, control, page(nodes[0].Address, hostPort), "web-1")
	deleteNamespace(t, r.namespace)
	gone(t, r.namespace)
	asBefore(t, nodes, before)
}
