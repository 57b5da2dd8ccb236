// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuryr/raven/test/harness"
)

// TestKubeProxyDualStack sends packets to a Service of both IP versions that OVN itself serves, and to one that
// limits its clients, where the endpoints' security group keeps the limits.
func TestKubeProxyDualStack(t *testing.T) {
	s := proxying(t, "proxydual", harness.Settings{}.Set("namespace_subnet", "ip_families", "dual").
		Set("namespace_subnet", "service_cidr", "10.96.0.0/16,fd00:10:96::/112").
		Set("namespace_subnet", "ingress_cidrs", podRanges).Set("octavia_defaults", "member_sg_rules", true).
		Set("octavia_defaults", "literal_external_ips", true))
	createNamespace(t, "kd-a")
	createNamespace(t, "kd-b")
	spec := bothProtocols()
	spec["ipFamilyPolicy"] = "RequireDualStack"
	createService(t, "kd-a", "web", spec)
	webPods(t, "kd-a", "w1", "w2")
	createPod(t, "kd-a", "client")
	createPod(t, "kd-b", "client")
	endpoints(t, "kd-a", "web", 4) // two addresses of each
	s.settled(t)
	d := &dual{
		site: s, near: plug(t, "kd-a", "client"), far: plug(t, "kd-b", "client"), endpoint: plug(t, "kd-a", "w1"),
		vips: clusterIPs(t, "kd-a", "web"),
	}
	plug(t, "kd-a", "w2")
	if len(d.vips) != 2 {
		t.Fatalf("the Service has the clusterIPs %v", d.vips)
	}
	t.Run("balanced", d.balanced)
	t.Run("affinity", d.affinity)
	t.Run("one", d.one)
	t.Run("refused", d.refused)
	t.Run("literal", d.literal)
	t.Run("kept-ranges", d.ranges)
}

// podRanges are the pools of pods that Raven has by default.
const podRanges = "192.168.0.0/16,fd72:6176:656e::/48"

// dual is a Service with both IP versions, two endpoints and clients.
type dual struct {
	*site
	near, far, endpoint *nic
	vips                []string
}

func clusterIPs(t *testing.T, namespace, name string) []string {
	t.Helper()
	svc, err := serviceObjects(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list, _, _ := unstructured.NestedStringSlice(svc.Object, "spec", "clusterIPs")
	return list
}

// only leaves these of the endpoints ready.
func (d *dual) only(t *testing.T, ready ...string) {
	t.Helper()
	for _, name := range []string{"w1", "w2"} {
		readiness(t, "kd-a", name, slices.Contains(ready, name))
	}
	endpoints(t, "kd-a", "web", 2*len(ready))
	d.settled(t)
}

func (d *dual) each(t *testing.T, clients []*nic, do func(client *nic, protocol, vip string)) {
	t.Helper()
	for _, client := range clients {
		for _, protocol := range []string{"tcp", "udp"} {
			for _, vip := range d.vips {
				do(client, protocol, vip)
			}
		}
	}
}

func (d *dual) balanced(t *testing.T) {
	d.each(t, []*nic{d.near, d.far, d.endpoint}, func(client *nic, protocol, vip string) {
		client.balanced(t, protocol, vip, "kd-a/w1", "kd-a/w2")
	})
}

// affinity keeps clients of both IP versions.
func (d *dual) affinity(t *testing.T) {
	patchService(t, "kd-a", "web", `{"spec":{"sessionAffinity":"ClientIP"}}`)
	d.settled(t)
	d.each(t, []*nic{d.near, d.far}, func(client *nic, protocol, vip string) {
		client.keeps(t, protocol, vip, "kd-a/w1", "kd-a/w2")
	})
	patchService(t, "kd-a", "web", `{"spec":{"sessionAffinity":"None","sessionAffinityConfig":null}}`)
	d.settled(t)
}

// one is a single endpoint: others are seen as themselves, and it reaches itself.
func (d *dual) one(t *testing.T) {
	d.only(t, "w1")
	d.each(t, []*nic{d.near, d.far, d.endpoint}, func(client *nic, protocol, vip string) {
		as := client.seen(t, protocol, vip)
		if client == d.endpoint && as != vip || client != d.endpoint && !slices.Contains(client.addresses, as) {
			t.Errorf("%s calls %s by %s and is seen as %s; its own are %v", client.pod, vip, protocol, as, client.addresses)
		}
	})
}

func (d *dual) refused(t *testing.T) {
	d.only(t)
	d.each(t, []*nic{d.near, d.far}, func(client *nic, protocol, vip string) { client.refused(t, protocol, vip) })
	d.only(t, "w1", "w2")
}

// ranges lets one from outside in, and shuts him out again, also when another Service opens the endpoints' port to him.
func (d *dual) ranges(t *testing.T) {
	out := outside(t)
	limit := func(cidr string) {
		t.Helper()
		patchService(t, "kd-a", "web", fmt.Sprintf(`{"spec":{"type":"LoadBalancer","loadBalancerSourceRanges":[%q]}}`, cidr))
	}
	limit(out.addresses[0] + "/32")
	floating := awaitIngress(t, "kd-a", "web")
	out.balanced(t, "tcp", floating, "kd-a/w1", "kd-a/w2")
	out.balanced(t, "udp", floating, "kd-a/w1", "kd-a/w2")
	d.only(t, "w1")
	d.endpoint.balanced(t, "tcp", d.vips[0], "kd-a/w1")
	d.endpoint.silence(t, "tcp", floating)
	d.only(t, "w1", "w2")
	limit("203.0.113.0/24")
	out.silence(t, "tcp", floating)
	d.far.balanced(t, "tcp", d.vips[0], "kd-a/w1", "kd-a/w2")
	// The rules add up in the one group: the address that is limited is closed altogether then.
	open := bothProtocols()
	open["type"] = "LoadBalancer"
	createService(t, "kd-a", "open", open)
	other := awaitIngress(t, "kd-a", "open")
	out.balanced(t, "tcp", other, "kd-a/w1", "kd-a/w2")
	out.silence(t, "tcp", floating)
	deleteService(t, "kd-a", "open")
	limit(out.addresses[0] + "/32")
	out.balanced(t, "tcp", floating, "kd-a/w1", "kd-a/w2")
	patchService(t, "kd-a", "web", `{"spec":{"type":"ClusterIP","loadBalancerSourceRanges":null}}`)
	d.settled(t)
}
