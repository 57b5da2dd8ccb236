// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/internal/stacktest"
	"github.com/kuryr/raven/service/plan"
	sim "github.com/kuryr/raven/test/sim/openstack"
)

// rulesOf lists the directions of a group's rules.
func rulesOf(s *sim.Cloud, group string) []string {
	var directions []string
	for _, r := range s.SecurityGroupRules() {
		if r["security_group_id"] == group {
			directions = append(directions, textOf(r["direction"]))
		}
	}
	slices.Sort(directions)
	return directions
}

// bare returns what an owner wants that wants a group without default rules.
func bare() map[string]any {
	return drivers.Attributes(drivers.SecurityGroup{Name: new("bare"), DefaultRules: new(false)})
}

// TestBareGroup is made with Neutron's rules, whatever the administrator chose, and loses them by an update; its own
// stay, those of others go whenever they come.
func TestBareGroup(t *testing.T) {
	open := []map[string]any{{"direction": "ingress", "ethertype": "IPv4"}, {"direction": "egress", "ethertype": "IPv6"}}
	for name, rules := range map[string][]map[string]any{"as before 2023.2": nil, "chosen": open, "none": {}} {
		t.Run(name, func(t *testing.T) {
			s, c := startSim(t, sim.Options{DefaultRules: rules})
			group := must(t, c, drivers.KindSecurityGroup, "bare", bare())
			if group.Attrs[defaultRules] != (len(rulesOf(s, group.ID)) > 0) {
				t.Errorf("a new group has %v and counts as %v", rulesOf(s, group.ID), group.Attrs[defaultRules])
			}
			must(t, c, drivers.KindSecurityGroupRule, "rule", map[string]any{
				"security_group_id": group.ID, "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp",
			})
			for range 2 {
				got, err := c.Update(t.Context(), drivers.KindSecurityGroup, group.ID, 0, map[string]any{
					defaultRules: false, "name": "renamed",
				})
				if err != nil || got.Attrs[defaultRules] != false || got.Attrs["name"] != "renamed" {
					t.Fatalf("the group is %v, %v", got.Attrs, err)
				}
				if left := rulesOf(s, group.ID); !slices.Equal(left, []string{"ingress"}) {
					t.Errorf("left are the rules %v, want the one that was made", left)
				}
			}
			s.Call(sim.UserKuryr, sim.ProjectKuryr, http.MethodPost, "/security-group-rules", map[string]any{
				"security_group_rule": map[string]any{
					"security_group_id": group.ID, "direction": "ingress", "ethertype": "IPv6",
					"description": stacktest.Named("another").Description() + " of an operator",
				},
			})
			other := stacktest.Named("foreign")
			other.Cluster = "another"
			s.Call(sim.UserKuryr, sim.ProjectKuryr, http.MethodPost, "/security-group-rules", map[string]any{
				"security_group_rule": map[string]any{
					"security_group_id": group.ID, "direction": "egress", "ethertype": "IPv6", "description": other.Description(),
				},
			})
			got, err := c.Get(t.Context(), drivers.KindSecurityGroup, group.ID)
			if err != nil || got.Attrs[defaultRules] != true {
				t.Errorf("with a rule of another cluster the group is %v, %v", got.Attrs, err)
			}
		})
	}
}

// TestBareGroupThatKeepsARule stays as it is known: with the rule.
func TestBareGroupThatKeepsARule(t *testing.T) {
	s, c := startSim(t, sim.Options{})
	group := must(t, c, drivers.KindSecurityGroup, "bare", bare())
	if _, err := s.AddFault(sim.Rule{
		Method: http.MethodDelete, Kind: "security_group_rule", Action: sim.ActionStatus, Status: 500,
	}); err != nil {
		t.Fatal(err)
	}
	_, err := c.Update(t.Context(), drivers.KindSecurityGroup, group.ID, 0, map[string]any{defaultRules: false})
	if openstack.StatusOf(err) != 500 {
		t.Errorf("the update ended with %v", err)
	}
	if left := rulesOf(s, group.ID); len(left) != 2 {
		t.Errorf("left are %v", left)
	}
}

