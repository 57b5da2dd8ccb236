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
type ravenNetwork struct {
	*site
	conf    harness.Settings // beside what all have
	chained string           // plugins after portmap in cni_chain, each with a comma before it
	daemons []*nodeDaemon    // one on each node, in their order
}

// The range of the pods' subnets, which kube-proxy on nodes is told, too; and the network of the control plane's host.
const (
	nodePods     = "10.244.0.0/16"
	controlRange = "10.78.0.0/24"
	controlLeg   = "10.78.0.5"
)

func (r *ravenNetwork) prepare(t *testing.T) {
	t.Helper()
	r.site = proxying(t, "nodes", harness.Settings{}.Set("raven", "drivers", "namespace,pod,kubeproxy,node").
		Set("namespace_subnet", "cluster_subnet_pool", nodePods).Set("node_network", "node_selector", "type!=kwok").
		With(r.conf))
}

func (r *ravenNetwork) connect(t *testing.T, nodes []stack.Node) {
	t.Helper()
	r.controlLeg(t)
	if err := world.stack.PublishAPIServer(t.Context(), controlLeg); err != nil {
		t.Fatal(err)
	}
	for i, node := range nodes {
		r.daemon(t, node, i == 0)
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

// nodeDaemon is `raven node run` on a node.
type nodeDaemon struct {
	node      stack.Node
	conf, log string           // paths
	process   *harness.Process // nil before its first start
}

// nodeMetrics is where a node's daemon shows its metrics, on the node.
const nodeMetrics = "127.0.0.1:17083"

// daemon runs `raven node run` on a node until the test ends: with the service account of the manifests, or with the
// kubelet's own credential.
func (r *ravenNetwork) daemon(t *testing.T, node stack.Node, account bool) {
	t.Helper()
	dir := filepath.Join(world.scratch, node.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	kubeconfig := node.Kubeconfig
	if account {
		kubeconfig = accountKubeconfig(t, node, dir)
	}
	conf := harness.Settings{}.
		Set("kubernetes", "kubeconfig", kubeconfig).
		Set("health_server", "port", 17082).Set("prometheus_exporter", "port", 17083).
		Set("raven", "runtime_dir", dir).
		Set("node", "node_name", node.Name).Set("node", "ovs_connection", node.OVS).Set("node", "bridge", node.Bridge).
		Set("node", "socket", filepath.Join(dir, "cni.sock")).
		Set("node", "cni_conf_dir", node.CNIConf).Set("node", "cni_bin_dir", node.CNIBin).
		Set("node", "cni_chain", `[{"type":"portmap","backend":"nftables","capabilities":{"portMappings":true}}`+r.chained+`]`)
	d := &nodeDaemon{
		node: node, conf: filepath.Join(dir, "raven-node.conf"),
		log: filepath.Join(artifacts(t), "raven-node-"+node.Name+".log"),
	}
	if err := os.WriteFile(d.conf, []byte(conf.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	d.start(t)
	t.Cleanup(func() {
		if !d.process.Running() {
			t.Errorf("raven node on %s has ended (%v): %s", node.Name, d.process.Err, tail(d.log))
			return
		}
		_ = d.process.Cmd.Process.Signal(syscall.SIGTERM) // it runs
		<-d.process.Ended
	})
	r.daemons = append(r.daemons, d)
}

// start runs the daemon, and appends what it says to its log.
func (d *nodeDaemon) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the process has its own
	enter := append(d.node.Enter(), filepath.Join(world.bin, "raven"), "node", "run", "--config-file", d.conf)
	cmd := exec.CommandContext(context.Background(), enter[0], enter[1:]...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + filepath.Dir(d.conf), world.stack.Mark()}
	cmd.Stdout, cmd.Stderr = log, log
	if d.process, err = harness.Start(cmd); err != nil {
		t.Fatal(err)
	}
}

// kill ends the daemon as kill -9 does.
func (d *nodeDaemon) kill(t *testing.T) {
	t.Helper()
	if !d.process.Running() {
		t.Fatalf("raven node on %s has ended by itself (%v): %s", d.node.Name, d.process.Err, tail(d.log))
	}
	d.process.Kill()
}
