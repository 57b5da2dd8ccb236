// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers/contract"
	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/service/node/cniapi"
	"github.com/kuryr/raven/service/openvswitch"
	"github.com/kuryr/raven/test/sim/kube"
)

// TestGarbageCollection: GC removes what belongs to sandboxes that it does not name, and only that.
func TestGarbageCollection(t *testing.T) {
	r := started(t)
	var boxes []sandboxOfTest
	var pods []object
	for i := range 3 {
		pod := r.pod(fmt.Sprintf("p%d", i), nil)
		r.attach(pod, i+1)
		b := r.box(fmt.Sprintf("s%d", i))
		r.add(b, pod)
		boxes, pods = append(boxes, b), append(pods, pod)
	}
	r.api.Close()
	gc := boxes[0].request(cniapi.GC, pods[0])
	_, err := r.call(gc)
	if codeOf(err) != types.ErrInvalidNetworkConfig {
		t.Errorf("GC without a list: %v", err)
	}
	gc.Config = json.RawMessage(`{"cniVersion":"1.1.0","name":"raven","cni.dev/valid-attachments":[` +
		`{"containerID":"s1","ifname":"eth0"}]}`)
	for range 2 {
		_, err = r.call(gc)
		r.must(err)
		if rows := r.rows(); len(rows) != 1 || rows[portID(2)].Name == "" {
			t.Errorf("rows %v", rows)
		}
	}
	for i, b := range boxes { // also with the API server unavailable, and with nothing left
		r.del(b, pods[i])
	}
}

// TestPortMadeAnew: Raven has made the port of a running pod anew. The interface follows, others stay.
func TestPortMadeAnew(t *testing.T) {
	r := started(t)
	pod, other := r.pod("p", nil), r.pod("other", nil)
	r.attach(pod, 1)
	r.attach(other, 2)
	b, c := r.box("s"), r.box("t")
	r.add(b, pod)
	r.add(c, other)
	before := r.rows()[portID(2)].UUID
	r.attach(pod, 3)
	r.until("the new port", func() bool { return r.rows()[portID(3)].Name == hostName("s", "eth0") })
	r.until("its address", func() bool {
		same := false
		r.inside(b, func(h *netlink.Handle, link netlink.Link) {
			same = addressesOf(t, h, link) == "10.1.0.13/16" && link.Attrs().HardwareAddr.String() == macOf(3) &&
				strings.Contains(routesOf(t, h, link), "0.0.0.0/0 via 10.1.0.1")
		})
		return same
	})
	if rows := r.rows(); len(rows) != 2 || rows[portID(2)].UUID != before {
		t.Errorf("rows %v", rows)
	}
	r.del(b, pod)
	r.del(c, other)
}

// TestPortMadeAnewInterrupted: what keeps the daemon from giving a pod its new port, or ends it halfway, is made up for
// later.
func TestPortMadeAnewInterrupted(t *testing.T) {
	r := started(t)
	pod := r.pod("p", nil)
	r.attach(pod, 1)
	b := r.box("s")
	r.add(b, pod)
	r.rename(b, "eth0", "hidden") // what the daemon would do in the sandbox fails
	r.attach(pod, 3)
	r.until("the new port to be refused", func() bool {
		seen, _ := r.node.objects.pod(pod.Namespace, pod.Name)
		return strings.Contains(seen.Annotations[contract.Port], portID(3)) && !r.node.pass(t.Context())
	})
	if rows := r.rows(); len(rows) != 1 || rows[portID(1)].Name == "" {
		t.Errorf("rows %v", rows)
	}
	r.rename(b, "hidden", "eth0")
	r.node.pass(t.Context())
	r.has(b, 3)
	r.del(b, pod)
}

