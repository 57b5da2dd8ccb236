// SPDX-License-Identifier: Apache-2.0

package ovn_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/plan"
)

const (
	kindGroup    = drivers.KindOVNLoadBalancerGroup
	kindBalancer = drivers.KindOVNLoadBalancer
)

func TestRows(t *testing.T) {
	r := newRig(t)
	r.ctl("ls-add", "neutron-net1")
	g := r.group("net1")
	of := identity("service-proxy", "u1", "lb")
	of.Source = "services"
	made, err := r.Create(t.Context(), kindBalancer, of, map[string]any{"name": "web/u1", "group_id": g, "vips": []any{
		vip("TCP", "10.0.0.1", 80, 0, backend("10.1.0.5", 8080), backend("10.1.0.4", 8080)),
		vip("UDP", "10.0.0.1", 53, 0, backend("10.1.0.4", 53)),
		vip("TCP", "fd00:0::1", 443, 10800, backend("fd00::2:1", 8443)),
		vip("TCP", "10.0.0.1", 81, 0),
	}})
	if err != nil {
		t.Fatal(err)
	}
	list, err := r.List(kindBalancer)
	if err != nil {
		t.Fatal(err)
	}
	short := identity(plan.ShortDriver("service-proxy"), "u1", "lb")
	short.Source = "services"
	want := plan.Observed{
		Kind: kindBalancer, ID: ovn.ID(kindBalancer, of), Managed: true, Identity: short,
		Attrs: map[string]any{"name": "web/u1", "group_id": g, "vips": []any{
			vip("TCP", "10.0.0.1", 80, 0, backend("10.1.0.4", 8080), backend("10.1.0.5", 8080)),
			map[string]any{"protocol": "TCP", "address": "10.0.0.1", "port": int64(81), "backends": []any{}},
			vip("TCP", "fd00::1", 443, 10800, backend("fd00::2:1", 8443)),
			vip("UDP", "10.0.0.1", 53, 0, backend("10.1.0.4", 53)),
		}},
		Tags: of.Tags(), Description: of.Description(),
	}
	if diff := cmp.Diff([]plan.Observed{want}, list); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Error("made is not as listed", diff)
	}
	if diff := cmp.Diff([]string{"web/u1:tcp", "web/u1:tcp-10800", "web/u1:udp"},
		r.column("Load_Balancer", "name")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{
		"10.0.0.1:53=10.1.0.4:53", `10.0.0.1:80=10.1.0.4:8080,10.1.0.5:8080 10.0.0.1:81=`, "[fd00::1]:443=[fd00::2:1]:8443",
	},
		r.column("Load_Balancer", "vips")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"ct_flush=true reject=true", "reject=true", "reject=true"},
		r.column("Load_Balancer", "options")); diff != "" {
		t.Error(diff)
	}
	if got := r.ctl("--bare", "--no-headings", "--columns=name", "find", "Load_Balancer",
		"selection_fields=eth_src,ip_src"); got != "web/u1:tcp-10800" {
		t.Errorf("clients are kept with their backends by %q", got)
	}
	if got := r.committed(); got != 2 {
		t.Errorf("%d transactions for a group and a load balancer, want 2", got)
	}
}

// TestExternalVIPs: routers answer for what is reached from outside wherever it is; for a clusterIP they must not.
func TestExternalVIPs(t *testing.T) {
	r := newRig(t)
	g := r.group()
	outside, inside := vip("TCP", "192.0.2.9", 80, 60, backend("10.1.0.4", 1)), vip("TCP", "10.0.0.1", 80, 60,
		backend("10.1.0.4", 1))
	outside["external"] = true
	made := r.balancer("u1", g, inside, outside)
	if diff := cmp.Diff([]any{inside, outside}, made.Attrs["vips"]); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string]string{
		"web/u1:tcp-60": "reject=true", "web/u1:tcp-60-external": "neighbor_responder=all reject=true",
	} {
		if got := r.ctl("--bare", "--no-headings", "--columns=options", "find", "Load_Balancer",
			fmt.Sprintf("name=%q", name)); got != want {
			t.Errorf("%s: options %s, want %s", name, got, want)
		}
	}
	delete(outside, "external")
	made, err := r.Update(t.Context(), kindBalancer, made.ID, map[string]any{"vips": []any{inside, outside}})
	if diff := cmp.Diff([]any{inside, outside}, made.Attrs["vips"]); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if rows := r.column("Load_Balancer", "name"); !cmp.Equal(rows, []string{"web/u1:tcp-60"}) {
		t.Errorf("rows %v", rows)
	}
}

