// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ovn adds OVN's databases and daemons, and Open vSwitch with the userspace datapath (the kernel's module is not
// everywhere). The switch stands in a network namespace of its own: its devices (ovs-netdev, the bridges) collide
// with nobody's, and go with it. Databases and ovn-controller talk through sockets in the stack's folder.
func (b *builder) ovn() {
	b.database(NorthDB, b.path("ovn", "nb.db"), b.path("ovn", "nb"), "/usr/share/ovn/ovn-nb.ovsschema")
	b.database(SouthDB, b.path("ovn", "sb.db"), b.path("ovn", "sb"), "/usr/share/ovn/ovn-sb.ovsschema")
	b.database(SwitchDB, b.path("ovs", "conf.db"), b.path("ovs", "db"), "/usr/share/openvswitch/vswitch.ovsschema")
	b.ovnCentral()
	b.openVSwitch()
	b.ovnHost()
}

// ovsEnvironment keeps all programs of Open vSwitch and OVN to the stack's folder.
func (b *builder) ovsEnvironment() []string {
	return []string{
		"OVN_RUNDIR=" + b.path("ovn"), "OVS_RUNDIR=" + b.path("ovs"), "OVN_LOGDIR=" + b.path("artifacts", "log"),
		"OVS_LOGDIR=" + b.path("artifacts", "log"),
	}
}

// quiet are options that all daemons of Open vSwitch and OVN take.
func quiet() []string { return []string{"-vconsole:warn", "-vsyslog:off", "--no-chdir"} }

// database adds an ovsdb-server; its sockets have the path at, with .sock and .ctl.
func (b *builder) database(name, file, at, schema string) {
	b.step("schema of "+name, nil, func(ctx context.Context) error {
		_, err := b.Run(ctx, "ovsdb-tool", "create", file, schema)
		return err
	})
	b.component(Component{
		Name: name, Env: b.ovsEnvironment(),
		Argv: append([]string{"ovsdb-server", file, "--remote=punix:" + at + ".sock", "--unixctl=" + at + ".ctl"},
			quiet()...),
		Ready: Probe{Argv: []string{"ovs-appctl", "-t", at + ".ctl", "version"}},
	}, "schema of "+name)
}

func (b *builder) ovnCentral() {
	net := b.Net()
	b.step("OVN's databases begun", []string{NorthDB, SouthDB}, func(ctx context.Context) error {
		_, north := b.OVN(ctx, "--no-wait", "init")
		_, south := b.Run(ctx, "ovn-sbctl", "--timeout=20", "--db="+net.OVNSouth, "init")
		return errors.Join(north, south)
	})
	b.component(Component{
		Name: Northd, After: []string{NorthDB, SouthDB}, Env: b.ovsEnvironment(),
		Argv: append([]string{
			"ovn-northd", "--ovnnb-db=" + net.OVNNorth, "--ovnsb-db=" + net.OVNSouth, "--unixctl=" + b.path("ovn", "northd.ctl"),
		}, quiet()...),
		Ready: Probe{Argv: []string{"ovn-appctl", "-t", b.path("ovn", "northd.ctl"), "status"}, Text: "active"},
	}, "OVN's databases begun")
}

func (b *builder) openVSwitch() {
	net := b.Net()
	b.step("namespace of the switch", nil, func(ctx context.Context) error {
		if _, err := b.Run(ctx, "ip", "netns", "add", net.Namespace); err != nil {
			return err
		}
		_, err := b.Run(ctx, "ip", "-n", net.Namespace, "link", "set", "lo", "up")
		return err
	})
	b.step("identity of the switch", []string{SwitchDB}, func(ctx context.Context) error {
		_, err := b.OVS(ctx, "--no-wait", "init", "--", "set", "Open_vSwitch", ".", "external-ids:system-id="+net.Chassis,
			"external-ids:hostname="+net.Chassis,
			`external-ids:ovn-remote="`+net.OVNSouth+`"`, "external-ids:ovn-encap-type=geneve",
			"external-ids:ovn-encap-ip=127.0.0.1",
			"external-ids:ovn-bridge="+net.Bridge, "external-ids:ovn-bridge-datapath-type=netdev",
			"external-ids:ovn-bridge-mappings=physnet1:"+net.Provider,
			"external-ids:ovn-cms-options=enable-chassis-as-gw", "external-ids:ovn-monitor-all=true")
		return err
	})
	b.component(Component{
		Name: Vswitchd, After: []string{SwitchDB}, Env: b.ovsEnvironment(),
		// It is watched by a monitor because 3.1.0 aborts now and then: see EnvironmentFaults.
		Argv: append([]string{
			"ip", "netns", "exec", net.Namespace, "ovs-vswitchd", net.OVS, "--monitor",
			"--unixctl=" + b.path("ovs", "vswitchd.ctl"),
		}, quiet()...),
		Ready: Probe{Argv: []string{"ovs-appctl", "-t", b.path("ovs", "vswitchd.ctl"), "ofproto/list"}},
	}, "namespace of the switch", "identity of the switch")
	b.step("bridges", []string{Vswitchd}, func(ctx context.Context) error {
		var args []string
		for _, bridge := range []string{net.Provider + " standalone", net.Bridge + " secure"} {
			name, mode, _ := strings.Cut(bridge, " ")
			args = append(args, "--", "--may-exist", "add-br", name, "--", "set", "Bridge", name, "datapath_type=netdev",
				"fail_mode="+mode)
		}
		_, err := b.OVS(ctx, args[1:]...)
		return err
	})
}

func (b *builder) ovnHost() {
	net := b.Net()
	b.component(Component{
		Name: OVNController, After: []string{SouthDB, Vswitchd}, Env: b.ovsEnvironment(),
		Argv: append([]string{"ovn-controller", net.OVS, "--pidfile=" + b.path("ovn", "ovn-controller.pid")}, quiet()...),
		Ready: Probe{
			Argv: []string{"env", "OVN_RUNDIR=" + b.path("ovn"), "ovn-appctl", "-t", "ovn-controller", "connection-status"},
			Text: "connected",
		},
	}, "bridges", "OVN's databases begun")
	// The chassis is what Neutron binds ports to and schedules gateways on.
	b.step("chassis", []string{OVNController, Northd}, func(ctx context.Context) error {
		var out string
		err := poll(ctx, func() bool {
			var err error
			out, err = b.Run(ctx, "ovn-sbctl", "--timeout=20", "--db="+net.OVNSouth, "--bare", "--columns=name", "list",
				"Chassis")
			return err == nil && strings.Contains(out, net.Chassis)
		})
		if err != nil {
			controller, _ := b.Component(OVNController) // it was added above
			return fmt.Errorf("ovn-controller has not written chassis %s (there is %q): %w\n%s", net.Chassis,
				strings.TrimSpace(out), err, Tail(controller.Log, tail))
		}
		return nil
	})
}
