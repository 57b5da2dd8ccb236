// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// floatingIPs is a cloud of floating IPs only: one of a network leads to a port, and an address that no port has is
// anybody's.
type floatingIPs struct {
	t    *testing.T
	fips map[string]*plan.Observed
	made int
	log  []string
}

func (n *floatingIPs) apply(s plan.Step) {
	if s.Kind != drivers.KindFloatingIP {
		n.t.Fatalf("what is %+v?", s)
	}
	n.log = append(n.log, fmt.Sprint(s.Op, " ", s.Identity.Name))
	attrs := maps.Clone(s.Attrs)
	switch s.Op { //nolint:exhaustive // the others are not for floating IPs
	case plan.Create:
		n.made++
		o := &plan.Observed{Kind: s.Kind, ID: fmt.Sprintf("new%d", n.made), Attrs: map[string]any{}, Tags: s.Identity.Tags()}
		n.fips[o.ID] = o
		if attrs["floating_ip_address"] == nil {
			attrs["floating_ip_address"] = fmt.Sprintf("172.24.4.%d", 100+n.made)
		}
		s.ID = o.ID
	case plan.Delete:
		delete(n.fips, s.ID)
		return
	case plan.Tag:
		o := n.fips[s.ID]
		remove, _ := attrs["remove"].([]string)
		o.Tags = slices.DeleteFunc(o.Tags, func(tag string) bool { return slices.Contains(remove, tag) })
		tags, _ := attrs["tags"].([]string)
		o.Tags = append(o.Tags, tags...)
		return
	}
	o := n.fips[s.ID]
	if text, ok := attrs["description"].(string); ok {
		o.Description = text
		delete(attrs, "description")
	}
	maps.Copy(o.Attrs, attrs)
	for _, other := range n.fips {
		if other != o && o.Attrs["port_id"] != nil && other.Attrs["port_id"] == o.Attrs["port_id"] &&
			other.Attrs["floating_network_id"] == o.Attrs["floating_network_id"] {
			n.t.Errorf("%s and %s lead to one port", o.ID, other.ID)
		}
	}
}

func (n *floatingIPs) observed() []plan.Observed {
	var list []plan.Observed
	for _, id := range slices.Sorted(maps.Keys(n.fips)) {
		o := *n.fips[id]
		o.Identity, o.Managed = plan.Parse(o.Tags, o.Description)
		list = append(list, o)
	}
	return list
}

// TestFloatingIPTakesThePlace: one that is there and leads to the port is given up only for one that is there, too.
func TestFloatingIPTakesThePlace(t *testing.T) {
	type wish = map[string]any
	const port = "vip"
	here := func(more wish) wish {
		attrs := wish{"floating_network_id": "net", "port_id": port}
		maps.Copy(attrs, more)
		return attrs
	}
	for _, c := range []struct {
		name, reason string
		policy       drivers.Policy
		wanted       string
		attrs        wish
		want         []string // the steps
		left         string   // id, address and port of what is there in the end
	}{
		{
			"another address", "the old one goes when the new one is there, which gets the port then", drivers.Delete,
			"floatingip-172.24.4.9",
			here(wish{"floating_ip_address": "172.24.4.9"}),
			[]string{"create floatingip-172.24.4.9", "delete floatingip-4", "update floatingip-172.24.4.9"},
			"new1 172.24.4.9 vip",
		},
		{
			"its own address", "it is given another name, for it could not be had again", drivers.Delete,
			"floatingip-172.24.4.7",
			here(wish{"floating_ip_address": "172.24.4.7"}),
			[]string{"update floatingip-172.24.4.7", "tag floatingip-172.24.4.7"},
			"old 172.24.4.7 vip",
		},
		{
			"another network", "both lead to the port for a moment", drivers.Delete, "floatingip-4",
			wish{"floating_network_id": "other", "port_id": port},
			[]string{"create floatingip-4", "delete floatingip-4"},
			"new1 172.24.4.101 vip",
		},
		{
			"retained", "it stays, and leads nowhere", drivers.Retain, "floatingip-172.24.4.9",
			here(wish{"floating_ip_address": "172.24.4.9"}),
			[]string{"create floatingip-172.24.4.9", "update floatingip-4", "update floatingip-172.24.4.9"},
			"new1 172.24.4.9 vip, old 172.24.4.7 <nil>",
		},
		{"not wanted any more", "nothing takes its place", drivers.Delete, "", nil, []string{"delete floatingip-4"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			old := plan.Identity{
				Cluster: "c", Owner: plan.Owner{Driver: "service-proxy", UID: "u"}, Name: "floatingip-4", Policy: c.policy,
			}
			n := &floatingIPs{t: t, fips: map[string]*plan.Observed{"old": {
				Kind: drivers.KindFloatingIP, ID: "old", Tags: old.Tags(), Description: old.Description(), CreatedAt: "2026",
				Attrs: map[string]any{"floating_network_id": "net", "port_id": port, "floating_ip_address": "172.24.4.7"},
			}}}
			desired := []plan.Desired{}
			if c.wanted != "" {
				id := old
				id.Name, id.Policy = c.wanted, drivers.Delete
				desired = append(desired, plan.Desired{Kind: drivers.KindFloatingIP, Identity: id, Attrs: c.attrs})
			}
			for range 10 {
				p := compute(plan.Input{Desired: desired, Observed: n.observed(), Prune: true})
				i := slices.IndexFunc(p.Steps, plan.Step.Ready)
				if i < 0 {
					if len(p.Steps) > 0 {
						t.Fatalf("%s; it does not come to an end: %v", c.reason, stepTexts(p))
					}
					break
				}
				// A refused create ends nothing.
				if p.Steps[i].Op == plan.Create {
					if ready := slices.DeleteFunc(slices.Clone(p.Steps), func(s plan.Step) bool {
						return !s.Ready() || s.Op == plan.Create
					}); len(ready) > 0 {
						t.Errorf("%s; this goes on without the new one: %v", c.reason, ready)
					}
				}
				n.apply(p.Steps[i])
			}
			var left []string
			for _, o := range n.observed() {
				left = append(left, fmt.Sprint(o.ID, " ", o.Attrs["floating_ip_address"], " ", o.Attrs["port_id"]))
			}
			if diff := cmp.Diff(c.left, strings.Join(left, ", ")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
			if diff := cmp.Diff(c.want, n.log); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

// stepTexts lists steps as texts: "update floatingip", with a "…" where it waits.
func stepTexts(p plan.Plan) []string {
	texts := []string{}
	for _, s := range p.Steps {
		text := string(s.Op) + " " + string(s.Kind)
		if !s.Ready() {
			text += " …"
		}
		texts = append(texts, text)
	}
	return texts
}

// TestRetainedFloatingIPLeadsNowhere once no object desires it any more.
func TestRetainedFloatingIPLeadsNowhere(t *testing.T) {
	identity := plan.Identity{
		Cluster: "c", Owner: plan.Owner{Driver: "service-proxy", UID: "u"}, Name: "floatingip-4", Policy: drivers.Retain,
	}
	p := compute(plan.Input{Prune: true, Observed: []plan.Observed{{
		Kind: drivers.KindFloatingIP, ID: "f", Identity: identity, Managed: true, Attrs: map[string]any{"port_id": "vip"},
	}}})
	if diff := cmp.Diff([]string{"update floatingip"}, stepTexts(p)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