func TestCreateTwiceAndNothingToDo(t *testing.T) {
	r := newRig(t)
	g := r.group()
	first := r.balancer("u1", g, vip("TCP", "10.0.0.1", 80, 0, backend("10.1.0.4", 1)))
	writes := r.committed()
	second := r.balancer("u1", g, vip("TCP", "10.0.0.1", 80, 0, backend("10.1.0.4", 1)))
	if diff := cmp.Diff(first, second); diff != "" {
		t.Error(diff)
	}
	if r.group() != g || r.committed() != writes {
		t.Errorf("%d transactions for what is there already", r.committed()-writes)
	}
	if got := r.column("Load_Balancer", "name"); len(got) != 1 {
		t.Errorf("rows %v, want one", got)
	}
}

func TestUpdate(t *testing.T) {
	r := newRig(t)
	g := r.group()
	id := r.balancer("u1", g, vip("TCP", "10.0.0.1", 80, 0, backend("10.1.0.4", 1)), vip("UDP", "10.0.0.1", 80, 0)).ID
	vips := []any{vip("TCP", "10.0.0.1", 80, 60, backend("10.1.0.5", 1))}
	got, err := r.Update(t.Context(), kindBalancer, id, map[string]any{"vips": vips})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"name": "web/u1", "group_id": g, "vips": vips}, got.Attrs); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"web/u1:tcp-60"}, r.column("Load_Balancer", "name")); diff != "" {
		t.Error(diff)
	}
	got, err = r.Update(t.Context(), kindBalancer, id, map[string]any{"vips": []any{}, "name": "other"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"name": "other", "group_id": g, "vips": []any{}}, got.Attrs); diff != "" {
		t.Error(diff)
	}
	retained := identity("service-proxy", "u1", "lb")
	retained.Policy = drivers.Retain
	got, err = r.Update(t.Context(), kindBalancer, id, map[string]any{"description": retained.Description()})
	if err != nil || got.Identity.Policy != drivers.Retain {
		t.Errorf("policy %s, error %v, want retain", got.Identity.Policy, err)
	}
	if len(r.column("Load_Balancer", "name")) != 1 {
		t.Error("a load balancer without VIPs has no row to be known by")
	}
	if err := r.Delete(t.Context(), kindBalancer, id); err != nil {
		t.Fatal(err)
	}
	if err := r.Delete(t.Context(), kindBalancer, id); err != nil {
		t.Error("to delete what is gone is an error:", err)
	}
	if got := r.column("Load_Balancer", "name"); len(got) > 0 {
		t.Errorf("left: %v", got)
	}
	_, err = r.Update(t.Context(), kindBalancer, id, map[string]any{"name": "x"})
	if gone := (*ovn.GoneError)(nil); !errors.As(err, &gone) {
		t.Errorf("error %v, want a GoneError", err)
	}
}