// rename gives an interface in a sandbox another name, for which it has to be down.
func (r *rig) rename(b sandboxOfTest, from, to string) {
	r.Helper()
	h, err := netlink.NewHandleAt(b.ns, unix.NETLINK_ROUTE)
	r.must(err)
	defer h.Close()
	link, err := h.LinkByName(from)
	r.must(err)
	r.must(h.LinkSetDown(link))
	r.must(h.LinkSetName(link, to))
}

// has waits until a sandbox's interface has what a port of portOf has, and is plugged into it.
func (r *rig) has(b sandboxOfTest, number int) {
	r.Helper()
	r.until("the new port", func() bool { return r.rows()[portID(number)].Name == hostName(b.id, "eth0") })
	r.inside(b, func(h *netlink.Handle, link netlink.Link) {
		if got := addressesOf(r.T, h, link); got != fmt.Sprintf("10.1.0.%d/16", number+10) {
			r.Errorf("addresses %s", got)
		}
		if got := link.Attrs().HardwareAddr.String(); got != macOf(number) {
			r.Errorf("MAC address %s", got)
		}
		if got := routesOf(r.T, h, link); !strings.Contains(got, "0.0.0.0/0 via 10.1.0.1") {
			r.Errorf("routes %s", got)
		}
	})
}

// TestReboot: after a reboot Open vSwitch has rows whose links are gone, and rows of pods that are gone.
func TestReboot(t *testing.T) {
	r := started(t)
	stays, goes, rebooted := r.pod("stays", nil), r.pod("goes", nil), r.pod("rebooted", nil)
	boxes := map[string]sandboxOfTest{}
	for i, pod := range []object{stays, goes, rebooted} {
		r.attach(pod, i+1)
		boxes[pod.Name] = r.box(pod.Name)
		r.add(boxes[pod.Name], pod)
	}
	r.stop(r.node)
	r.remove(goes)
	l, err := newLinks()
	r.must(err)
	r.must(l.remove(hostName("rebooted", "eth0")))
	l.close()
	r.start()
	r.until("two rows to go", func() bool { return len(r.rows()) == 1 })
	if r.rows()[portID(1)].Name != hostName("stays", "eth0") {
		t.Errorf("rows %v", r.rows())
	}
	for _, pod := range []object{stays, goes, rebooted} {
		r.del(boxes[pod.Name], pod)
	}
}

// TestWrongNodeName: with the name of a node that there is not the list of pods is empty, and means nothing: pods stay
// plugged in.
func TestWrongNodeName(t *testing.T) {
	r := started(t)
	pod, later := r.pod("p", nil), r.pod("later", nil)
	r.attach(pod, 1)
	r.attach(later, 2)
	b, c := r.box("s"), r.box("t")
	r.add(b, pod)
	r.add(c, later)
	r.stop(r.node)
	r.config.Name = "node-of-another-name"
	r.start()
	r.until("the daemon to be ready", func() bool { return r.node.unready() == nil })
	if !r.node.pass(t.Context()) {
		t.Error("what is wrong?")
	}
	if rows := r.rows(); len(rows) != 2 {
		t.Errorf("rows %v", rows)
	}
	r.stop(r.node)
	r.config.Name = nodeName
	r.remove(later)
	r.start()
	r.until("the row to go whose pod did", func() bool { return len(r.rows()) == 1 })
	r.del(b, pod)
	r.del(c, later)
}

// TestDatabaseLost: Open vSwitch's database was made anew under running pods.
func TestDatabaseLost(t *testing.T) {
	r := started(t)
	pod := r.pod("p", nil)
	r.attach(pod, 1)
	b := r.box("s")
	result := r.add(b, pod)
	r.server.Kill()
	r.must(r.server.Wipe(t.Context()))
	r.must(r.server.Run(t.Context()))
	r.must(r.server.Chassis(t.Context(), "br-int", "netdev", map[string]string{"system-id": "c", "hostname": "host-1"}))
	r.control()
	r.until("the row", func() bool { return r.rows()[portID(1)].Name != "" })
	r.until("CHECK to succeed", func() bool { return r.checkCall(b, pod, result) == nil })
	r.del(b, pod)
}

