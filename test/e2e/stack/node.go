// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Node is a real node of the cluster: a kubelet, containerd, kube-proxy, and an Open vSwitch with an ovn-controller
// that is a chassis of its own, in a network namespace and a mount namespace of their own. Nodes do not run until
// NodesUp. What sets up a pod's network on them is the caller's: a CNI configuration in CNIConf.
type Node struct {
	Name       string `json:"name"`        // in Kubernetes
	Namespace  string `json:"namespace"`   // the network namespace
	Mounts     string `json:"mounts"`      // the file of the mount namespace, for nsenter --mount
	UTS        string `json:"uts"`         // the file of the UTS namespace, for nsenter --uts: there it has a hostname
	Address    string `json:"address"`     // its InternalIP, on the underlay
	Address6   string `json:"address6"`    // its second InternalIP, IPv6, on the underlay
	Chassis    string `json:"chassis"`     // the hostname of its chassis, which is not the node's name
	OVS        string `json:"ovs"`         // its Open vSwitch's database, unix:PATH
	Bridge     string `json:"bridge"`      // its integration bridge, userspace datapath
	PodCIDR    string `json:"pod_cidr"`    // the range that the other hosts route to it, for a plugin that needs that
	CNIConf    string `json:"cni_conf"`    // the folder that containerd reads CNI configurations from
	CNIBin     string `json:"cni_bin"`     // a folder for CNI plugins, beside Tools.Programs
	StaticPods string `json:"static_pods"` // the folder of the kubelet's static pods, which need not be there
	// the kubelet's: user system:node:NAME, who reaches the API server from the node
	Kubeconfig string `json:"kubeconfig"`
	Containerd string `json:"containerd"` // the path of containerd's socket
}

// Tools are programs and images that nodes are made of; see machine.Nodes.
type Tools struct {
	Programs string   `json:"programs"` // the folder of containerd, its shim, ctr and CNI plugins
	Kubelet  string   `json:"kubelet"`  // the folder of kubelet and kubectl
	Runc     string   `json:"runc"`     // the program runc
	Images   []string `json:"images"`   // container images, as archives
}

// The names of a node's components end in -NAME.
const (
	Containerd = "containerd"
	Kubelet    = "kubelet"
	KubeProxy  = "kube-proxy"
)

// On names a component of a node: On(Kubelet, node).
func On(component string, node Node) string { return component + "-" + node.Name }

// The underlay, a bridge in the switch's network namespace that nodes and the control plane's host are on, and the
// addresses there of tunnels. The namespaces are the stack's, so that these collide with no one's.
const (
	underlay     = "underlay"
	controlHost  = "10.99.0.1"
	controlHost6 = "fd00:10:99::1"
	tunnelPrefix = "10.88.0."
	podRanges    = "10.244.0.0/16" // of what plugins give that have no Neutron
)

// nodeCount is how many nodes there are.
const nodeCount = 2

// Nodes are the real nodes. They may be down.
func (s *Stack) Nodes() []Node { return slices.Clone(s.state.Nodes) }

// Tools are what nodes are made of.
func (s *Stack) Tools() Tools { return s.state.Tools }

// Enter begins a command that runs in the node's namespaces.
func (n Node) Enter() []string {
	return []string{"nsenter", "--net=/run/netns/" + n.Namespace, "--mount=" + n.Mounts, "--uts=" + n.UTS}
}

// describeNodes says what the nodes are.
func (b *builder) describeNodes() {
	for i := range nodeCount {
		name := "worker-" + strconv.Itoa(i+1)
		at := func(elem ...string) string { return b.path(append([]string{"n", name}, elem...)...) }
		b.state.Nodes = append(b.state.Nodes, Node{
			Name: name, Namespace: b.Net().Prefix + "-" + name, Mounts: at("ns", "mounts"), UTS: at("ns", "uts"),
			Address: fmt.Sprintf("10.99.0.%d", 11+i), Address6: fmt.Sprintf("fd00:10:99::%x", 0x11+i),
			Chassis: name + ".chassis", OVS: "unix:" + at("ovs", "db.sock"), Bridge: b.Net().Bridge,
			PodCIDR: fmt.Sprintf("10.244.%d.0/24", i+1), CNIConf: at("cni", "conf"), CNIBin: at("cni", "bin"),
			StaticPods: at("static"), Kubeconfig: b.path("pki", name+".kubeconfig"), Containerd: at("containerd.sock"),
		})
	}
}

