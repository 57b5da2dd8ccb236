// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/kuryr/raven/test/harness"
)

// dualStack is the configuration of pods with an address of each IP version.
var dualStack = harness.Settings{}.Set("namespace_subnet", "ip_families", "dual").
	Set("namespace_subnet", "service_cidr", "10.96.0.0/16,fd00:10:96::/112")

// TestNodesDualStack gives pods and nodes on real nodes an address of each IP version: pods reach each other across
// nodes by both, with packets of the full MTU, and nodes reach pods.
func TestNodesDualStack(t *testing.T) {
	network := &ravenNetwork{conf: dualStack}
	nodes := realNodes(t, network)
	before := traces(t, nodes)
	r := newRealPods(t, network, nodes)
	six := make([]string, len(r.pods))
	for i := range r.pods {
		six[i] = r.six(t, i)
	}
	for from, to := range []int{1, 0} {
		r.answers(t, from, curl("http://"+net.JoinHostPort(six[to], webPort)+"/hostname"), r.pods[to])
		const headers = 48 // of IPv6 and ICMPv6
		r.answers(t, from, fmt.Sprintf("ping -c 1 -W 2 -M do -s %d %s", r.mtu-headers, six[to]), " 0% packet loss")
		for _, node := range nodes {
			fromHost(t, node.Namespace, "http://"+net.JoinHostPort(six[to], webPort)+"/hostname", r.pods[to])
		}
	}
	r.across(t)
	r.services(t)
	deleteNamespace(t, r.namespace)
	gone(t, r.namespace)
	asBefore(t, nodes, before)
}

// six is the IPv6 address of a pod's port, which the pod must have, beside the IPv4 address that its status tells.
func (r *realPods) six(t *testing.T, pod int) string {
	t.Helper()
	_, port, err := getPod(t.Context(), r.namespace, r.pods[pod])
	if err != nil {
		t.Fatal(err)
	}
	inside := r.run(t, pod, "ip -o addr show dev eth0 scope global")
	six := ""
	for _, text := range port.addresses() {
		address, err := netip.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(inside, " "+text+"/") {
			t.Errorf("pod %s has not %s inside: %s", r.pods[pod], text, inside)
		}
		if address.Is6() {
			six = text
		}
	}
	if six == "" || strings.Contains(inside, "tentative") {
		t.Fatalf("the port of pod %s has the addresses %v, and the pod %s", r.pods[pod], port.addresses(), inside)
	}
	return six
}
