// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"strings"
	"testing"
)

// What Services are made of is in no `show`.
func TestADumpHasTheLoadBalancersOfOVN(t *testing.T) {
	for _, program := range []string{"ovsdb-server", "ovsdb-tool", "ovs-appctl", "ovn-nbctl"} {
		if !executable(programPath(program)) {
			t.Skip("there is no", program, "here: packages ovn-common and openvswitch-common have it")
		}
	}
	s := standing(t)
	s.state.Network.OVNNorth = "unix:" + s.path("nb.sock")
	b := &builder{Stack: s}
	b.database(NorthDB, s.path("nb.db"), s.path("nb"), "/usr/share/ovn/ovn-nb.ovsschema")
	t.Cleanup(func() { _ = s.Kill(context.Background(), NorthDB) })
	if err := runSteps(t.Context(), b.steps, discard{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.OVN(t.Context(), "lb-add", "web", "10.0.0.1:80", "10.0.0.2:8080", "--", "ls-add", "net-a", "--",
		"ls-lb-add", "net-a", "web",
		"--", "create", "Load_Balancer_Group", "name=everywhere", "--", "lr-add", "router-a"); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for file, argv := range s.views() {
		if argv[0] != "ovn-nbctl" {
			continue
		}
		out, err := s.Run(t.Context(), argv...)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		all.WriteString(out)
	}
	for _, want := range []string{"10.0.0.2:8080", "everywhere", "net-a", "router-a", "load_balancer_group : []"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("the dump lacks %q:\n%s", want, all.String())
		}
	}
}
