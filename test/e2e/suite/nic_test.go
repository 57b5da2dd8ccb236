// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nic is a network namespace of the machine that stands for a pod: what a CNI plugin makes of the pod's annotations,
// and of nothing else. That of outside stands for a machine on the external network.
type nic struct {
	pod, space, port string // the pod's name, the network namespace, the Neutron port
	addresses        []string
}

// needPackets skips a scenario that sends packets where there is no Open vSwitch to send them through.
func needPackets(t *testing.T) {
	t.Helper()
	if world.ovsDB == "" || world.bridge == "" || world.ovnNB == "" {
		lacks(t,
			"no packets here: neither RAVEN_E2E_STACK nor RAVEN_E2E_OVS_DB, RAVEN_E2E_OVN_NB and RAVEN_E2E_BRIDGE are set")
	}
	if os.Geteuid() != 0 {
		lacks(t, "no packets here: network namespaces need root")
	}
}

// sh runs a tool of the machine.
func sh(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

func vsctl(ctx context.Context, args ...string) (string, error) {
	return sh(ctx, append([]string{"ovs-vsctl", "--timeout=20", "--db=" + world.ovsDB}, args...)...)
}

// nbctl asks OVN.
func nbctl(ctx context.Context, args ...string) (string, error) {
	return sh(ctx, append([]string{"ovn-nbctl", "--timeout=20", "--db=" + world.ovnNB}, args...)...)
}

// plug makes the network namespace of a pod, binds it to the pod's port and lets it answer. All of it goes with the
// test.
func plug(t *testing.T, namespace, name string) *nic {
	t.Helper()
	ctx := t.Context()
	pod, port, err := getPod(ctx, namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := &nic{pod: namespace + "/" + name, port: port.str("id"), addresses: port.addresses()}
	outer := world.prefix + strings.ReplaceAll(n.port, "-", "")[:9]
	n.space = outer
	mtu := fmt.Sprint(document(ns, networkAnnotation)["mtu"])
	in := func(args ...string) []string { return append([]string{"ip", "-n", n.space}, args...) }
	steps := n.link(outer, "address", port.str("mac_address"), "mtu", mtu)
	subnets := []thing{document(pod, subnetAnnotation)}
	if text := pod.GetAnnotations()[subnetsAnnotation]; text != "" {
		subnets = documents(text)
	}
	for _, ip := range port.things("fixed_ips") {
		for _, subnet := range subnets {
			if subnet.str("id") != ip.str("subnet_id") {
				continue
			}
			prefix, err := netip.ParsePrefix(subnet.str("cidr"))
			if err != nil {
				t.Fatalf("the annotated subnet of %s: %v", n.pod, err)
			}
			address := []string{"addr", "add", fmt.Sprintf("%s/%d", ip.str("ip_address"), prefix.Bits()), "dev", "eth0"}
			if prefix.Addr().Is6() {
				address = append(address, "nodad")
			}
			steps = append(steps, in(address...), in("route", "add", "default", "via", subnet.str("gateway_ip")))
		}
	}
	n.make(t, outer, steps)
	if _, err := vsctl(ctx, "add-port", world.bridge, outer, "--", "set", "Interface", outer,
		"external_ids:iface-id="+n.port, "external_ids:attached-mac="+port.str("mac_address")); err != nil {
		t.Fatal(err)
	}
	n.serve(t)
	// Neutron calls a port ACTIVE only if it has a binding:host_id, which a plain member may not set. OVN binds it all
	// the same.
	await(t, "port "+n.port+" to be up in OVN", func(ctx context.Context) string {
		up, err := nbctl(ctx, "--bare", "--columns=up", "find", "logical_switch_port", "name="+n.port)
		if err != nil {
			return err.Error()
		}
		if up != "true" {
			return fmt.Sprintf("up is %q", up)
		}
		return ""
	})
	return n
}

// inSwitch is a command in the network namespace that Open vSwitch stands in.
func inSwitch(args ...string) []string {
	if world.switchSpace == "" {
		return args
	}
	return append([]string{"ip", "netns", "exec", world.switchSpace}, args...)
}

// link is the commands that make the namespace, and a link between it and the switch.
func (n *nic) link(outer string, attributes ...string) [][]string {
	offload := []string{"tx", "off", "rx", "off", "tso", "off", "gso", "off", "gro", "off"}
	return [][]string{
		{"ip", "netns", "add", n.space},
		inSwitch("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", n.space),
		inSwitch("ip", "link", "set", outer, "up"),
		{"ip", "netns", "exec", n.space, "sysctl", "-qw", "net.ipv6.conf.all.accept_ra=0", "net.ipv6.conf.eth0.accept_ra=0"},
		{"ip", "-n", n.space, "link", "set", "lo", "up"},
		append(append([]string{"ip", "-n", n.space, "link", "set", "eth0"}, attributes...), "up"),
		// The userspace datapath sends what it gets: no checksum may be left to a network card.
		append([]string{"ip", "netns", "exec", n.space, "ethtool", "-K", "eth0"}, offload...),
		inSwitch(append([]string{"ethtool", "-K", outer}, offload...)...),
	}
}

// make runs the commands. What they make goes with the test.
func (n *nic) make(t *testing.T, outer string, steps [][]string) {
	t.Helper()
	t.Cleanup(func() {
		_, _ = vsctl(context.Background(), "--if-exists", "del-port", outer)
		_, _ = sh(context.Background(), inSwitch("ip", "link", "del", outer)...)
		_, _ = sh(context.Background(), "ip", "netns", "del", n.space)
	})
	for _, step := range steps {
		// not every card has every offload
		if _, err := sh(t.Context(), step...); err != nil && !slices.Contains(step, "ethtool") {
			t.Fatal(err)
		}
	}
}

// outside makes a network namespace on the external network, with the address of that network's gateway.
func outside(t *testing.T) *nic {
	t.Helper()
	if world.provider == "" || world.externalCIDR == "" {
		lacks(t,
			"no packets from outside here: neither RAVEN_E2E_STACK nor RAVEN_E2E_PROVIDER_BRIDGE and "+
				"RAVEN_E2E_EXTERNAL_CIDR are set")
	}
	prefix, err := netip.ParsePrefix(world.externalCIDR)
	if err != nil {
		t.Fatal(err)
	}
	address := prefix.Masked().Addr().Next()
	n := &nic{pod: "outside", space: world.prefix + "outside", addresses: []string{address.String()}}
	outer := world.prefix + "out"
	// The machine outside is the same one each time. With another hardware address at the same IP address it would wait
	// until the router believes it.
	tail := address.As16()
	mac := fmt.Sprintf("0a:00:%02x:%02x:%02x:%02x", tail[12], tail[13], tail[14], tail[15])
	n.make(t, outer,
		append(n.link(outer, "address", mac),
			[]string{"ip", "-n", n.space, "addr", "add", fmt.Sprintf("%s/%d", address, prefix.Bits()), "dev", "eth0"}))
	if _, err := vsctl(t.Context(), "add-port", world.provider, outer); err != nil {
		t.Fatal(err)
	}
	return n
}

// run is this program inside of the namespace.
func (n *nic) run(ctx context.Context, peer string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	cmd := exec.CommandContext(ctx, "ip", "netns", "exec", n.space, self)
	cmd.Env = append(os.Environ(), "RAVEN_E2E_PEER="+peer, "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	return cmd
}

// begin starts this program inside of the namespace, and returns what it prints. Who asked for it ends it.
func (n *nic) begin(ctx context.Context, t *testing.T, peer string) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := n.run(ctx, peer)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// serve answers with the pod's name until the test ends.
func (n *nic) serve(t *testing.T) {
	t.Helper()
	cmd, out := n.begin(context.Background(), t, "serve "+n.pod)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "listening\n" {
		t.Fatalf("the server of %s: %q %v", n.pod, line, err)
	}
}

// ask calls another nic at each of its addresses, and says what is amiss with the answers.
func (n *nic) ask(ctx context.Context, other *nic) string {
	for _, address := range other.addresses {
		out, err := n.run(ctx, "dial "+net.JoinHostPort(address, peerPort)).CombinedOutput()
		if text := strings.TrimSpace(string(out)); err != nil || text != other.pod {
			return fmt.Sprintf("%s asked %s at %s: %s", n.pod, other.pod, address, text)
		}
	}
	return ""
}

// reaches waits until packets come through.
func (n *nic) reaches(t *testing.T, other *nic) {
	t.Helper()
	await(t, n.pod+" to reach "+other.pod, func(ctx context.Context) string { return n.ask(ctx, other) })
}

// cannotReach waits until no packets come through at any address, several times in a row.
func (n *nic) cannotReach(t *testing.T, other *nic) {
	t.Helper()
	silent := 0
	await(t, n.pod+" not to reach "+other.pod, func(ctx context.Context) string {
		for _, address := range other.addresses {
			answers, err := n.calls(ctx, "tcp", net.JoinHostPort(address, peerPort), 1)
			if err != nil {
				silent = 0
				return err.Error()
			}
			for answer := range answers {
				if !strings.HasPrefix(answer, "!") {
					silent = 0
					return fmt.Sprintf("it does, at %s: %s", address, answer)
				}
			}
		}
		if silent++; silent < 3 {
			return "not sure yet"
		}
		return ""
	})
}
