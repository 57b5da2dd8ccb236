// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"net/http"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack/internal/stacktest"
	sim "github.com/kuryr/raven/test/sim/openstack"
)

const absent = "0f0e0d0c-0b0a-4908-8706-050403020100"

// TestFreeVIPWaits: a port whose load balancer is not there may belong to a create under way, so it stays until it was
// left for long.
func TestFreeVIPWaits(t *testing.T) {
	s, c := startSim(t, sim.Options{})
	_, subnet := place(t, c, "10.0.0.0/24")
	clk := clocktesting.NewFakeClock(time.Now())
	c.clock = clk
	portOf(t, s, c, subnet.ID, nil)
	free := func() (bool, time.Duration) {
		t.Helper()
		freed, wait, err := c.FreeVIP(t.Context(), subnet.ID, "10.0.0.99", 2*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return freed, wait
	}
	if freed, wait := free(); freed || wait != 2*time.Minute {
		t.Errorf("seen for the first time: %v, %v", freed, wait)
	}
	clk.Step(119 * time.Second)
	if freed, wait := free(); freed || wait != time.Second {
		t.Errorf("seen a second too early: %v, %v", freed, wait)
	}
	before := s.Count("port")
	clk.Step(time.Second)
	if freed, wait := free(); !freed || wait != 0 || s.Count("port") != before-1 {
		t.Errorf("it is not removed: %v, %v, %d ports", freed, wait, s.Count("port"))
	}
}

// TestFreeVIPLeaves: what is not exactly the VIP port of a load balancer of Raven's that is not there stays for good.
func TestFreeVIPLeaves(t *testing.T) {
	for name, of := range map[string]func(lb string) map[string]any{
		"an amphora's own port": func(string) map[string]any {
			return map[string]any{"name": "octavia-lb-vrrp-" + absent, "device_id": "lb-vrrp-" + absent}
		},
		"of a load balancer that is there": func(lb string) map[string]any {
			return map[string]any{"name": "octavia-lb-" + lb, "device_id": "lb-" + lb}
		},
		"of OVN's that is there": func(lb string) map[string]any {
			return map[string]any{"name": "ovn-lb-vip-" + lb, "device_owner": "", "device_id": ""}
		},
		"no id in its name": func(string) map[string]any {
			return map[string]any{"name": "octavia-lb-mine", "device_id": "lb-mine"}
		},
		"more than an id": func(string) map[string]any {
			return map[string]any{"name": "octavia-lb-" + absent + "-2", "device_id": "lb-" + absent + "-2"}
		},
		"no id in its name, of OVN's": func(string) map[string]any {
			return map[string]any{"name": "ovn-lb-vip-mine", "device_owner": "ovn-lb-vip-mine", "device_id": "ovn-lb-vip-mine"}
		},
		"another's device":  func(string) map[string]any { return map[string]any{"device_id": "a-machine"} },
		"a machine's":       func(string) map[string]any { return map[string]any{"device_owner": "compute:nova"} },
		"one that is bound": func(string) map[string]any { return map[string]any{"binding:host_id": "a-node"} },
		"another project's": func(string) map[string]any { return map[string]any{"project_id": sim.ProjectOther} },
		"a person's with the name of OVN's": func(string) map[string]any {
			return map[string]any{"name": "ovn-lb-vip-" + absent, "device_owner": "compute:nova"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, member := startSim(t, sim.Options{})
			_, subnet := place(t, member, "10.0.0.0/24")
			c := connect(t, stacktest.SimConfig(s, sim.UserKuryrAdmin)) // who sees them all
			attrs := wholeBalancer(subnet.ID, "amphora")
			attrs["vip_address"] = "10.0.0.98"
			lb := must(t, c, "lb", attrs)
			portOf(t, s, c, subnet.ID, of(lb.ID))
			before := s.Count("port")
			clk := clocktesting.NewFakeClock(time.Now())
			c.clock = clk
			for range 3 {
				freed, wait, err := c.FreeVIP(t.Context(), subnet.ID, "10.0.0.99", time.Minute)
				if freed || wait != 0 || err != nil || s.Count("port") != before {
					t.Fatalf("%v, %v, %v, %d ports of %d", freed, wait, err, s.Count("port"), before)
				}
				clk.Step(2 * time.Minute)
			}
		})
	}
}

// TestFreeVIPOfAnother: a port with the name of a load balancer that is not there may have become the VIP of one that
// is.
func TestFreeVIPOfAnother(t *testing.T) {
	s, c := startSim(t, sim.Options{})
	_, subnet := place(t, c, "10.0.0.0/24")
	portOf(t, s, c, subnet.ID, map[string]any{"device_owner": "", "device_id": ""})
	attrs := wholeBalancer(subnet.ID, "amphora")
	delete(attrs, "vip_address")
	delete(attrs, "vip_subnet_id")
	for _, port := range s.Ports() {
		if port["name"] == "octavia-lb-"+absent {
			attrs["vip_port_id"] = port["id"]
		}
	}
	must(t, c, "lb", attrs)
	path := "/ports/" + textOf(attrs, "vip_port_id")
	status, doc := s.Call(sim.UserAdmin, sim.ProjectAdmin, http.MethodPut, path, map[string]any{
		"port": map[string]any{"device_owner": "", "device_id": ""}, // which would tell as well
	})
	if status >= 300 {
		t.Fatalf("%d %v", status, doc)
	}
	before := s.Count("port")
	freed, wait, err := c.FreeVIP(t.Context(), subnet.ID, "10.0.0.99", time.Minute)
	if freed || wait != 0 || err != nil || s.Count("port") != before {
		t.Errorf("%v, %v, %v, %d ports of %d", freed, wait, err, s.Count("port"), before)
	}
}

// portOf makes a port as a provider makes one for a VIP, but for what is given.
func portOf(t *testing.T, s *sim.Cloud, c *Client, subnet string, other map[string]any) {
	t.Helper()
	at, err := c.networking.Get(t.Context(), drivers.KindSubnet, subnet)
	if err != nil {
		t.Fatal(err)
	}
	port := map[string]any{
		"name": "octavia-lb-" + absent, "device_owner": "Octavia", "device_id": "lb-" + absent, "project_id": c.projectID,
		"network_id": at.Attrs["network_id"],
		"fixed_ips":  []any{map[string]any{"subnet_id": subnet, "ip_address": "10.0.0.99"}},
	}
	for name, value := range other {
		port[name] = value
	}
	if status, doc := s.Call(
		sim.UserAdmin, sim.ProjectAdmin, http.MethodPost, "/ports", map[string]any{"port": port},
	); status >= 300 {
		t.Fatalf("%d %v", status, doc)
	}
}

// TestQuotaRoom: what is there counts, whoever made it, and what these credentials cannot see bounds nothing.
func TestQuotaRoom(t *testing.T) {
	room := func(c *Client, want int, bounded bool) {
		t.Helper()
		if got, limited, err := c.QuotaRoom(t.Context()); err != nil || got != want || limited != bounded {
			t.Errorf("room for %d, bounded %t, error %v; want %d, %t", got, limited, err, want, bounded)
		}
	}
	_, open := startSim(t, sim.Options{})
	room(open, 0, false)
	s, c := startSim(t, sim.Options{Quotas: map[string]int{"load_balancer": 2}})
	room(c, 2, true)
	_, subnet := place(t, c, "10.0.0.0/24")
	if _, err := c.Create(t.Context(), stacktest.Named("lb"), wholeBalancer(subnet.ID, "amphora")); err != nil {
		t.Fatal(err)
	}
	room(c, 1, true)
	for status, fails := range map[int]bool{
		http.StatusForbidden: false, http.StatusNotFound: false, http.StatusBadRequest: true,
	} {
		remove, err := s.AddFault(sim.Rule{Kind: "lb_quota", Action: sim.ActionStatus, Status: status})
		if err != nil {
			t.Fatal(err)
		}
		if _, bounded, err := c.QuotaRoom(t.Context()); bounded || (err != nil) != fails {
			t.Errorf("status %d: bounded %t, error %v", status, bounded, err)
		}
		s.RemoveFault(remove)
	}
	_, none := startSim(t, sim.Options{NoOctavia: true})
	if _, _, err := none.QuotaRoom(t.Context()); err == nil {
		t.Error("no error without Octavia")
	}
}