func TestInvalid(t *testing.T) {
	r := newRig(t)
	g := r.group()
	for name, vips := range map[string][]any{
		"twice with other backends": {vip("TCP", "10.0.0.1", 80, 0), vip("TCP", "10.0.0.1", 80, 0, backend("10.1.0.1", 1))},
		"of another IP version":     {vip("TCP", "10.0.0.1", 80, 0, backend("fd00::1", 1))},
		"of no protocol of OVN's":   {vip("ICMP", "10.0.0.1", 80, 0)},
		"without a port":            {vip("TCP", "10.0.0.1", 0, 0)},
	} {
		_, err := r.Create(t.Context(), kindBalancer, identity("service-proxy", "u9", "lb"),
			map[string]any{"group_id": g, "vips": vips})
		if invalid := (*ovn.InvalidError)(nil); !errors.As(err, &invalid) {
			t.Errorf("%s: error %v, want an InvalidError", name, err)
		}
	}
	_, err := r.Create(t.Context(), kindBalancer, identity("service-proxy", "u9", "lb"),
		map[string]any{"group_id": "nowhere", "vips": []any{}})
	if missing := (*ovn.MissingError)(nil); !errors.As(err, &missing) || !slices.Equal(missing.Rows, []string{"nowhere"}) {
		t.Errorf("error %v, want a MissingError for the group", err)
	}
	if got := r.column("Load_Balancer", "name"); len(got) > 0 {
		t.Errorf("rows of what was refused: %v", got)
	}
}

func TestGroupJoinsSwitchesAndRouters(t *testing.T) {
	r := newRig(t)
	r.ctl("ls-add", "neutron-net1", "--", "ls-add", "neutron-net2", "--", "ls-add", "other", "--", "lr-add",
		"neutron-rtr1")
	g := r.group("net1")
	update := func(networks, routers []any) (plan.Observed, error) {
		return r.Update(t.Context(), kindGroup, g, map[string]any{"networks": networks, "routers": routers})
	}
	got, err := update([]any{"net1", "net2", "net3", "net4"}, []any{"rtr1", "rtr2"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"name": "raven services", "networks": []any{"net1", "net2"}, "routers": []any{"rtr1"}}
	if diff := cmp.Diff(want, got.Attrs); diff != "" {
		t.Error(diff)
	}
	_, err = update([]any{"net1", "net2", "net3", "net4"}, []any{"rtr1", "rtr2"})
	if missing := (*ovn.MissingError)(nil); !errors.As(err, &missing) ||
		!slices.Equal(missing.Rows, []string{"neutron-net3", "neutron-net4", "neutron-rtr2"}) {
		t.Errorf("error %v, want a MissingError for all that are missing", err)
	}
	r.seen.forget()
	r.ctl("ls-add", "neutron-net3")
	r.until("neutron-net3 is told to have arrived", func() bool {
		r.seen.mu.Lock()
		defer r.seen.mu.Unlock()
		return len(r.seen.arrived) == 1 && r.seen.arrived[0] == "neutron-net3"
	})
	if got, err = update([]any{"net2", "net3"}, []any{}); err != nil {
		t.Fatal(err)
	}
	want = map[string]any{"name": "raven services", "networks": []any{"net2", "net3"}, "routers": []any{}}
	if diff := cmp.Diff(want, got.Attrs); diff != "" {
		t.Error(diff)
	}
	// Deleting goes although switches refer to it, another owner's too.
	uuid := r.column("Load_Balancer_Group", "_uuid")[0]
	r.ctl("add", "Logical_Switch", "other", "load_balancer_group", uuid)
	r.until("the group of another's switch is known", func() bool { return r.Delete(t.Context(), kindGroup, g) == nil })
	if got := r.column("Load_Balancer_Group", "name"); len(got) > 0 {
		t.Errorf("left: %v", got)
	}
}

func TestForeignRowsStay(t *testing.T) {
	r := newRig(t)
	r.ctl("ls-add", "neutron-net1", "--", "lb-add", "web/u1:tcp", "10.9.9.9:80", "10.1.1.1:80", "--", "ls-lb-add",
		"neutron-net1", "web/u1:tcp")
	r.ctl("create", "Load_Balancer_Group", "name=clbg")
	r.ctl("add", "Logical_Switch", "neutron-net1", "load_balancer_group", r.column("Load_Balancer_Group", "_uuid")[0])
	r.ctl("--", "--id=@x", "create", "Load_Balancer", "name=another-cluster",
		`external_ids={raven\:cluster=c2,raven\:owner=service-proxy\:u1,raven\:name=lb}`)
	before := r.ctl("list", "Load_Balancer")
	g := r.group("net1")
	id := r.balancer("u1", g, vip("TCP", "10.0.0.1", 80, 0)).ID
	if list, err := r.List(kindBalancer); err != nil || len(list) != 1 {
		t.Errorf("list %v, error %v, want ours only", list, err)
	}
	// What others add to a row of Raven's stays as well.
	r.ctl("set", "Load_Balancer", r.uuidOf("web/u1:tcp", "raven"), "options:hairpin_snat_ip=10.0.0.9",
		"external_ids:note=mine")
	if _, err := r.Update(t.Context(), kindBalancer, id,
		map[string]any{"vips": []any{vip("TCP", "10.0.0.2", 80, 0)}}); err != nil {
		t.Fatal(err)
	}
	if got := r.ctl("get", "Load_Balancer", r.uuidOf("web/u1:tcp", "raven"), "options:hairpin_snat_ip",
		"external_ids:note"); got != "\"10.0.0.9\"\nmine" {
		t.Errorf("of an operator's additions is left: %s", got)
	}
	if err := r.Delete(t.Context(), kindBalancer, id); err != nil {
		t.Fatal(err)
	}
	if err := r.Delete(t.Context(), kindGroup, g); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, r.ctl("list", "Load_Balancer")); diff != "" {
		t.Error("rows of others were touched", diff)
	}
	if got := r.ctl("--bare", "get", "Logical_Switch", "neutron-net1", "load_balancer_group"); got != "["+
		r.column("Load_Balancer_Group", "_uuid")[0]+"]" {
		t.Errorf("groups of the switch: %s, want the other one's", got)
	}
}