// TestBareGroupLosesTheRulesThatItCan: one that may not be deleted keeps no other, and is named.
func TestBareGroupLosesTheRulesThatItCan(t *testing.T) {
	s, c := startSim(t, sim.Options{})
	group := must(t, c, drivers.KindSecurityGroup, "bare", bare())
	first := textOf(plan.Field(listOf(group.Attrs["security_group_rules"])[0], "id"))
	if _, err := s.AddFault(sim.Rule{
		Method: http.MethodDelete, Path: first, Action: sim.ActionStatus, Status: 403,
	}); err != nil {
		t.Fatal(err)
	}
	_, err := c.Update(t.Context(), drivers.KindSecurityGroup, group.ID, 0, map[string]any{defaultRules: false})
	if openstack.Classify(err) != openstack.ClassForbidden || !strings.Contains(err.Error(), first) {
		t.Errorf("the update ended with %v, want the refusal of rule %s", err, first)
	}
	if left := rulesOf(s, group.ID); len(left) != 1 {
		t.Errorf("left are %v", left)
	}
}

// TestGroupIsUsable when it has no rules that it should not have, or may have any.
func TestGroupIsUsable(t *testing.T) {
	shown := func(rules ...any) map[string]any {
		return map[string]any{"id": "1", "description": stacktest.Named("g").Description(), "security_group_rules": rules}
	}
	foreign := map[string]any{"id": "2", "description": nil}
	own := map[string]any{"id": "3", "description": stacktest.Named("r").Description()}
	k := kinds()[drivers.KindSecurityGroup]
	for name, tt := range map[string]struct {
		doc           map[string]any
		any, bareOnly bool
	}{
		"none":       {shown(), true, true},
		"own":        {shown(own), true, true},
		"foreign":    {shown(own, foreign), true, false},
		"not listed": {map[string]any{"id": "1"}, true, false},
	} {
		o := k.observed(tt.doc)
		if got := isUsableGroup(drivers.SecurityGroup{}, &o); got != tt.any {
			t.Errorf("%s: usable is %v for who asks for nothing", name, got)
		}
		if got := isUsableGroup(&drivers.SecurityGroup{DefaultRules: new(false)}, &o); got != tt.bareOnly {
			t.Errorf("%s: usable is %v, want %v", name, got, tt.bareOnly)
		}
	}
}

// TestAnyAddressIsUnset in what a rule is created with, and in what exists; not where it is of the other IP version.
func TestAnyAddressIsUnset(t *testing.T) {
	for _, tt := range []struct {
		ethertype, prefix string
		left              any
	}{
		{"IPv4", "0.0.0.0/0", nil},
		{"IPv6", "::/0", nil},
		{"IPv6", "0:0::0/0", nil},
		{"IPv4", "::/0", "::/0"},
		{"IPv6", "0.0.0.0/0", "0.0.0.0/0"},
		{"IPv4", "0.0.0.0/1", "0.0.0.0/1"},
		{"IPv4", "0.0.0.0", "0.0.0.0"},
	} {
		d := plan.Desired{Kind: drivers.KindSecurityGroupRule, Identity: stacktest.Named("r"), Attrs: map[string]any{
			"security_group_id": "g", "direction": "ingress", "ethertype": tt.ethertype, "remote_ip_prefix": tt.prefix,
		}}
		p := plan.NewKinds(Kinds()...).Compute(plan.Input{Desired: []plan.Desired{d}})
		if len(p.Steps) != 1 || p.Steps[0].Attrs["remote_ip_prefix"] != tt.left {
			t.Errorf("%s %s is created as %v", tt.ethertype, tt.prefix, p.Steps)
		}
		if tt.left != nil {
			continue
		}
		there := plan.Observed{Kind: d.Kind, ID: "1", Identity: d.Identity, Managed: true, Tags: d.Identity.Tags()}
		there.Attrs = map[string]any{
			"security_group_id": "g", "direction": "ingress", "ethertype": tt.ethertype, "remote_ip_prefix": nil,
		}
		p = plan.NewKinds(Kinds()...).Compute(plan.Input{
			Desired: []plan.Desired{d}, Observed: []plan.Observed{there}, Prune: true,
		})
		if len(p.Steps) != 0 {
			t.Errorf("%s %s beside the rule without a range: %v", tt.ethertype, tt.prefix, p.Steps)
		}
	}
}