// TestPortMadeAnewMeanwhile: a port was made anew while Open vSwitch's database was lost, when nothing but the link
// says where the pod's interface is; and once more when there is a row again.
func TestPortMadeAnewMeanwhile(t *testing.T) {
	r := started(t)
	pod := r.pod("p", nil)
	r.attach(pod, 1)
	b := r.box("s")
	r.add(b, pod)
	r.server.Kill()
	r.attach(pod, 3)
	r.must(r.server.Wipe(t.Context()))
	r.must(r.server.Run(t.Context()))
	r.must(r.server.Chassis(t.Context(), "br-int", "netdev", map[string]string{"system-id": "c", "hostname": "host-1"}))
	r.control()
	r.has(b, 3)
	r.attach(pod, 4)
	r.has(b, 4)
	r.del(b, pod)
}

// TestUnfinishedLink: what an ADD has left that was cut off between two steps is removed.
func TestUnfinishedLink(t *testing.T) {
	r := newRig(t)
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: hostName("x", "eth0")}, PeerName: "peer"}
	r.must(netlink.LinkAdd(veth))
	r.start()
	r.until("the link to go", func() bool {
		there, err := r.node.links.exists(hostName("x", "eth0"))
		return err == nil && !there
	})
}

// TestOwnInterface: the node's own port is an internal interface with routes to the pods' ranges. What Open vSwitch
// would make of the row, a link, the test makes.
func TestOwnInterface(t *testing.T) {
	r := started(t)
	self, _ := r.node.objects.self()
	r.bind(9, self.UID)
	annotations := portOf(9, self.UID)
	annotations[contract.PodCIDRs] = `["192.168.0.0/16"]`
	r.annotate(object{Name: nodeName}, annotations)
	r.until("the row", func() bool { return r.rows()[portID(9)].Type == "internal" })
	if row := r.rows()[portID(9)]; row.Name != "raven-node0" || row.MAC != macOf(9) || row.MTU != 1400 {
		t.Errorf("row %+v", row)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "raven-node0"
	link := &netlink.Veth{LinkAttrs: attrs, PeerName: "vswitchd"}
	r.must(netlink.LinkAdd(link))
	t.Cleanup(func() { _ = netlink.LinkDel(link) })
	peer, err := netlink.LinkByName("vswitchd")
	r.must(err)
	r.must(netlink.LinkSetUp(peer))
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	r.must(err)
	defer h.Close()
	r.until("address and routes", func() bool {
		return addressesOf(t, h, link) == "10.1.0.19/16" &&
			strings.Contains(routesOf(t, h, link), "192.168.0.0/16 via 10.1.0.1")
	})
	r.until("the report", func() bool { return r.state("node interface") == health.Ready })
	conn, err := nftables.New()
	r.must(err)
	if rules := masqueradedBy(t, conn); len(rules) != 1 || rules[0] != "raven-node0" {
		t.Errorf("masqueraded is what leaves by %q", rules)
	}
	r.must(masquerade("", nil)) // it comes back
	annotations[contract.PodCIDRs] = `["192.168.64.0/18"]`
	r.annotate(object{Name: nodeName}, annotations)
	r.until("the routes to follow", func() bool {
		routes := routesOf(t, h, link)
		return strings.Contains(routes, "192.168.64.0/18") && !strings.Contains(routes, "192.168.0.0/16")
	})
	r.until("the rule to be there again", func() bool { return len(masqueradedBy(t, conn)) == 1 })
	annotations[contract.Port] = strings.Replace(annotations[contract.Port], `"fixed_ips":[`,
		`"fixed_ips":[{"subnet_id":"s4","ip_address":"10.1.0.20"},`, 1)
	r.annotate(object{Name: nodeName}, annotations)
	r.until("an address for connections that were translated", func() bool {
		self, _ := r.node.objects.self()
		return addressesOf(t, h, link) == "10.1.0.19/16; 10.1.0.20/16" && len(masqueradedBy(t, conn)) == 2 &&
			self.Annotations[contract.TranslatedAddresses] == "10.1.0.20"
	})
	if routes := routesOf(t, h, link); !strings.Contains(routes, "192.168.64.0/18 via 10.1.0.1") {
		t.Errorf("routes %s", routes)
	}
	if got := self.Annotations[contract.ChassisHostname]; got != "" && got != "host-1" {
		t.Errorf("annotation %q", got)
	}
	r.until("the chassis on the Node", func() bool {
		self, _ := r.node.objects.self()
		return self.Annotations[contract.ChassisHostname] == "host-1" && self.Annotations[contract.ChassisID] == "chassis-1"
	})
}

// TestOwnInterfaceDualStack: the node's interface gets addresses of both families and a route to the ranges of each,
// also where the host has IPv6 switched off for new interfaces.
func TestOwnInterfaceDualStack(t *testing.T) {
	r := started(t)
	const standard = "/proc/sys/net/ipv6/conf/default/disable_ipv6" // of this network namespace
	r.must(os.WriteFile(standard, []byte("1"), 0o600))
	t.Cleanup(func() { r.must(os.WriteFile(standard, []byte("0"), 0o600)) })
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "raven-node0"}, PeerName: "vswitchd"}
	r.must(netlink.LinkAdd(link))
	t.Cleanup(func() { _ = netlink.LinkDel(link) })
	peer, err := netlink.LinkByName("vswitchd")
	r.must(err)
	r.must(netlink.LinkSetUp(peer))
	self, _ := r.node.objects.self()
	r.bind(9, self.UID)
	annotations := portOf(9, self.UID)
	annotations[contract.Port] = strings.Replace(annotations[contract.Port], `"fixed_ips":[`,
		`"fixed_ips":[{"subnet_id":"s6","ip_address":"fd00:1::5"},`, 1)
	annotations[contract.Subnets] = `[` + annotations[contract.Subnet] +
		`,{"id":"s6","cidr":"fd00:1::/64","gateway_ip":"fd00:1::1","ip_version":6,"host_routes":[]}]`
	annotations[contract.PodCIDRs] = `["192.168.0.0/16","fd00:2::/48"]`
	r.annotate(object{Name: nodeName}, annotations)
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	r.must(err)
	defer h.Close()
	r.until("addresses and routes of both families", func() bool {
		addresses, routes := addressesOf(t, h, link), routesOf(t, h, link)
		return strings.Contains(addresses, "10.1.0.19/16") && strings.Contains(addresses, "fd00:1::5/64") &&
			strings.Contains(routes, "192.168.0.0/16 via 10.1.0.1") && strings.Contains(routes, "fd00:2::/48 via fd00:1::1")
	})
	r.must(masquerade("", nil))
}

