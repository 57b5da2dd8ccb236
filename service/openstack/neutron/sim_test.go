// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/internal/stacktest"
	"github.com/kuryr/raven/service/plan"
	sim "github.com/kuryr/raven/test/sim/openstack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(tb testing.TB, config openstack.Config) *Client {
	tb.Helper()
	c, err := New(tb.Context(), stacktest.Connect(tb, config))
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func startSim(tb testing.TB, o sim.Options) (*sim.Cloud, *Client) {
	tb.Helper()
	s := stacktest.StartSim(tb, o)
	return s, connect(tb, stacktest.SimConfig(s, sim.UserKuryr))
}

// must makes one resource.
func must(tb testing.TB, c *Client, kind drivers.Kind, name string, attrs map[string]any) plan.Observed {
	tb.Helper()
	o, err := c.Create(tb.Context(), kind, stacktest.Named(name), attrs)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

// place makes a network with a subnet.
func place(tb testing.TB, c *Client, cidr string) (network, subnet plan.Observed) {
	tb.Helper()
	network = must(tb, c, drivers.KindNetwork, "net", map[string]any{"name": "net"})
	subnet = must(
		tb, c, drivers.KindSubnet, "subnet", map[string]any{"network_id": network.ID, "ip_version": int64(4), "cidr": cidr},
	)
	return network, subnet
}

// TestEveryKind makes one of each, finds them all, changes, tags and deletes them.
func TestEveryKind(t *testing.T) {
	s, c := startSim(t, sim.Options{})
	external, err := c.Lookup(t.Context(), drivers.KindNetwork, "public")
	if err != nil {
		t.Fatal(err)
	}
	network, subnet := place(t, c, "10.0.0.0/24")
	must(
		t, c, drivers.KindSubnetPool, "pool",
		map[string]any{"name": "pool", "prefixes": []any{"10.64.0.0/16"}, "default_prefixlen": int64(24)},
	)
	router := must(t, c, drivers.KindRouter, "router", map[string]any{
		"name": "router", "external_gateway_info": map[string]any{"network_id": external.ID},
	})
	rif := must(t, c, drivers.KindRouterInterface, "rif.router", map[string]any{
		"router_id": router.ID, "subnet_id": subnet.ID, "network_id": network.ID, "ip_address": "10.0.0.1",
	})
	for range 2 {
		if err := c.Attach(t.Context(), router.ID, rif.ID); err != nil {
			t.Fatal(err)
		}
	}
	group := must(t, c, drivers.KindSecurityGroup, "group", map[string]any{"name": "group"})
	rule := map[string]any{"security_group_id": group.ID, "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp"}
	must(t, c, drivers.KindSecurityGroupRule, "rule", rule)
	if _, err := c.Create(
		t.Context(), drivers.KindSecurityGroupRule, stacktest.Named("rule2"), rule,
	); openstack.Classify(err) != openstack.ClassExists {
		t.Errorf("the same rule again: %v (%v)", err, openstack.Classify(err))
	}
	port := must(
		t, c, drivers.KindPort, "port",
		map[string]any{"network_id": network.ID, "mac_address": MAC(stacktest.Named("port"))},
	)
	must(t, c, drivers.KindFloatingIP, "fip", map[string]any{"floating_network_id": external.ID, "port_id": port.ID})

	all, err := c.Observe(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, o := range all {
		kinds = append(kinds, string(o.Kind)+" "+o.Identity.Name)
		if o.Kind == drivers.KindRouterInterface {
			want := map[string]any{
				"router_id": router.ID, "subnet_id": subnet.ID, "ip_address": "10.0.0.1", "network_id": network.ID,
			}
			for key, value := range want {
				if o.Attrs[key] != value {
					t.Errorf("%s of the interface is %v, want %v", key, o.Attrs[key], value)
				}
			}
		}
	}
	slices.Sort(kinds)
	want := []string{
		"floatingip fip", "network net", "port port", "router router", "router_interface rif.router", "security_group group",
		"security_group_rule rule", "subnet subnet", "subnetpool pool",
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Fatal(diff)
	}

	if _, err := c.Create(t.Context(), drivers.KindPort, stacktest.Named("port"), map[string]any{
		"network_id": network.ID, "mac_address": MAC(stacktest.Named("port")),
	}); openstack.Classify(err) != openstack.ClassExists {
		t.Errorf("the same port again: %v (%v)", err, openstack.Classify(err))
	}
	for kind, id := range map[drivers.Kind]string{
		drivers.KindNetwork: network.ID, drivers.KindSubnet: subnet.ID, drivers.KindRouter: router.ID,
		drivers.KindRouterInterface: rif.ID,
	} {
		if err := c.Delete(t.Context(), kind, id); openstack.Classify(err) != openstack.ClassInUse {
			t.Errorf("deleting a %s in use: %v (%v)", kind, err, openstack.Classify(err))
		}
		if users, err := c.Dependants(
			t.Context(), kind, id,
		); err != nil || (len(users) == 0 && kind != drivers.KindRouterInterface) {
			t.Errorf("users of the %s: %v, %v", kind, users, err)
		}
	}

	// Another client's change of the port raises its revision: this one is stale then.
	fresh, err := c.Get(t.Context(), drivers.KindPort, port.ID)
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := s.Call(
		sim.UserKuryr, sim.ProjectKuryr, "PUT", "/ports/"+port.ID+"/tags/operators-own", nil,
	); status != 201 {
		t.Fatal(status)
	}
	if _, err := c.Update(
		t.Context(), drivers.KindPort, port.ID, fresh.Revision, map[string]any{"name": "x"},
	); openstack.Classify(err) != openstack.ClassStale {
		t.Errorf("a stale update: %v (%v)", err, openstack.Classify(err))
	}
	if err := c.AddTags(t.Context(), drivers.KindPort, port.ID, []string{"raven:extra=1"}); err != nil {
		t.Error(err)
	}
	fresh, err = c.Get(t.Context(), drivers.KindPort, port.ID)
	if err != nil || !slices.Contains(fresh.Tags, "operators-own") || len(fresh.Tags) != 6 {
		t.Errorf("tags %v, %v", fresh.Tags, err)
	}
	if got, err := c.Update(
		t.Context(), drivers.KindPort, port.ID, fresh.Revision, map[string]any{"name": "x"},
	); err != nil || got.Attrs["name"] != "x" {
		t.Errorf("got %v, %v", got.Attrs["name"], err)
	}
	tearDown(t, s, c, router.ID)
}

// tearDown deletes what there is, in order, each twice.
func tearDown(t *testing.T, s *sim.Cloud, c *Client, routerID string) {
	t.Helper()
	order := []drivers.Kind{
		drivers.KindFloatingIP, drivers.KindPort, drivers.KindRouterInterface, drivers.KindRouter, drivers.KindSubnet,
		drivers.KindNetwork,
		drivers.KindSubnetPool, drivers.KindSecurityGroupRule, drivers.KindSecurityGroup,
	}
	for _, kind := range order {
		found, err := c.List(t.Context(), kind, "c1")
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range found {
			for range 2 {
				if kind == drivers.KindRouterInterface {
					err = c.Detach(t.Context(), routerID, o.ID)
				} else {
					err = c.Delete(t.Context(), kind, o.ID)
				}
				if err != nil {
					t.Errorf("deleting %s %s: %v", kind, o.Identity.Name, err)
				}
			}
		}
	}
	if all, err := c.Observe(t.Context(), "c1"); err != nil || len(all) != 0 {
		t.Errorf("left over: %v, %v", ids(all), err)
	}
	if n := len(s.Ports()); n != 0 {
		t.Errorf("%d ports are left", n)
	}
}

// many creates n ports at once in a network and returns their errors.
func many(ctx context.Context, c *Client, n int, attrs func(i int) map[string]any) []error {
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() {
			identity := stacktest.IdentityOf(i)
			_, errs[i] = c.Create(ctx, drivers.KindPort, identity, attrs(i))
		})
	}
	wait.Wait()
	return errs
}

