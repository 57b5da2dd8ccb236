// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
)

// chassis is an Open vSwitch with an ovn-controller, in a network namespace.
type chassis struct {
	suffix   string // of the names of its components
	space    string // the network namespace
	dir      string // the folder of its database and its sockets
	hostname string // external_ids:hostname, which binding:host_id is compared with
	id       string // external_ids:system-id
	tunnels  string // its address for tunnels, geneve
	provider string // the bridge that leads to the external network, where there is one
	onDemand bool   // it does not run until NodesUp
}

// tunnelBridge is the bridge that tunnels leave by: with the userspace datapath the tunnels' address must be a
// bridge's.
const tunnelBridge = "br-tun"

// openVSwitchProgram is the call of a program of the folder OpenVSwitch. It was built for another release's libraries,
// which are there as well, with the loader that finds them.
func (b *builder) openVSwitchProgram(path string) []string {
	libraries, _ := filepath.Glob(filepath.Join(b.OpenVSwitch, "usr/lib/*-linux-gnu")) // the pattern is right
	for _, folder := range libraries {
		if loaders, _ := filepath.Glob(filepath.Join(folder, "ld-linux-*.so.*")); len(loaders) > 0 {
			return []string{
				loaders[0], "--library-path", folder, "--argv0", filepath.Base(path), filepath.Join(b.OpenVSwitch, path),
			}
		}
	}
	b.err = errors.Join(b.err, fmt.Errorf("%s has no loader of programs below usr/lib: remove it, and it is fetched anew",
		b.OpenVSwitch))
	return []string{path}
}

// chassis adds the servers of one; for the stack's own also the steps that start them.
func (b *builder) chassis(c chassis) {
	db, vswitchd, controller := SwitchDB+c.suffix, Vswitchd+c.suffix, OVNController+c.suffix
	at := func(name string) string { return filepath.Join(c.dir, name) }
	env := append(b.ovsEnvironment(c.dir), "OVN_RUNDIR="+c.ovnDir(b))
	servers := []Component{
		b.databaseServer(db, b.openVSwitchProgram("usr/sbin/ovsdb-server"), at("conf.db"), at("db"), c.dir),
		{
			Name: vswitchd, After: []string{db}, Env: env,
			Argv: slices.Concat([]string{"nsenter", "--net=/run/netns/" + c.space},
				b.openVSwitchProgram("usr/lib/openvswitch-switch/ovs-vswitchd"),
				[]string{"unix:" + at("db.sock"), "--unixctl=" + at("vswitchd.ctl")}, quiet()),
			Ready: Probe{Argv: []string{"ovs-appctl", "-t", at("vswitchd.ctl"), "ofproto/list"}, Text: tunnelBridge},
			Then:  c.address(),
		},
		{
			Name: controller, After: []string{SouthDB, vswitchd}, Env: env,
			Argv: append([]string{"ovn-controller", "unix:" + at("db.sock"), "--pidfile=" + filepath.Join(c.ovnDir(b),
				"ovn-controller.pid")}, quiet()...),
			Ready: Probe{
				Argv: []string{"env", "OVN_RUNDIR=" + c.ovnDir(b), "ovn-appctl", "-t", "ovn-controller", "connection-status"},
				Text: "connected",
			},
		},
	}
	if c.onDemand {
		for _, server := range servers {
			b.onDemand(server)
		}
		return
	}
	b.step("schema of "+db, nil, func(ctx context.Context) error { return b.chassisDatabase(ctx, c) })
	b.component(servers[0], "schema of "+db)
	b.step("bridges", []string{db, "underlay"}, func(ctx context.Context) error { return b.bridges(ctx, c) })
	b.component(servers[1], "bridges")
	b.component(servers[2], "OVN's databases begun")
}

// ovnDir is the folder of ovn-controller's sockets: there can be one of that name in it.
func (c chassis) ovnDir(b *builder) string {
	if c.onDemand {
		return c.dir
	}
	return b.path("ovn")
}

// chassisDatabase makes the database of the switch.
func (b *builder) chassisDatabase(ctx context.Context, c chassis) error {
	_, err := b.Run(ctx, "ovsdb-tool", "create", filepath.Join(c.dir, "conf.db"),
		filepath.Join(b.OpenVSwitch, "usr/share/openvswitch/vswitch.ovsschema"))
	return err
}

// address are the commands that give the tunnels their address. An ovs-vswitchd that is started anew makes the
// bridge's device anew, without it.
func (c chassis) address() [][]string {
	return [][]string{
		{"ip", "-n", c.space, "addr", "replace", c.tunnels + "/24", "dev", tunnelBridge},
		{"ip", "-n", c.space, "link", "set", tunnelBridge, "up"},
	}
}

// bridges writes the identity of the switch and its bridges into its database, before it runs, and links it to the
// underlay.
func (s *Stack) bridges(ctx context.Context, c chassis) error {
	net := s.state.Network
	outer := tunnelLink(net, c.space)
	if err := s.ip(ctx, [][]string{
		{"-n", net.Namespace, "link", "add", outer, "type", "veth", "peer", "name", "tunnels", "netns", c.space},
		{"-n", net.Namespace, "link", "set", outer, "master", underlay, "up"},
		{"-n", c.space, "link", "set", "tunnels", "up"},
	}); err != nil {
		return err
	}
	if err := s.plainLink(ctx, net.Namespace, outer, c.space, "tunnels"); err != nil {
		return err
	}
	args := []string{
		"ovs-vsctl", "--timeout=20", "--db=unix:" + filepath.Join(c.dir, "db.sock"), "--no-wait", "init", "--", "set",
		"Open_vSwitch", ".",
		"external-ids:system-id=" + c.id, "external-ids:hostname=" + c.hostname,
		`external-ids:ovn-remote="` + net.OVNSouth + `"`, "external-ids:ovn-encap-type=geneve",
		"external-ids:ovn-encap-ip=" + c.tunnels, "external-ids:ovn-bridge=" + net.Bridge,
		"external-ids:ovn-bridge-datapath-type=netdev", "external-ids:ovn-monitor-all=true",
	}
	bridges := [][2]string{{net.Bridge, "secure"}, {tunnelBridge, "standalone"}}
	if c.provider != "" {
		args = append(args, "external-ids:ovn-bridge-mappings=physnet1:"+c.provider,
			"external-ids:ovn-cms-options=enable-chassis-as-gw")
		bridges = slices.Insert(bridges, 0, [2]string{c.provider, "standalone"})
	}
	for _, bridge := range bridges {
		args = append(args, "--", "--may-exist", "add-br", bridge[0], "--", "set", "Bridge", bridge[0],
			"datapath_type=netdev", "fail_mode="+bridge[1])
	}
	mac, err := c.mac()
	if err != nil {
		return err
	}
	args = append(args, "--", "set", "Bridge", tunnelBridge, `other-config:hwaddr="`+mac+`"`,
		"--", "--may-exist", "add-port", tunnelBridge, "tunnels")
	_, err = s.Run(ctx, args...)
	return err
}

// mac is the MAC address of the tunnels, always the same for their IP address. A switch in userspace keeps for minutes
// which one the others have, and one that was started anew, or belongs to a node that was made anew, would not be
// reached with another until it sends something itself.
func (c chassis) mac() (string, error) {
	addr, err := netip.ParseAddr(c.tunnels)
	if err != nil {
		return "", fmt.Errorf("the address of the tunnels of %s: %w", c.id, err)
	}
	return net.HardwareAddr(append([]byte{0x02, 0}, addr.AsSlice()...)).String(), nil
}
