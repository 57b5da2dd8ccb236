// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

func compute(in plan.Input) plan.Plan { return plan.NewKinds(Kinds()...).Compute(in) }

func lbIdentity() plan.Identity {
	return plan.Identity{
		Cluster: "c", Owner: plan.Owner{Driver: "service-proxy", UID: "u"}, Name: "lb", Policy: drivers.Delete,
	}
}

// lbDoc is a load balancer as the cloud shows it: one port with two members.
func lbDoc(change func(*plan.Observed)) []plan.Observed {
	mark := lbIdentity().Description()
	o := plan.Observed{
		Kind: drivers.KindLoadBalancer, ID: "lb-1", Identity: lbIdentity(), Managed: true, Tags: lbIdentity().Tags(),
		Status: "ACTIVE",
		Attrs: map[string]any{
			"id": "lb-1", "name": "shop", "vip_subnet_id": "sub", "vip_address": "10.0.0.9", "provider": "amphora",
			"additional_vips": []any{},
			"listeners": []any{map[string]any{
				"id": "l-1", "name": "a", "protocol": "TCP", "protocol_port": int64(80), "default_pool_id": "p-1",
				"description":      mark,
				"connection_limit": int64(-1),
			}},
			"pools": []any{map[string]any{
				"id": "p-1", "name": "a", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "session_persistence": nil,
				"description": mark,
				"members": []any{
					map[string]any{"id": "m-1", "address": "10.1.0.1", "protocol_port": int64(80), "weight": int64(1), "name": "x"},
					map[string]any{"id": "m-2", "address": "10.1.0.2", "protocol_port": int64(80), "weight": int64(1), "name": "y"},
				},
			}},
		},
	}
	if change != nil {
		change(&o)
	}
	return []plan.Observed{o}
}

// lbWish is what is wanted: the same.
func lbWish(change func(*drivers.LoadBalancer)) []plan.Desired {
	member := func(last int, name string) drivers.Member {
		return drivers.Member{
			Name: name, Address: fmt.Sprintf("10.1.0.%d", last), ProtocolPort: new(int64(80)), Weight: new(int64(1)),
		}
	}
	lb := drivers.LoadBalancer{
		Name: new("shop"), VIPSubnetID: drivers.Text("sub"), VIPAddress: new("10.0.0.9"), Provider: new("amphora"),
		Listeners: []drivers.Listener{{Name: "a", Protocol: new("TCP"), ProtocolPort: new(int64(80)), DefaultPool: "a"}},
		Pools: []drivers.Pool{{
			Name: "a", Protocol: new("TCP"), LBAlgorithm: new("ROUND_ROBIN"), SessionPersistence: &drivers.SessionPersistence{},
			HealthMonitor: &drivers.HealthMonitor{}, Members: []drivers.Member{member(1, "x"), member(2, "y")},
		}},
	}
	if change != nil {
		change(&lb)
	}
	return []plan.Desired{{Kind: drivers.KindLoadBalancer, Identity: lbIdentity(), Attrs: drivers.Attributes(lb)}}
}

// brief lists steps as texts: "update pool a", with a "…" where it waits.
func stepTexts(p plan.Plan) []string {
	texts := []string{}
	for _, s := range p.Steps {
		text := string(s.Op)
		if s.Part != nil {
			text += " " + s.Part.String()
		} else {
			text += " " + string(s.Kind)
		}
		if !s.Ready() {
			text += " …"
		}
		texts = append(texts, text)
	}
	return texts
}

