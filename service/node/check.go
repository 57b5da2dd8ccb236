// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	cniversion "github.com/containernetworking/cni/pkg/version"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuryr/raven/drivers/contract"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/node/cniapi"
	"github.com/kuryr/raven/service/openvswitch"
	"github.com/kuryr/raven/service/ovn/southbound"
)

// Finding is one thing that a node needs, as `raven node check` found it.
type Finding struct {
	What  string
	Found string // where nothing lacks
	Lack  string // what lacks, and what to do; empty: nothing
	// Advice says that pods run without it, too.
	Advice bool
}

// checkTimeout bounds each question of Check.
const checkTimeout = 5 * time.Second

// tunnelOverhead is what Geneve adds to a packet over IPv4 in OVN: the headers of Ethernet (inner), IP, UDP and Geneve,
// and OVN's option.
const tunnelOverhead = 58

// moreOverIPv6 is what it adds over IPv6 beside that, whose header is longer.
const moreOverIPv6 = 20

// Check looks at what a node needs. Nothing is changed. The error says that the configuration cannot be used at all.
func Check(ctx context.Context, values *config.Values, version string) ([]Finding, error) {
	c, err := FromConfig(values)
	if err != nil {
		return nil, err
	}
	c.Logger = slog.New(slog.DiscardHandler)
	findings, view := c.checkSwitch(ctx)
	mtu, more := c.checkCluster(ctx, values, version)
	findings = append(findings, more...)
	if view != nil {
		findings = append(findings, c.checkChassis(view, mtu)...)
		findings = append(findings, c.checkSouthbound(ctx, view))
	}
	return append(findings, c.checkKernel(view), checkForwarding(), c.checkRoot(), c.checkPlugin(), c.checkChain(ctx),
		c.checkDaemon(ctx)), nil
}

func found(what, format string, args ...any) Finding {
	return Finding{What: what, Found: fmt.Sprintf(format, args...)}
}

func lack(what, format string, args ...any) Finding {
	return Finding{What: what, Lack: fmt.Sprintf(format, args...)}
}