// TestMissedLinks: more links change at once than the kernel keeps for the daemon. It goes on noticing what becomes of
// the node's own interface.
func TestMissedLinks(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Resync = time.Hour })
	r.start()
	r.until("the Node", func() bool { _, there := r.node.objects.self(); return there })
	self, _ := r.node.objects.self()
	r.bind(9, self.UID)
	r.annotate(object{Name: nodeName}, portOf(9, self.UID))
	r.until("the row", func() bool { return r.rows()[portID(9)].Name == "raven-node0" })
	pair := func(name string) *netlink.Veth {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "peer-" + name[:5]}
		r.must(netlink.LinkAdd(link))
		t.Cleanup(func() { _ = netlink.LinkDel(link) })
		return link
	}
	own := pair("raven-node0")
	configured := func() bool { return hasAddress("raven-node0", "10.1.0.19/16") }
	r.until("the address", configured)
	noise := pair("noise")
	pair(hostName("x", "eth0")) // the daemon looks at it for a second, and meanwhile at nothing else
	r.pod("p", nil)
	r.until("it to be removed as unfinished", func() bool {
		for range 100 {
			r.must(errors.Join(netlink.LinkSetUp(noise), netlink.LinkSetDown(noise)))
		}
		there, err := r.node.links.exists(hostName("x", "eth0"))
		return err == nil && !there
	})
	r.must(netlink.LinkDel(own))
	pair("raven-node0")
	r.until("the address of the new one", configured)
}

