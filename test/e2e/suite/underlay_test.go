// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/kuryr/raven/test/harness"
)

// underlay reaches a program on the second node's own network from pods, which is seen as coming from an address there:
// that of the router's gateway, or, where it is empty, each pod's own.
func (r *realPods) underlay(t *testing.T, source string) {
	node := r.nodes[1]
	const name, port = "underlay", "18099"
	createPod(t, r.namespace, name, func(spec, metadata map[string]any) {
		webPod(name, node.Name)(spec, metadata)
		metadata["labels"] = map[string]any{"app": name}
		spec["hostNetwork"] = true
		container := spec["containers"].([]any)[0].(map[string]any)
		container["args"] = []any{"netexec", "--http-port=" + port, "--udp-port=-1"}
	})
	await(t, "pod "+name+" to be ready", func(ctx context.Context) string { return podReadiness(ctx, r.namespace, name) })
	for i, address := range r.addresses {
		want := source
		if want == "" {
			want = address
		}
		r.answers(t, i, curl("http://"+net.JoinHostPort(node.Address, port)+"/clientip"), want+":")
	}
	deletePod(t, r.namespace, name)
}

// behindGateway shows that the underlay sees pods as the router's gateway.
func (r *realPods) behindGateway(t *testing.T) { r.underlay(t, r.network.gateway(t)) }

// gateway is the address of the cluster's router in the external network.
func (r *ravenNetwork) gateway(t *testing.T) string {
	t.Helper()
	router, err := world.admin.call(t.Context(), http.MethodGet, "routers/"+r.router(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	router, _ = router["router"].(map[string]any)
	info, _ := router["external_gateway_info"].(map[string]any)
	fixed := thing(info).things("external_fixed_ips")
	if len(fixed) == 0 {
		t.Fatalf("the router's gateway is %v", info)
	}
	return fixed[0].str("ip_address")
}

// TestNodesWithoutSNAT has pods keep their addresses on the underlay: nodes see them, and answer by their own ports,
// which have no port security.
func TestNodesWithoutSNAT(t *testing.T) {
	network := &ravenNetwork{conf: harness.Settings{}.Set("node_network", "port_security", "false")}
	nodes := realNodes(t, network)
	r := newRealPods(t, network, nodes)
	r.behindGateway(t)
	router, err := world.admin.call(t.Context(), http.MethodGet, "routers/"+network.router(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	router, _ = router["router"].(map[string]any)
	info, _ := router["external_gateway_info"].(map[string]any)
	if err := world.admin.update(t.Context(), "routers", network.router(t), thing{
		"external_gateway_info": thing{"network_id": info["network_id"], "enable_snat": false},
	}); err != nil {
		t.Fatal(err)
	}
	r.underlay(t, "")
	r.apiServer(t)
}