func TestBalancer(t *testing.T) {
	type observed = func(*plan.Observed)
	type wish = func(*drivers.LoadBalancer)
	for _, c := range []struct {
		name, reason string
		observed     observed
		wish         wish
		repair       Repair
		want         []string
	}{
		{"same", "a second pass asks for nothing", nil, nil, "", []string{}},
		{"member more", "only what differs goes", nil, func(lb *drivers.LoadBalancer) {
			lb.Pools[0].Members = append(lb.Pools[0].Members, drivers.Member{Address: "10.1.0.3", ProtocolPort: new(int64(80))})
		}, "", []string{`update the members of pool "a"`}},
		{"another address form", "addresses are compared as such", func(o *plan.Observed) {
			o.Attrs["vip_address"] = "10.0.0.9"
		}, nil, "", []string{}},
		{
			"busy", "it takes nothing until it is ready", func(o *plan.Observed) { o.Status = "PENDING_UPDATE" },
			func(lb *drivers.LoadBalancer) {
				lb.Pools[0].Members = nil
				lb.Pools[0].LBAlgorithm = new("SOURCE_IP")
				lb.AdminStateUp = new(false)
			}, "",
			[]string{"update loadbalancer …", `update pool "a" …`},
		},
		{"part being made", "it is not ready before its parts", func(o *plan.Observed) {
			structures(o.Attrs["listeners"])[0]["provisioning_status"] = "PENDING_CREATE"
		}, func(lb *drivers.LoadBalancer) { lb.Pools[0].LBAlgorithm = new("SOURCE_IP") }, "", []string{`update pool "a" …`}},
		{"part left behind", "some providers leave parts so for good", func(o *plan.Observed) {
			structures(o.Attrs["listeners"])[0]["provisioning_status"] = "PENDING_UPDATE"
		}, func(lb *drivers.LoadBalancer) { lb.Pools[0].LBAlgorithm = new("SOURCE_IP") }, "", []string{`update pool "a"`}},
		{
			"error", "nothing is done until it may be repaired", func(o *plan.Observed) { o.Status = "ERROR" }, nil, RepairNone,
			[]string{},
		},
		{
			"failover", "the provider repairs it", func(o *plan.Observed) { o.Status = "ERROR" }, nil, RepairFailover,
			[]string{"failover loadbalancer"},
		},
		{
			"replace", "the old one has the address", func(o *plan.Observed) { o.Status = "ERROR" }, nil, RepairReplace,
			[]string{"create loadbalancer …", "delete loadbalancer"},
		},
		{
			"being deleted", "it comes back when it is gone", func(o *plan.Observed) { o.Status = "PENDING_DELETE" }, nil, "",
			[]string{
				"create loadbalancer …", "delete loadbalancer …",
			},
		},
		{
			"another provider", "it cannot be changed in place", nil,
			func(lb *drivers.LoadBalancer) { lb.Provider = new("ovn") }, "",
			[]string{
				"create loadbalancer …", "delete loadbalancer",
			},
		},
		{
			"the old name of amphora", "it is the same provider", func(o *plan.Observed) { o.Attrs["provider"] = "octavia" },
			nil, "",
			[]string{},
		},
		{
			"another port", "a listener cannot change it", nil,
			func(lb *drivers.LoadBalancer) { lb.Listeners[0].ProtocolPort = new(int64(81)) }, "",
			[]string{
				`delete listener "a"`, `create listener "a"`,
			},
		},
		{"another protocol", "neither pool nor listener can change it", nil, func(lb *drivers.LoadBalancer) {
			lb.Listeners[0].Protocol, lb.Pools[0].Protocol = new("UDP"), new("UDP")
		}, "", []string{`delete listener "a"`, `delete pool "a"`, `create pool "a" …`, `create listener "a" …`}},
		{"no parts", "they go, listeners first", nil, func(lb *drivers.LoadBalancer) {
			lb.Listeners, lb.Pools = []drivers.Listener{}, []drivers.Pool{}
		}, "", []string{`delete listener "a"`, `delete pool "a"`}},
		{
			"parts not managed", "what is unset is not looked at", nil,
			func(lb *drivers.LoadBalancer) { lb.Listeners, lb.Pools = nil, nil }, "",
			[]string{},
		},
		{"an operator's part", "what Raven did not make stays", func(o *plan.Observed) {
			o.Attrs["listeners"] = append(o.Attrs["listeners"].([]any),
				map[string]any{"id": "l-2", "name": "mine", "protocol": "TCP", "protocol_port": int64(9)})
		}, nil, "", []string{}},
		{"a twin part", "a create that was cut made it", func(o *plan.Observed) {
			o.Attrs["pools"] = append(o.Attrs["pools"].([]any),
				map[string]any{"id": "p-2", "name": "a", "protocol": "TCP", "description": lbIdentity().Description()})
		}, nil, "", []string{`delete pool "a"`}},
		{"a monitor", "it is made for the pool", nil, func(lb *drivers.LoadBalancer) {
			lb.Pools[0].HealthMonitor = &drivers.HealthMonitor{
				Type: "TCP", Delay: new(int64(5)), Timeout: new(int64(3)), MaxRetries: new(int64(3)),
			}
		}, "", []string{`create the health monitor of pool "a"`}},
		{"persistence", "it is set, and taken away", func(o *plan.Observed) {
			structures(o.Attrs["pools"])[0]["session_persistence"] = map[string]any{"type": "SOURCE_IP", "cookie_name": nil}
		}, nil, "", []string{`update pool "a"`}},
		{"another address", "it is made with it only", nil, func(lb *drivers.LoadBalancer) {
			lb.AdditionalVIPs = []drivers.AdditionalVIP{{SubnetID: drivers.Text("sub6")}}
		}, "", []string{"create loadbalancer …", "delete loadbalancer"}},
		{
			"addresses that are not shown", "the cloud knows of none",
			func(o *plan.Observed) { delete(o.Attrs, "additional_vips") },
			func(lb *drivers.LoadBalancer) {
				lb.AdditionalVIPs = []drivers.AdditionalVIP{{SubnetID: drivers.Text("sub6")}}
			}, "",
			[]string{},
		},
		{"an address less", "others may want it", func(o *plan.Observed) {
			o.Attrs["additional_vips"] = []any{map[string]any{"subnet_id": "sub6", "ip_address": "fd00::9"}}
		}, func(lb *drivers.LoadBalancer) { lb.AdditionalVIPs = []drivers.AdditionalVIP{} }, "", []string{
			"create loadbalancer …", "delete loadbalancer",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			desired := lbWish(c.wish)
			desired[0].Hints = Hints{Repair: c.repair}
			p := compute(plan.Input{Desired: desired, Observed: lbDoc(c.observed), Prune: true})
			if diff := cmp.Diff(c.want, stepTexts(p)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestBalancerMembers(t *testing.T) {
	add := func(lb *drivers.LoadBalancer) {
		lb.Pools[0].Members[0].Weight = new(int64(0))
		lb.Pools[0].Members = append(lb.Pools[0].Members, drivers.Member{Address: "10.1.0.3", ProtocolPort: new(int64(80))})
	}
	p := compute(plan.Input{Desired: lbWish(add), Observed: lbDoc(nil), Prune: true})
	if got := p.Steps[0].Attrs; got["additive"] != true || len(got["members"].([]any)) != 2 {
		t.Errorf("want the two that differ: %v", got)
	}
	p = compute(plan.Input{Desired: lbWish(func(lb *drivers.LoadBalancer) {
		add(lb)
		lb.Pools[0].Members = lb.Pools[0].Members[1:]
	}), Observed: lbDoc(nil), Prune: true})
	if got := p.Steps[0].Attrs; got["additive"] != false || len(got["members"].([]any)) != 2 {
		t.Errorf("one goes, so want all that stay: %v", got)
	}
	p = compute(plan.Input{
		Desired: lbWish(func(lb *drivers.LoadBalancer) { lb.Pools[0].Members = []drivers.Member{} }), Observed: lbDoc(nil),
		Prune: true,
	})
	if got := p.Steps[0].Attrs; got["additive"] != false || len(got["members"].([]any)) != 0 {
		t.Errorf("all go: %v", got)
	}
}

// TestMemberOnAnotherSubnet goes first, and is made anew then: its subnet cannot be changed.
func TestMemberOnAnotherSubnet(t *testing.T) {
	wish := lbWish(func(lb *drivers.LoadBalancer) {
		for i := range lb.Pools[0].Members {
			lb.Pools[0].Members[i].SubnetID = drivers.Text("pods")
		}
	})
	there := lbDoc(func(o *plan.Observed) {
		members := structures(structures(o.Attrs["pools"])[0]["members"])
		members[0]["subnet_id"], members[1]["subnet_id"] = "pods", "vips"
	})
	p := compute(plan.Input{Desired: wish, Observed: there, Prune: true})
	if got := p.Steps[0].Attrs; got["additive"] != false || len(got["members"].([]any)) != 1 {
		t.Errorf("one goes, so want the one that stays: %v", got)
	}
	pool := structures(there[0].Attrs["pools"])[0]
	pool["members"] = pool["members"].([]any)[:1]
	p = compute(plan.Input{Desired: wish, Observed: there, Prune: true})
	if got := p.Steps[0].Attrs; got["additive"] != true || len(got["members"].([]any)) != 1 {
		t.Errorf("want the one that went: %v", got)
	}
}

// TestAddressHolders: an address that another load balancer of Raven's has is waited for, whoever's that is.
func TestAddressHolders(t *testing.T) {
	other := lbDoc(func(o *plan.Observed) { o.ID, o.Identity.Owner.UID = "lb-0", "gone" })
	p := compute(plan.Input{
		Desired: lbWish(nil), Prune: true,
		Dependants: func(kind drivers.Kind, id string) []plan.Observed {
			if kind == drivers.KindSubnet && id == "sub" {
				return other
			}
			return nil
		},
	})
	if len(p.Steps) != 1 || len(p.Steps[0].Waits) != 1 || !strings.Contains(p.Steps[0].Waits[0].Message, "10.0.0.9") {
		t.Errorf("want a create that waits for lb-0: %+v", p.Steps)
	}
}

// TestIgnoredAddresses: another load balancer of a provider that was seen to make no further addresses would have none
// either.
func TestIgnoredAddresses(t *testing.T) {
	wish := lbWish(func(lb *drivers.LoadBalancer) {
		lb.AdditionalVIPs = []drivers.AdditionalVIP{{SubnetID: drivers.Text("sub6")}}
	})
	wish[0].Hints = Hints{Unmade: true}
	p := compute(plan.Input{Desired: wish, Observed: lbDoc(nil), Prune: true})
	if len(p.Steps) != 0 || len(p.Notices) != 1 {
		t.Errorf("want a notice and nothing else: %+v", p)
	}
	wish = lbWish(func(lb *drivers.LoadBalancer) {
		lb.Provider, lb.AdditionalVIPs = nil, []drivers.AdditionalVIP{{SubnetID: drivers.Text("sub6")}}
	})
	for provider, notices := range map[string]int{"ovn": 1, "amphora": 0} { // OVN's shows what it does not make
		p = compute(plan.Input{Desired: wish, Prune: true, Observed: lbDoc(func(o *plan.Observed) {
			o.Attrs["provider"] = provider
			o.Attrs["additional_vips"] = []any{map[string]any{"subnet_id": "sub6", "ip_address": "fd00::9"}}
		})})
		if len(p.Steps) != 0 || len(p.Notices) != notices {
			t.Errorf("%s: want %d notices and nothing else: %+v", provider, notices, p)
		}
	}
}

// TestHoldersOfAFurtherAddress: it counts like the first one, on either side.
func TestHoldersOfAFurtherAddress(t *testing.T) {
	const address = "fd00::9"
	further := []drivers.AdditionalVIP{{SubnetID: drivers.Text("sub6"), IPAddress: address}}
	first := func(lb *drivers.LoadBalancer) { lb.VIPSubnetID, lb.VIPAddress = drivers.Text("sub6"), new(address) }
	second := func(lb *drivers.LoadBalancer) { lb.AdditionalVIPs = further }
	has := func(o *plan.Observed) {
		o.ID, o.Identity.Owner.UID = "lb-0", "gone"
		o.Attrs["vip_address"] = "10.0.0.8"
	}
	for name, c := range map[string]struct {
		wish  func(*drivers.LoadBalancer)
		there func(*plan.Observed)
	}{
		"it is the other's further one": {first, func(o *plan.Observed) {
			has(o)
			o.Attrs["additional_vips"] = []any{map[string]any{"subnet_id": "sub6", "ip_address": address}}
		}},
		"it is the wish's further one": {second, func(o *plan.Observed) {
			has(o)
			o.Attrs["vip_subnet_id"], o.Attrs["vip_address"] = "sub6", "fd00:0::9"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			other := lbDoc(c.there)
			p := compute(plan.Input{
				Desired: lbWish(c.wish), Prune: true,
				Dependants: func(kind drivers.Kind, id string) []plan.Observed {
					if kind == drivers.KindSubnet && id == "sub6" {
						return other
					}
					return nil
				},
			})
			if len(p.Steps) != 1 || len(p.Steps[0].Waits) != 1 || !strings.Contains(p.Steps[0].Waits[0].Message, address) {
				t.Errorf("want a create that waits for lb-0: %+v", p.Steps)
			}
		})
	}
}

// TestBalancerThatDoesNotGo: a deletion of what is in ERROR counts as a repair, whatever it is for, and waits while it
// rests.
func TestBalancerThatDoesNotGo(t *testing.T) {
	broken := lbDoc(func(o *plan.Observed) { o.Status = "ERROR" })
	other := lbWish(func(lb *drivers.LoadBalancer) { lb.Provider = new("ovn") })
	for name, c := range map[string]struct {
		desired  []plan.Desired
		observed []plan.Observed
		resting  map[string]string
		want     []string
		repairs  bool
	}{
		"unwanted, well":     {nil, lbDoc(nil), nil, []string{"delete loadbalancer"}, false},
		"unwanted, broken":   {nil, broken, nil, []string{"delete loadbalancer"}, true},
		"unwanted, resting":  {nil, broken, map[string]string{"lb-1": "later"}, []string{"delete loadbalancer …"}, true},
		"unwanted, not this": {nil, broken, map[string]string{"lb-2": "later"}, []string{"delete loadbalancer"}, true},
		"replaced, broken":   {other, broken, nil, []string{"create loadbalancer …", "delete loadbalancer"}, true},
		"replaced, resting": {
			other, broken, map[string]string{"lb-1": "later"}, []string{"create loadbalancer …", "delete loadbalancer …"}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := compute(plan.Input{Desired: c.desired, Observed: c.observed, Prune: true, Blocked: c.resting})
			if diff := cmp.Diff(c.want, stepTexts(p)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if last := p.Steps[len(p.Steps)-1]; last.Repairs != c.repairs {
				t.Errorf("it repairs: %v, want %v", last.Repairs, c.repairs)
			}
		})
	}
}