// TestOwnInterfaceIsCalledOtherwise: the interface has another name in the configuration, and then none: nothing keeps
// the node's port under the old one.
func TestOwnInterfaceIsCalledOtherwise(t *testing.T) {
	r := started(t)
	self, _ := r.node.objects.self()
	r.bind(9, self.UID)
	r.bind(8, self.UID)
	r.annotate(object{Name: nodeName}, portOf(9, self.UID))
	r.until("the row", func() bool { return r.rows()[portID(9)].Name == "raven-node0" })
	r.stop(r.node)
	r.config.Interface = "leg"
	r.annotate(object{Name: nodeName}, portOf(8, self.UID)) // and another port, at that
	r.start()
	r.until("the row by its new name, alone", func() bool {
		rows := r.rows()
		return rows[portID(8)].Name == "leg" && len(rows) == 1
	})
	r.stop(r.node)
	r.config.Interface = ""
	r.start()
	r.until("the row to go", func() bool { return len(r.rows()) == 0 })
}

// TestNodeIsAnnotatedOnce: what was written is not written again while the watch has yet to show it.
func TestNodeIsAnnotatedOnce(t *testing.T) {
	r := newRig(t, func(c *Config) { c.ListOnly = true })
	var writes atomic.Int64
	r.api.OnRequest(func(q kube.Request) {
		if q.Method == http.MethodPatch && strings.HasPrefix(q.Path, "/api/v1/nodes/") {
			writes.Add(1)
		}
	})
	_, err := r.api.Inject(kube.Fault{Path: `^/api/v1/nodes\?.*watch=true`, Hang: true})
	r.must(err)
	r.start()
	r.until("the Node to be annotated", func() bool { return writes.Load() > 0 })
	for i := range 20 { // each has all interfaces compared again
		pod := r.pod(fmt.Sprint("p", i), nil)
		r.attach(pod, i+1)
		box := r.box(fmt.Sprint("s", i))
		r.add(box, pod)
		r.del(box, pod)
		r.remove(pod)
	}
	if n := writes.Load(); n != 1 {
		t.Errorf("the Node was annotated %d times", n)
	}
}

