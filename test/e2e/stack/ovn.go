// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ovn adds OVN's databases and daemons, and Open vSwitch of Debian 13 with the userspace datapath (the kernel's module
// is not everywhere). The switch stands in a network namespace of its own: its devices (ovs-netdev, the bridges)
// collide with nobody's, and go with it. Databases and ovn-controller talk through sockets in the stack's folder.
func (b *builder) ovn() {
	b.database(NorthDB, b.path("ovn", "nb.db"), b.path("ovn", "nb"), "/usr/share/ovn/ovn-nb.ovsschema")
	b.database(SouthDB, b.path("ovn", "sb.db"), b.path("ovn", "sb"), "/usr/share/ovn/ovn-sb.ovsschema")
	b.ovnCentral()
	net := b.Net()
	b.step("namespace of the switch", nil, func(ctx context.Context) error {
		return b.ip(ctx, [][]string{
			{"netns", "add", net.Namespace}, {"-n", net.Namespace, "link", "set", "lo", "up"},
		})
	})
	b.underlay()
	b.chassis(chassis{
		space: net.Namespace, dir: b.path("ovs"), hostname: net.Chassis, id: net.Chassis, tunnels: tunnelPrefix + "1",
		provider: net.Provider,
	})
	b.awaitChassis()
}

// ovsEnvironment keeps all programs of Open vSwitch and OVN to the stack's folder; dir is the switch's.
func (b *builder) ovsEnvironment(dir string) []string {
	return []string{
		"OVN_RUNDIR=" + b.path("ovn"), "OVS_RUNDIR=" + dir, "OVN_LOGDIR=" + b.path("artifacts", "log"),
		"OVS_LOGDIR=" + b.path("artifacts", "log"),
	}
}

// quiet are options that all daemons of Open vSwitch and OVN take.
func quiet() []string { return []string{"-vconsole:warn", "-vsyslog:off", "--no-chdir"} }

// database adds an ovsdb-server of OVN; its sockets have the path at, with .sock and .ctl.
func (b *builder) database(name, file, at, schema string) {
	b.step("schema of "+name, nil, func(ctx context.Context) error {
		_, err := b.Run(ctx, "ovsdb-tool", "create", file, schema)
		return err
	})
	b.component(b.databaseServer(name, []string{"ovsdb-server"}, file, at, b.path("ovs")), "schema of "+name)
}

func (b *builder) databaseServer(name string, program []string, file, at, dir string) Component {
	return Component{
		Name: name, Env: b.ovsEnvironment(dir),
		Argv:  slices.Concat(program, []string{file, "--remote=punix:" + at + ".sock", "--unixctl=" + at + ".ctl"}, quiet()),
		Ready: Probe{Argv: []string{"ovs-appctl", "-t", at + ".ctl", "version"}},
	}
}

func (b *builder) ovnCentral() {
	net := b.Net()
	b.step("OVN's databases begun", []string{NorthDB, SouthDB}, func(ctx context.Context) error {
		_, north := b.OVN(ctx, "--no-wait", "init")
		_, south := b.Run(ctx, "ovn-sbctl", "--timeout=20", "--db="+net.OVNSouth, "init")
		return errors.Join(north, south)
	})
	b.component(Component{
		Name: Northd, After: []string{NorthDB, SouthDB}, Env: b.ovsEnvironment(b.path("ovs")),
		Argv: append([]string{
			"ovn-northd", "--ovnnb-db=" + net.OVNNorth, "--ovnsb-db=" + net.OVNSouth, "--unixctl=" + b.path("ovn", "northd.ctl"),
		}, quiet()...),
		Ready: Probe{Argv: []string{"ovn-appctl", "-t", b.path("ovn", "northd.ctl"), "status"}, Text: "active"},
	}, "OVN's databases begun")
}

// awaitChassis adds the step that waits for the stack's own chassis, which Neutron binds ports to and schedules
// gateways on.
func (b *builder) awaitChassis() {
	b.step("chassis", []string{OVNController, Northd}, func(ctx context.Context) error {
		return b.chassisWritten(ctx, b.Net().Chassis, OVNController)
	})
}

// chassisWritten waits until an ovn-controller has written its chassis of that name.
func (s *Stack) chassisWritten(ctx context.Context, name, component string) error {
	var out string
	err := poll(ctx, func() bool {
		var err error
		out, err = s.Run(ctx, "ovn-sbctl", "--timeout=20", "--db="+s.state.Network.OVNSouth, "--bare", "--columns=hostname",
			"list", "Chassis")
		return err == nil && slices.Contains(strings.Fields(out), name)
	})
	if err != nil {
		controller, _ := s.Component(component) // it was added with the chassis
		return fmt.Errorf("ovn-controller has not written chassis %s (there is %q): %w\n%s", name,
			strings.TrimSpace(out), err, Tail(controller.Log, tail))
	}
	return nil
}