// TestNamesThatAreNoText: a NUL would have the server end the connection, for every change that is under way.
func TestNamesThatAreNoText(t *testing.T) {
	r := newRig(t)
	g := r.group()
	o, err := r.Create(t.Context(), kindBalancer, identity("service-proxy", "u1", "lb"),
		map[string]any{"name": "a\x00b\xff\"c", "group_id": g, "vips": []any{vip("TCP", "10.0.0.1", 80, 0)}})
	if err != nil || o.Attrs["name"] != "ab\uFFFD\"c" {
		t.Errorf("name %q, error %v", o.Attrs["name"], err)
	}
}

// TestOneVIPTwice: of two that want a VIP the first has it; the other has all else, and the VIP when it is free.
func TestOneVIPTwice(t *testing.T) {
	r := newRig(t)
	g := r.group()
	first := r.balancer("u1", g, vip("TCP", "10.0.0.9", 80, 0, backend("10.1.0.1", 1)))
	mine, theirs := vip("TCP", "10.0.0.2", 80, 0), vip("TCP", "10.0.0.9", 80, 0)
	second := r.balancer("u2", g, mine, theirs)
	if diff := cmp.Diff([]any{mine}, second.Attrs["vips"], cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	_, err := r.Update(t.Context(), kindBalancer, second.ID, map[string]any{"vips": []any{mine, theirs}})
	conflict := (*ovn.ConflictError)(nil)
	if !errors.As(err, &conflict) || conflict.Holder != first.ID || conflict.Name != "web/u1" {
		t.Errorf("error %v, want a ConflictError for web/u1", err)
	}
	r.balancer("u3", g, vip("UDP", "10.0.0.9", 80, 0)) // another protocol is another VIP
	if err := r.Delete(t.Context(), kindBalancer, first.ID); err != nil {
		t.Fatal(err)
	}
	second, err = r.Update(t.Context(), kindBalancer, second.ID, map[string]any{"vips": []any{mine, theirs}})
	if diff := cmp.Diff([]any{mine, theirs}, second.Attrs["vips"], cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Error(err, diff)
	}
}
