// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/kuryr/raven/test/e2e/stack"
	"github.com/kuryr/raven/test/harness"
)

// ravenNetwork is Raven with its driver node, and its daemon on each node.
type ravenNetwork struct{ *site }

// The range of the pods' subnets, which kube-proxy on nodes is told, too; and the network of the control plane's host.
const (
	nodePods     = "10.244.0.0/16"
	controlRange = "10.78.0.0/24"
	controlLeg   = "10.78.0.5"
)

func (r *ravenNetwork) prepare(t *testing.T) {
	t.Helper()
	r.site = proxying(t, "nodes", harness.Settings{}.Set("raven", "drivers", "namespace,pod,kubeproxy,node").
		Set("namespace_subnet", "cluster_subnet_pool", nodePods).Set("node_network", "node_selector", "type!=kwok"))
}

func (r *ravenNetwork) connect(t *testing.T, nodes []stack.Node) {
	t.Helper()
	r.controlLeg(t)
	if err := world.stack.PublishAPIServer(t.Context(), controlLeg); err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		masqueraded(t, node)
		r.daemon(t, node)
	}
}

// masqueraded sets up a node as docs/nodes.md says for hostPorts: what leaves by the node's own port has its address.
// It goes with the node.
func masqueraded(t *testing.T, node stack.Node) {
	t.Helper()
	const table = "table ip hostports { chain postrouting { type nat hook postrouting priority srcnat; " +
		`oifname "raven-node0" masquerade; }; }`
	if _, err := sh(t.Context(), append(node.Enter(), "nft", table)...); err != nil {
		t.Fatal(err)
	}
}

// controlLeg gives the control plane's host a port behind the cluster's router. By it the API server reaches pods, and
// pods reach the API server. It goes with the test.
func (r *ravenNetwork) controlLeg(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	router := r.router(t)
	network, err := world.cloud.create(ctx, "networks", thing{"name": "e2e-control-plane"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := world.cloud.remove(context.Background(), "networks", network.str("id")); err != nil {
			t.Error(err)
		}
	})
	subnet, err := world.cloud.create(ctx, "subnets", thing{
		"network_id": network.str("id"), "cidr": controlRange, "ip_version": 4, "enable_dhcp": false,
	})
	if err != nil {
		t.Fatal(err)
	}
	interfaces := func(ctx context.Context, verb string) error {
		_, err := world.cloud.call(ctx, http.MethodPut, "routers/"+router+"/"+verb+"_router_interface",
			thing{"subnet_id": subnet.str("id")})
		return err
	}
	if err := interfaces(ctx, "add"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := interfaces(context.Background(), "remove"); err != nil {
			t.Error(err)
		}
	})
	port, err := world.cloud.create(ctx, "ports", thing{
		"network_id": network.str("id"), "device_owner": "e2e:control-plane", "port_security_enabled": false,
		"fixed_ips": []thing{{"subnet_id": subnet.str("id"), "ip_address": controlLeg}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := world.cloud.remove(context.Background(), "ports", port.str("id")); err != nil {
			t.Error(err)
		}
	})
	net := world.stack.Network()
	if err := world.admin.update(ctx, "ports", port.str("id"), thing{"binding:host_id": net.Chassis}); err != nil {
		t.Fatal(err)
	}
	plugControl(t, port, fmt.Sprint(network["mtu"]), subnet.str("gateway_ip"))
}

// router is the id of the cluster's router.
func (r *ravenNetwork) router(t *testing.T) string {
	t.Helper()
	id := ""
	await(t, "Raven's router", func(ctx context.Context) string {
		all, err := world.cloud.ours(ctx, r.cluster)
		if err != nil {
			return err.Error()
		}
		for _, one := range all {
			if one.str("kind") == "routers" {
				id = one.str("id")
				return ""
			}
		}
		return "there is none"
	})
	return id
}

// plugControl plugs the control plane's host into its port, and routes pods that way.
func plugControl(t *testing.T, port thing, mtu, gateway string) {
	t.Helper()
	const outer, inner = "leg-control", "leg"
	net := world.stack.Network()
	t.Cleanup(func() {
		_, _ = vsctl(context.Background(), "--if-exists", "del-port", outer)
		if _, err := sh(context.Background(), inSwitch("ip", "link", "del", outer)...); err != nil {
			t.Error(err)
		}
	})
	in := func(args ...string) []string { return append([]string{"ip", "-n", net.Control}, args...) }
	offload := []string{"tx", "off", "rx", "off", "tso", "off", "gso", "off", "gro", "off"}
	for _, step := range [][]string{
		inSwitch("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "address", port.str("mac_address"),
			"mtu", mtu, "netns", net.Control),
		inSwitch("ip", "link", "set", outer, "up"),
		in("addr", "add", controlLeg+"/24", "dev", inner), in("link", "set", inner, "up"),
		in("route", "add", nodePods, "via", gateway, "src", controlLeg),
		append([]string{"nsenter", "--net=/run/netns/" + net.Control, "ethtool", "-K", inner}, offload...),
		append([]string{"nsenter", "--net=/run/netns/" + net.Namespace, "ethtool", "-K", outer}, offload...),
	} {
		if _, err := sh(t.Context(), step...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := vsctl(t.Context(), "add-port", world.bridge, outer, "--", "set", "Interface", outer,
		"external_ids:iface-id="+port.str("id"), "external_ids:attached-mac="+port.str("mac_address")); err != nil {
		t.Fatal(err)
	}
	await(t, "the control plane's port to be plugged", func(ctx context.Context) string {
		up, err := nbctl(ctx, "--bare", "--columns=up", "find", "logical_switch_port", "name="+port.str("id"))
		if err != nil || up != "true" {
			return fmt.Sprintf("up is %q (%v)", up, err)
		}
		return ""
	})
}

// daemon runs `raven node run` on a node until the test ends.
func (r *ravenNetwork) daemon(t *testing.T, node stack.Node) {
	t.Helper()
	dir := filepath.Join(world.scratch, node.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	conf := harness.Settings{}.
		Set("kubernetes", "kubeconfig", node.Kubeconfig).
		Set("health_server", "port", 17082).Set("prometheus_exporter", "port", 0).
		Set("raven", "runtime_dir", dir).
		Set("node", "node_name", node.Name).Set("node", "ovs_connection", node.OVS).Set("node", "bridge", node.Bridge).
		Set("node", "socket", filepath.Join(dir, "cni.sock")).
		Set("node", "cni_conf_dir", node.CNIConf).Set("node", "cni_bin_dir", node.CNIBin).
		Set("node", "cni_chain", `[{"type":"portmap","backend":"nftables","capabilities":{"portMappings":true}}]`)
	path := filepath.Join(dir, "raven-node.conf")
	if err := os.WriteFile(path, []byte(conf.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(artifacts(t), "raven-node-"+node.Name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the process has its own
	enter := append(node.Enter(), filepath.Join(world.bin, "raven"), "node", "run", "--config-file", path)
	cmd := exec.CommandContext(context.Background(), enter[0], enter[1:]...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + dir, world.stack.Mark()}
	cmd.Stdout, cmd.Stderr = log, log
	process, err := harness.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !process.Running() {
			t.Errorf("raven node on %s has ended (%v): %s", node.Name, process.Err, tail(log.Name()))
			return
		}
		_ = cmd.Process.Signal(syscall.SIGTERM) // it runs
		<-process.Ended
	})
}