func TestSimulatedBulk(t *testing.T) {
	tests := []struct {
		name  string
		setup func(t *testing.T, s *sim.Cloud, attrs []map[string]any)
		want  map[openstack.Class]int
	}{
		{"all well", func(*testing.T, *sim.Cloud, []map[string]any) {}, map[openstack.Class]int{openstack.ClassNone: 60}},
		{"one of no network", func(_ *testing.T, _ *sim.Cloud, attrs []map[string]any) {
			attrs[33]["network_id"] = "0b7f1d8a-8a3b-4b11-9ed1-0d2f5d7a8b11"
		}, map[openstack.Class]int{openstack.ClassNone: 59, openstack.ClassNotFound: 1}},
		{"one with an invalid address", func(_ *testing.T, _ *sim.Cloud, attrs []map[string]any) {
			attrs[7]["fixed_ips"] = []any{map[string]any{"ip_address": "192.168.77.1"}}
		}, map[openstack.Class]int{openstack.ClassNone: 59, openstack.ClassTerminal: 1}},
		{"one attribute too many", func(_ *testing.T, _ *sim.Cloud, attrs []map[string]any) {
			attrs[50]["bogus"] = "1"
		}, map[openstack.Class]int{openstack.ClassNone: 59, openstack.ClassTerminal: 1}},
		{"over quota", func(_ *testing.T, s *sim.Cloud, _ []map[string]any) {
			s.SetQuota(s.ProjectID(sim.ProjectKuryr), "port", 0)
		}, map[openstack.Class]int{openstack.ClassQuota: 60}},
		{"a host that may not be set", func(_ *testing.T, _ *sim.Cloud, attrs []map[string]any) {
			for _, a := range attrs {
				a["binding:host_id"] = "node-1"
			}
		}, map[openstack.Class]int{openstack.ClassNone: 60}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, c := startSim(t, sim.Options{Profile: sim.Flat(5 * time.Millisecond)})
			network, _ := place(t, c, "10.0.0.0/16")
			attrs := make([]map[string]any, 60)
			for i := range attrs {
				attrs[i] = map[string]any{"network_id": network.ID, "mac_address": MAC(stacktest.IdentityOf(i))}
			}
			test.setup(t, s, attrs)
			errs := many(t.Context(), c, len(attrs), func(i int) map[string]any { return attrs[i] })
			got := classes(errs)
			if fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("got %v, want %v", got, test.want)
				for _, err := range errs {
					if err != nil {
						t.Log(err)
					}
				}
			}
			found, err := c.List(t.Context(), drivers.KindPort, "c1")
			if err != nil || len(found) != test.want[openstack.ClassNone] {
				t.Errorf("%d ports, %v", len(found), err)
			}
			for _, r := range c.Stats().Requests {
				if r.Kind == "ports" && r.Method == "POST" {
					t.Logf("%+v", r)
				}
			}
		})
	}
}