// checkSwitch looks at Open vSwitch; the view is nil where its database cannot be asked.
func (c Config) checkSwitch(ctx context.Context) ([]Finding, *openvswitch.View) {
	const what = "Open vSwitch"
	ovs, err := openvswitch.New(openvswitch.Config{Endpoint: c.OVS, Bridge: c.Bridge, Logger: c.Logger})
	if err != nil {
		return []Finding{lack(what, "[node] ovs_connection: %v", err)}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	running := make(chan struct{})
	go func() {
		defer close(running)
		_ = ovs.Run(ctx) // its end is asked for below
	}()
	defer func() {
		cancel()
		<-running
	}()
	view, err := ovs.Until(ctx, func(*openvswitch.View) error { return nil })
	if err != nil {
		return []Finding{lack(what, "its database does not answer at %s ([node] ovs_connection): %v", c.OVS, err)}, nil
	}
	findings := []Finding{found(what, "version %s", view.Chassis.Version)}
	if view.BridgeUUID == "" {
		return append(findings, lack("bridge", "there is no bridge %s ([node] bridge): ovn-controller makes it",
			c.Bridge)), view
	}
	datapath := "in the kernel"
	if view.Userspace() {
		datapath = "in userspace"
	}
	return append(findings, found("bridge", "%s, its datapath is %s, %d interfaces", c.Bridge, datapath,
		len(view.Interfaces))), view
}

// checkChassis looks at what makes the machine a chassis of OVN.
func (c Config) checkChassis(view *openvswitch.View, mtu int) []Finding {
	chassis := view.Chassis
	value := func(what, key, value, why string) Finding {
		if value == "" {
			return lack(what, "external_ids of Open vSwitch have no %s, %s: ovs-vsctl set Open_vSwitch . external_ids:%s=…", key,
				why, key)
		}
		return found(what, "%s", value)
	}
	return []Finding{
		value("chassis id", "system-id", chassis.ID, "which tells chassis apart"),
		value("chassis name", "hostname", chassis.Hostname, "to which ports are bound (binding:host_id)"),
		value("ovn-remote", "ovn-remote", chassis.Remote, "OVN's southbound database"),
		value("tunnels", "ovn-encap-type", chassis.EncapType, "usually geneve"),
		checkEncap(chassis.EncapIP, mtu),
	}
}

// checkEncap looks at the addresses of the tunnels (OVN takes a list of them), and whether the pods' packets fit into
// them.
func checkEncap(list string, mtu int) Finding {
	const what = "tunnel address"
	var on []string
	for address := range strings.SplitSeq(list, ",") {
		ip, err := netip.ParseAddr(strings.TrimSpace(address))
		if err != nil {
			return lack(what, "external_ids:ovn-encap-ip of Open vSwitch is %q, in which %q is no address", list, address)
		}
		link, err := linkOf(ip)
		if err != nil {
			return lack(what, "%v", err)
		}
		need := mtu + tunnelOverhead
		if ip.Is6() {
			need += moreOverIPv6
		}
		if mtu > 0 && link.MTU < need {
			return lack(what, "%s is on %s, whose MTU is %d: networks with MTU %d need %d", ip, link.Name, link.MTU, mtu, need)
		}
		on = append(on, fmt.Sprintf("%s on %s, MTU %d", ip, link.Name, link.MTU))
	}
	return found(what, "%s", strings.Join(on, "; "))
}

// linkOf returns the interface of this machine that has an address.
func linkOf(ip netip.Addr) (net.Interface, error) {
	links, err := net.Interfaces()
	if err != nil {
		return net.Interface{}, fmt.Errorf("the interfaces of this machine cannot be listed: %w", err)
	}
	for _, link := range links {
		addresses, err := link.Addrs()
		if err != nil {
			continue
		}
		for _, one := range addresses {
			prefix, known := one.(*net.IPNet)
			if own, there := prefixOf(prefix); known && there && own.Addr() == ip {
				return link, nil
			}
		}
	}
	return net.Interface{}, fmt.Errorf("no interface of this machine has the address %s (external_ids:ovn-encap-ip)", ip)
}

func (c Config) checkSouthbound(ctx context.Context, view *openvswitch.View) Finding {
	const what = "southbound database"
	s := &south{}
	defer s.close()
	_, err := s.clientOf(view.Chassis).Binding(ctx, "raven-node-check")
	if err == nil || errors.Is(err, southbound.ErrUnknownPort) {
		return found(what, "it answers: the owners of ports are checked")
	}
	f := lack(what, "%v: the owners of ports are not checked on this node ([node] southbound_check = %s)", err,
		c.SouthboundCheck)
	f.Advice = c.SouthboundCheck != checkAlways
	return f
}

// checkCluster looks at the API server, and at what Raven has written on the Node; it returns the MTU of the node's
// network, if that is known.
func (c Config) checkCluster(ctx context.Context, values *config.Values, version string) (mtu int, _ []Finding) {
	const what = "API server"
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	all, err := clients(values, version)
	if err != nil {
		return 0, []Finding{lack(what, "%v", err)}
	}
	defer all.Close()
	self, err := all.Dynamic.Resource(nodesGVR()).Get(ctx, c.Name, metav1.GetOptions{})
	if err != nil {
		return 0, []Finding{lack(what, "Node %s ([node] node_name) cannot be read: %v", c.Name, err)}
	}
	pods, err := all.Dynamic.Resource(podsGVR()).List(ctx, metav1.ListOptions{
		FieldSelector: "spec.nodeName=" + c.Name, Limit: 1,
	})
	if err != nil {
		return 0, []Finding{lack(what, "the pods of node %s cannot be listed: %v", c.Name, err)}
	}
	findings := []Finding{found(what, "Node %s and its pods can be read (%d or more)", c.Name, len(pods.Items))}
	a, err := parseAttachment(self.GetAnnotations())
	var missing *missingError
	switch {
	case errors.As(err, &missing):
		f := lack("node interface", "the Node has no %v: enable Raven's driver node, or the kubelet's probes and host "+
			"processes reach no pod", err)
		f.Advice = true
		findings = append(findings, f)
	case err != nil:
		findings = append(findings, lack("contract", "%v", err))
	default:
		mtu = a.MTU
		findings = append(findings, found("contract", "version %s, port %s of the node", contract.Version, a.Port))
	}
	return mtu, findings
}

// checkKernel looks at what the kernel needs for the bridge's datapath.
func (c Config) checkKernel(view *openvswitch.View) Finding {
	const what = "kernel"
	if view != nil && view.Userspace() {
		if _, err := os.Stat("/dev/net/tun"); err != nil {
			return lack(what, "there is no /dev/net/tun, which the userspace datapath takes: modprobe tun")
		}
		return found(what, "/dev/net/tun is there")
	}
	if _, err := os.Stat("/sys/module/openvswitch"); err != nil {
		return lack(what, "the module openvswitch is not loaded: modprobe openvswitch")
	}
	if _, err := os.Stat("/sys/module/geneve"); err != nil {
		f := lack(what, "the module geneve is not loaded (yet): Open vSwitch loads it for the first tunnel")
		f.Advice = true
		return f
	}
	return found(what, "modules openvswitch and geneve are loaded")
}

// checkForwarding looks at whether the host passes packets on, as it does from NodePorts and hostPorts to pods.
func checkForwarding() Finding {
	const what = "forwarding"
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	if err == nil && strings.TrimSpace(string(text)) != "0" {
		return found(what, "net.ipv4.ip_forward is %s", strings.TrimSpace(string(text)))
	}
	f := lack(what, "net.ipv4.ip_forward is not 1: NodePorts and hostPorts reach no pod")
	f.Advice = true
	return f
}

func (c Config) checkRoot() Finding {
	if os.Geteuid() != 0 {
		return lack("privileges", "this is user %d: `raven node run` works as root", os.Geteuid())
	}
	return found("privileges", "root")
}

func (c Config) checkPlugin() Finding {
	const what = "plugin"
	if c.BinDir == "" {
		return found(what, "installed by others ([node] cni_bin_dir is empty)")
	}
	if info, err := os.Stat(c.Plugin); err != nil || info.Mode()&0o111 == 0 {
		return lack(what, "[node] cni_plugin = %s is no program", c.Plugin)
	}
	return found(what, "%s, to be installed in %s", c.Plugin, c.BinDir)
}

// checkChain looks for the programs of the plugins that are called beside raven-cni, and asks those after it for the
// versions of the CNI specification that they know.
func (c Config) checkChain(ctx context.Context) Finding {
	const what = "other plugins"
	if c.BinDir == "" {
		return found(what, "not looked for ([node] cni_bin_dir is empty)")
	}
	chain, err := c.chain()
	if err != nil {
		return lack(what, "%v", err)
	}
	chained := make([]string, 0, len(chain))
	for _, plugin := range chain {
		var named struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(plugin, &named); err != nil {
			return lack(what, "[node] cni_chain: %v", err)
		}
		chained = append(chained, named.Type)
	}
	var absent []string
	all := append([]string{"loopback"}, chained...)
	for _, name := range all {
		if _, err := os.Stat(c.pluginPath(name)); err != nil {
			absent = append(absent, name)
		}
	}
	if len(absent) > 0 {
		return lack(what, "%s has no %s: install the CNI plugins there, or set [node] cni_bin_dir to the folder that the "+
			"container runtime takes plugins from (those of Debian's containernetworking-plugins are in /usr/lib/cni), or "+
			"change [node] cni_chain", c.BinDir, strings.Join(absent, ", no "))
	}
	for _, name := range chained {
		if err := c.checkVersions(ctx, name); err != nil {
			return lack(what, "%v", err)
		}
	}
	return found(what, "%s", strings.Join(all, ", "))
}

func (c Config) pluginPath(name string) string { return filepath.Join(c.BinDir, filepath.Base(name)) }

// checkVersions says which of cni_versions a plugin does not know: a runtime that takes that version starts no pod.
func (c Config) checkVersions(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	plugin := exec.CommandContext(ctx, c.pluginPath(name)) //nolint:gosec // the runtime runs it, too
	// Plugins made with an old library ask for all of them.
	plugin.Env = []string{"CNI_COMMAND=VERSION", "CNI_NETNS=none", "CNI_IFNAME=none", "CNI_PATH=" + c.BinDir}
	plugin.Stdin = strings.NewReader(`{"cniVersion":"` + c.Versions[0] + `"}`)
	plugin.WaitDelay = time.Second
	answer, err := plugin.Output()
	var info cniversion.PluginInfo
	if err == nil {
		info, err = (&cniversion.PluginDecoder{}).Decode(answer)
	}
	if err != nil {
		return fmt.Errorf("%s does not say which versions of the CNI specification it knows: %w", c.pluginPath(name), err)
	}
	for _, version := range c.Versions {
		if known := info.SupportedVersions(); !slices.Contains(known, version) {
			return fmt.Errorf("%s knows versions %s of the CNI specification, and not %s of [node] cni_versions: install a "+
				"newer one, or take that version out", c.pluginPath(name), strings.Join(known, ", "), version)
		}
	}
	return nil
}

// checkDaemon asks the daemon itself.
func (c Config) checkDaemon(ctx context.Context) Finding {
	const what = "daemon"
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if _, err := cniapi.Call(ctx, c.Socket, cniapi.Request{Command: cniapi.Status}); err != nil {
		f := lack(what, "%v", err)
		f.Advice = true
		return f
	}
	return found(what, "it answers at %s, and is ready", c.Socket)
}
