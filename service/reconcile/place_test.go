// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// TestPortsStayOffTwinsOfTheirSubnet: a create that was cut makes a second subnet, and Raven has not listed since.
// Ports rather wait for room than to take addresses of that one, which is removed when it is found.
func TestPortsStayOffTwinsOfTheirSubnet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a, b := script("a", always(expandable(1))), script("b", guests("x"))
	r := w.start(with(a, b).configured(drifting))
	w.createMap("a", "x")
	r.settled(1)
	kept := w.one("subnet", "rooms")
	remove, err := w.cloud.AddFault(simcloud.Rule{Method: "GET", Action: simcloud.ActionStatus, Status: 500})
	if err != nil {
		t.Fatal(err)
	}
	twin := w.by("POST", "/subnets", map[string]any{"subnet": map[string]any{
		"name": "rooms", "network_id": kept["network_id"], "ip_version": 4, "subnetpool_id": kept["subnetpool_id"],
		"prefixlen": 29, "description": kept["description"],
	}}, 201)["subnet"].(map[string]any)
	for i := range 8 { // there is room for five
		w.createMap("b", fmt.Sprintf("p%d", i))
	}
	w.eventually("three wait", func() (bool, string) {
		waiting := len(r.engine.Objects(reconcile.Filter{Driver: "b", State: state.Waiting}))
		return waiting == 3 && r.engine.Counts()[state.Done] == 1+5, fmt.Sprint(r.engine.Counts(), "\n", w.dump())
	})
	for _, p := range w.cloud.Ports() {
		for _, address := range p["fixed_ips"].([]any) {
			if address.(map[string]any)["subnet_id"] == twin["id"] {
				t.Errorf("port %v has an address of the twin", p["name"])
			}
		}
	}
	w.cloud.RemoveFault(remove)
	w.eventually("the twin is gone", func() (bool, string) { return len(w.named("subnet", "rooms")) == 1, w.dump() })
	if got := w.one("subnet", "rooms")["id"]; got != kept["id"] {
		t.Errorf("subnet %v is kept, wanted %v", got, kept["id"])
	}
}

// TestPortsOfTwoVersions: a port takes one address of every IP version, and the full subnet of one version is what
// grows.
func TestPortsOfTwoVersions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	home := expandable(3)
	home.Resources = append(home.Resources, drivers.Resource{Name: "subnet6", Spec: drivers.Subnet{
		Name: new("rooms6"), NetworkID: drivers.From("network"), IPVersion: new(int64(6)), CIDR: new("fd00:1::/64"),
	}})
	r := w.start(with(script("a", always(home)), script("b", guests("x"))))
	w.createMap("a", "x")
	r.settled(1)
	for i := range 12 { // five in each of the IPv4 subnets
		w.createMap("b", fmt.Sprintf("p%d", i))
	}
	r.settled(13)
	if n := len(w.named("subnet", "rooms6")); n != 1 {
		t.Errorf("%d IPv6 subnets, want 1", n)
	}
	for _, p := range w.cloud.Ports() {
		if p["device_owner"] == "" && len(p["fixed_ips"].([]any)) != 2 {
			t.Errorf("port %v has the addresses %v, want one of each version", p["name"], p["fixed_ips"])
		}
	}
}