func TestSimulatedHostBinding(t *testing.T) {
	s, member := startSim(t, sim.Options{})
	network, _ := place(t, member, "10.0.0.0/16")
	admin := connect(t, stacktest.SimConfig(s, sim.UserKuryrAdmin))
	for name, c := range map[string]*Client{"member": member, "admin": admin} {
		o, err := c.Create(
			t.Context(), drivers.KindPort, stacktest.Named(name),
			map[string]any{"network_id": network.ID, "binding:host_id": "node-1"},
		)
		if err != nil {
			t.Fatal(err)
		}
		if bound := o.Attrs["binding:host_id"] == "node-1"; bound != (name == "admin") ||
			(len(c.Unsupported(drivers.KindPort)) == 0) != bound {
			t.Errorf("%s: bound %t, unsupported %v", name, bound, c.Unsupported(drivers.KindPort))
		}
	}
}

// TestSimulatedAmbiguity cuts a bulk create after it took effect, before, and lets it take effect late.
func TestSimulatedAmbiguity(t *testing.T) {
	tests := []struct {
		name   string
		rule   sim.Rule
		exists bool // at once
	}{
		{"applied, then cut", sim.Rule{Action: sim.ActionApplyCut}, true},
		{"applied, then half an answer", sim.Rule{Action: sim.ActionTruncate}, true},
		{"applied, then a proxy gives up", sim.Rule{Action: sim.ActionApplyStatus, Status: 504}, true},
		{"cut", sim.Rule{Action: sim.ActionCut}, false},
		{"500", sim.Rule{Action: sim.ActionStatus, Status: 500}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, c := startSim(t, sim.Options{})
			network, _ := place(t, c, "10.0.0.0/16")
			test.rule.Method, test.rule.Kind = "POST", "port"
			if _, err := s.AddFault(test.rule); err != nil {
				t.Fatal(err)
			}
			attrs := func(i int) map[string]any {
				return map[string]any{"network_id": network.ID, "mac_address": MAC(stacktest.IdentityOf(i))}
			}
			if got := classes(many(t.Context(), c, 40, attrs)); got[openstack.ClassAmbiguous] != 40 {
				t.Fatalf("got %v, want all ambiguous", got)
			}
			s.ClearFaults()
			var wait sync.WaitGroup
			for i := range 40 {
				wait.Go(func() {
					found, err := c.ListIdentity(t.Context(), drivers.KindPort, stacktest.IdentityOf(i))
					if err != nil || (len(found) == 1) != test.exists {
						t.Errorf("port %d: %v, %v", i, ids(found), err)
					}
				})
			}
			wait.Wait()
			want := openstack.ClassNone
			if test.exists {
				want = openstack.ClassExists // by the MAC address
			}
			if got := classes(many(t.Context(), c, 40, attrs)); got[want] != 40 {
				t.Errorf("once more: %v, want all %v", got, want)
			}
			if n := len(s.Ports()); n != 40 {
				t.Errorf("%d ports, want 40", n)
			}
		})
	}
}