// TestMatters: all interfaces are compared again when one is gone, or the node's own one has changed, not when an ADD
// has written a row.
func TestMatters(t *testing.T) {
	t.Parallel()
	of := func(ids map[string]string, port int) openvswitch.Interface {
		return openvswitch.Interface{ExternalIDs: ids, OFPort: port}
	}
	pod, own := map[string]string{openvswitch.Sandbox: "s"}, map[string]string{openvswitch.Node: nodeName}
	installed := map[string]string{openvswitch.Node: nodeName, openvswitch.OVNInstalled: "true"}
	view := func(interfaces map[string]openvswitch.Interface) *openvswitch.View {
		return &openvswitch.View{BridgeUUID: "b", Interfaces: interfaces}
	}
	type all = map[string]openvswitch.Interface
	for name, test := range map[string]struct {
		before, now *openvswitch.View
		want        bool
	}{
		"nothing":            {view(all{"p": of(pod, 1)}), view(all{"p": of(pod, 1)}), false},
		"a new row":          {view(nil), view(all{"p": of(pod, 0)}), false},
		"a row is gone":      {view(all{"p": of(pod, 1)}), view(nil), true},
		"a foreign one":      {view(all{"tap": of(nil, 1)}), view(nil), false},
		"the database":       {nil, view(nil), true},
		"the bridge":         {&openvswitch.View{}, view(nil), true},
		"own: a number":      {view(all{"n": of(own, 0)}), view(all{"n": of(own, 1)}), true},
		"own: installed":     {view(all{"n": of(own, 1)}), view(all{"n": of(installed, 1)}), true},
		"own: not any more":  {view(all{"n": of(installed, 1)}), view(all{"n": of(own, 1)}), true},
		"own: nothing":       {view(all{"n": of(installed, 1)}), view(all{"n": of(installed, 1)}), false},
		"a pod's: installed": {view(all{"p": of(pod, 0)}), view(all{"p": of(pod, 1)}), false},
	} {
		if got := matters(test.before, test.now); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func (r *rig) state(component string) health.State {
	for _, report := range r.registry.Reports() {
		if report.Name == component {
			return report.State
		}
	}
	return ""
}

// TestInstallation: plugin and CNI configuration are there once the daemon is ready, and STATUS says so. The chassis is
// on the Node before: Raven makes the ports of the first pods for it.
func TestInstallation(t *testing.T) {
	r := newRig(t)
	var late atomic.Bool
	r.api.OnRequest(func(q kube.Request) {
		if _, err := os.Stat(filepath.Join(r.config.ConfDir, r.config.ConfName)); err == nil && q.Method == http.MethodPatch {
			late.Store(true)
		}
	})
	r.controller.Close()
	r.server.Kill()
	r.start()
	if _, err := r.call(cniapi.Request{Command: cniapi.Status}); codeOf(err) != codeNotAvailable {
		t.Errorf("STATUS without Open vSwitch: %v", err)
	}
	if _, err := os.Stat(filepath.Join(r.config.ConfDir, r.config.ConfName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the configuration was written too early: %v", err)
	}
	unfinished := filepath.Join(r.config.ConfDir, "."+r.config.ConfName+".new")
	r.must(os.Mkdir(r.config.ConfDir, 0o755))
	r.must(os.WriteFile(unfinished, []byte("half of"), 0o600)) // of a daemon that was killed
	r.must(r.server.Run(t.Context()))
	r.until("STATUS to succeed", func() bool {
		_, err := r.call(cniapi.Request{Command: cniapi.Status})
		return err == nil
	})
	r.until("the report", func() bool { return r.state("cni") == health.Ready })
	if self, _ := r.node.objects.self(); late.Load() {
		t.Errorf("the Node was annotated after the configuration was written: %v", self.Annotations)
	}
	text, err := os.ReadFile(filepath.Join(r.config.ConfDir, r.config.ConfName))
	r.must(err)
	if !strings.Contains(string(text), r.config.Socket) || !strings.Contains(string(text), `"1.1.0"`) {
		t.Errorf("configuration %s", text)
	}
	if files, err := os.ReadDir(r.config.ConfDir); err != nil || len(files) != 1 {
		t.Errorf("the folder of the configuration has %v (%v)", files, err)
	}
	info, err := os.Stat(filepath.Join(r.config.BinDir, PluginName))
	r.must(err)
	if info.Mode().Perm() != 0o755 {
		t.Errorf("plugin has mode %s", info.Mode())
	}
	if info, err = os.Stat(r.config.Socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info, err)
	}
	second, err := New(r.config, health.NewRegistry(clock.RealClock{}))
	r.must(err)
	if err := second.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "another daemon") {
		t.Errorf("a second daemon: %v", err)
	}
}

// TestSocketIsAnothersFile: what stands where the socket should, and is none, is not touched.
func TestSocketIsAnothersFile(t *testing.T) {
	r := newRig(t)
	other := filepath.Join(r.dir, "file")
	r.must(os.WriteFile(other, []byte("of another"), 0o600))
	wrong := r.config
	wrong.Socket = other
	foreign, err := New(wrong, health.NewRegistry(clock.RealClock{}))
	r.must(err)
	if err := foreign.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a file in the place of the socket: %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("another's file is gone: %v", err)
	}
}
