// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuryr/raven/test/e2e/stack"
)

// anotherNode takes the second node out of the cluster: its port goes. It comes back as another Node object, which has
// a port of its own, by which the host reaches pods.
func (r *realPods) anotherNode(t *testing.T) {
	const second = 1
	node := r.nodes[second]
	deletePod(t, r.namespace, r.pods[second])
	await(t, "pod "+r.pods[second]+" to go", func(ctx context.Context) string {
		if _, _, err := getPod(ctx, r.namespace, r.pods[second]); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("it is there (%v)", err)
		}
		return ""
	})
	old := nodePort(t, node)
	kubelet := stack.On(stack.Kubelet, node)
	killed(t, kubelet) // or it would write on the Node that it has lost
	nodes := world.kube.Resource(resource("nodes"))
	if err := nodes.Delete(t.Context(), node.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the port of the deleted Node to go", func(ctx context.Context) string {
		ports, err := world.cloud.list(ctx, "ports", "id="+old.str("id"))
		if err != nil || len(ports) > 0 {
			return fmt.Sprintf("it is there: %v (%v)", ports, err)
		}
		return ""
	})
	started(t, kubelet)
	await(t, "node "+node.Name+" to be ready", func(ctx context.Context) string { return nodeReadiness(ctx, node.Name) })
	r.create(t, second)
	r.addresses[second] = r.ready(t, second)
	now := nodePort(t, node)
	if now.str("id") == old.str("id") || now.str("device_id") == old.str("device_id") {
		t.Errorf("the port of the new Node is %v, that of the old one was %v", now, old)
	}
	r.across(t)
	r.hosts(t)
}

// anotherChassisName gives the chassis of the second node another name and the first one again. The ports of the node
// and of its pods are bound there each time, and packets pass.
func (r *realPods) anotherChassisName(t *testing.T) {
	const second = 1
	node := r.nodes[second]
	other := nodePort(t, r.nodes[0]).str("binding:host_id")
	for _, name := range []string{"renamed.chassis", node.Chassis} {
		_, err := sh(t.Context(), "ovs-vsctl", "--timeout=20", "--db="+node.OVS, "set", "Open_vSwitch", ".",
			"external_ids:hostname="+name)
		if err != nil {
			t.Fatal(err)
		}
		_, pod, err := getPod(t.Context(), r.namespace, r.pods[second])
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{nodePort(t, node).str("id"), pod.str("id")} {
			await(t, "port "+id+" to be bound on "+name, func(ctx context.Context) string {
				ports, err := world.admin.list(ctx, "ports", "id="+id)
				if err != nil || len(ports) != 1 {
					return fmt.Sprintf("there are %d of them (%v)", len(ports), err)
				}
				if port := ports[0]; port.str("binding:host_id") != name || port.str("binding:vif_type") != "ovs" {
					return fmt.Sprintf("it is bound on %s as %s", port.str("binding:host_id"), port.str("binding:vif_type"))
				}
				return ""
			})
		}
		r.across(t)
		r.hosts(t)
	}
	if now := nodePort(t, r.nodes[0]).str("binding:host_id"); now != other {
		t.Errorf("the port of %s is bound on %s, and was on %s", r.nodes[0].Name, now, other)
	}
}

// nodePort waits until a Node has its port in Neutron, and returns that.
func nodePort(t *testing.T, node stack.Node) thing {
	t.Helper()
	var port thing
	await(t, "the port of "+node.Name, func(ctx context.Context) string {
		object, err := world.kube.Resource(resource("nodes")).Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		ports, err := world.admin.list(ctx, "ports", "device_id="+string(object.GetUID()))
		if err != nil || len(ports) != 1 {
			return fmt.Sprintf("it has %d (%v)", len(ports), err)
		}
		port = ports[0]
		return ""
	})
	return port
}