func TestSimulatedPaging(t *testing.T) {
	s, c := startSim(t, sim.Options{PageLimit: 7})
	network, _ := place(t, c, "10.0.0.0/16")
	for _, err := range many(
		t.Context(), c, 50, func(int) map[string]any { return map[string]any{"network_id": network.ID} },
	) {
		if err != nil {
			t.Fatal(err)
		}
	}
	found, err := c.List(t.Context(), drivers.KindPort, "c1")
	if err != nil || len(found) != 50 {
		t.Errorf("%d ports, %v", len(found), err)
	}
	for _, action := range []sim.Action{sim.ActionCut, sim.ActionTruncate, sim.ActionStatus} {
		if _, err := s.AddFault(
			sim.Rule{Method: "GET", Kind: "port", Query: "marker=", Nth: 3, Times: 100, Action: action, Status: 500},
		); err != nil {
			t.Fatal(err)
		}
		if found, err := c.List(t.Context(), drivers.KindPort, "c1"); err == nil || found != nil {
			t.Errorf("%s: %d ports, %v", action, len(found), err)
		}
		s.ClearFaults()
	}
}

func TestSimulatedTokens(t *testing.T) {
	s, c := startSim(t, sim.Options{})
	network, _ := place(t, c, "10.0.0.0/16")
	s.ResetLog()
	s.ExpireTokens()
	for _, err := range many(
		t.Context(), c, 100, func(int) map[string]any { return map[string]any{"network_id": network.ID} },
	) {
		if err != nil {
			t.Error(err)
		}
	}
	logins := 0
	for _, r := range s.Log(0) {
		if r.Kind == "token" {
			logins++
		}
	}
	if logins != 1 {
		t.Errorf("%d logins, want 1", logins)
	}
	if err := s.SetPassword(sim.UserKuryr, "another"); err != nil {
		t.Fatal(err)
	}
	s.ExpireTokens()
	_, err := c.Get(t.Context(), drivers.KindNetwork, network.ID)
	if openstack.Classify(err) != openstack.ClassUnauthorized {
		t.Errorf("after the password changed: %v (%v)", err, openstack.Classify(err))
	}
	if err == nil || !strings.Contains(err.Error(), "check the credentials in [neutron]") {
		t.Errorf("it does not say what to check: %v", err)
	}
	if problem := c.connection.Identity().Problem; !strings.Contains(problem, "401") {
		t.Errorf("Keystone is said to be usable: %q", problem)
	}
	auth := s.AppCredAuth()
	ac := connect(t, openstack.Config{
		AuthURL: s.AuthURL(), ApplicationCredentialID: auth["application_credential_id"].(string),
		ApplicationCredentialSecret: auth["application_credential_secret"].(string),
	})
	if ac.connection.ProjectID() != s.ProjectID(sim.ProjectKuryr) {
		t.Errorf("project %q", ac.connection.ProjectID())
	}
}
