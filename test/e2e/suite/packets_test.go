// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import "testing"

// TestPackets sends packets: network namespaces of this machine stand for pods and are bound to their ports from the
// annotations alone. Pods reach each other within a namespace, and across namespaces through the router; a security
// group that a label names closes a pod and opens it again.
func TestPackets(t *testing.T) {
	needPackets(t)
	closed := makeCloud(t, "security-groups", thing{"name": "e2e-closed"})
	s := standing(t)
	createNamespace(t, "pk-a")
	createNamespace(t, "pk-b")
	createPod(t, "pk-a", "a1")
	createPod(t, "pk-a", "a2")
	createPod(t, "pk-b", "b1")
	s.settled(t)
	a1, a2, b1 := plug(t, "pk-a", "a1"), plug(t, "pk-a", "a2"), plug(t, "pk-b", "b1")
	a1.reaches(t, a2)
	a2.reaches(t, a1)
	a1.reaches(t, b1)
	b1.reaches(t, a2)

	t.Log("a label closes a pod")
	patchPod(t, "pk-a", "a2", `{"metadata":{"labels":{"`+groupLabel+`":"`+closed.str("id")+`"}}}`)
	a1.cannotReach(t, a2)
	b1.cannotReach(t, a2)
	a2.reaches(t, b1)

	t.Log("a rule opens it")
	if _, err := world.cloud.create(t.Context(), "security-group-rules", thing{
		"security_group_id": closed.str("id"), "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp",
		"port_range_min": 8080, "port_range_max": 8080, "remote_ip_prefix": a1.addresses[0] + "/32",
	}); err != nil {
		t.Fatal(err)
	}
	a1.reaches(t, a2)
	b1.cannotReach(t, a2)

	t.Log("without the label it is as open as its namespace")
	patchPod(t, "pk-a", "a2", `{"metadata":{"labels":{"`+groupLabel+`":null}}}`)
	b1.reaches(t, a2)
	s.settled(t)
}