// nodes adds the components of the nodes.
func (b *builder) nodes() {
	for _, n := range b.state.Nodes {
		b.chassis(b.chassisOf(n))
		b.node(n)
	}
}

// chassisOf is the chassis of a node. Its address for tunnels ends as the node's does.
func (s *Stack) chassisOf(n Node) chassis {
	return chassis{
		suffix: "-" + n.Name, space: n.Namespace, dir: s.path("n", n.Name, "ovs"), hostname: n.Chassis, id: "id-" + n.Name,
		tunnels: tunnelPrefix + n.Address[strings.LastIndex(n.Address, ".")+1:], onDemand: true,
	}
}

// nodeFiles is what the templates of a node's files see.
type nodeFiles struct {
	*builder
	Node Node
}

// At is a path below the node's folder.
func (f nodeFiles) At(elem ...string) string {
	return f.path(append([]string{"n", f.Node.Name}, elem...)...)
}

// Config is the path of a file of the node's configuration.
func (f nodeFiles) Config(name string) string { return f.path("etc", f.Node.Name+"-"+name) }

// Cgroup is the control group of the node's pods.
func (f nodeFiles) Cgroup() string { return f.cgroup(f.Node) }

// Programs is the folder of CNI plugins.
func (f nodeFiles) Programs() string { return f.Options.Tools.Programs }

// Runc is the program.
func (f nodeFiles) Runc() string { return f.Options.Tools.Runc }

func (s *Stack) cgroup(n Node) string { return s.state.Network.Prefix + "-" + n.Name }

// node adds the components of a node beside its switch.
func (b *builder) node(n Node) {
	f := nodeFiles{builder: b, Node: n}
	for _, name := range []string{"containerd.toml", "kubelet.yaml", "resolv.conf"} {
		b.writeFor(f, "node/"+name, f.Config(name))
	}
	enter := func(argv ...string) []string { return append(n.Enter(), argv...) }
	ctr := filepath.Join(b.Options.Tools.Programs, "ctr")
	b.onDemand(Component{
		Name: On(Containerd, n), Argv: enter(filepath.Join(b.Options.Tools.Programs, "containerd"), "--config",
			f.Config("containerd.toml")),
		Env:   []string{"PATH=" + b.Options.Tools.Programs + ":/usr/sbin:/usr/bin:/sbin:/bin", nodeMark + n.Name},
		Ready: Probe{Argv: []string{ctr, "--address", n.Containerd, "version"}},
	})
	b.onDemand(Component{
		Name: On(Kubelet, n), After: []string{On(Containerd, n), APIServer},
		Argv: enter(filepath.Join(b.Options.Tools.Kubelet, "kubelet"), "--config="+f.Config("kubelet.yaml"),
			"--kubeconfig="+n.Kubeconfig, "--cert-dir="+f.At("kubelet-pki"), "--hostname-override="+n.Name,
			"--node-ip="+n.Address+","+n.Address6),
		Ready: b.kubeProbe(b.URL().Kubernetes + "/api/v1/nodes/" + n.Name),
	})
	b.onDemand(Component{
		Name: On(KubeProxy, n), After: []string{APIServer},
		Argv: enter(b.ControlPlane, "kube-proxy", "--kubeconfig="+b.path("pki", KubeProxy+".kubeconfig"),
			"--proxy-mode=nftables", "--hostname-override="+n.Name, "--cluster-cidr="+podRanges,
			"--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249",
			"--conntrack-max-per-core=0", "--conntrack-min=0", // the machine's own limits stay
			"--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0"),
		Ready: Probe{Argv: enter("nft", "list", "table", "ip", "kube-proxy"), Text: "chain"},
	})
}

// onDemand adds a component that Up does not start.
func (b *builder) onDemand(c Component) {
	c.Log = b.path("artifacts", "log", c.Name+".log")
	c.OnDemand = true
	b.state.Components = append(b.state.Components, c)
}
