// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack/neutron"
	"github.com/kuryr/raven/service/plan"
)

// world is a cluster's owners with their wishes, and the cloud.
type world struct {
	cloud *cloud
	rnd   *rand.Rand
	// namespaces maps a name to the features of its Set; pods maps a namespace to its pods.
	namespaces map[string]*features
	owners     []plan.Owner // every owner that ever was
	prune      bool
	full       map[string]bool
}

type features struct {
	rules, pods int
	dns         string
	cidr        string // empty: from the pool
	subnet      string // logical name of the subnet
	gone        bool
}

const (
	testCluster = "4cd1e8d6-5f0b-4d6c-9d9e-7b8d0a1c2e3f"
	testUID     = "0b6c7c1a-3a0f-4a53-8f4e-2d6a1c9b7e55"
)

// resourceKey names one resource of an owner.
type resourceKey struct {
	kind drivers.Kind
	key  plan.Key
}

func text(s string) *string { return &s }
func number(n int64) *int64 { return &n }

func nsOwner(ns string) plan.Owner         { return plan.Owner{"namespace", "ns-" + ns} }
func podOwner(ns string, n int) plan.Owner { return plan.Owner{"pod", fmt.Sprintf("pod-%s-%d", ns, n)} }
func sharedOwner() plan.Owner              { return plan.Owner{Driver: plan.Shared} }
func nsRole(ns, role string) drivers.Role {
	return drivers.Role{Kind: "Namespace", Name: ns, Role: role}
}

func (w *world) set(owner plan.Owner) []drivers.Resource {
	switch owner.Driver {
	case plan.Shared:
		for _, f := range w.namespaces {
			if !f.gone {
				return []drivers.Resource{
					{Name: "router", Spec: drivers.Router{Name: text("r")}},
					{Name: "pool", Spec: drivers.SubnetPool{Name: text("p"), Prefixes: []string{"10.128.0.0/9"}}},
				}
			}
		}
		return nil
	case "namespace":
		for ns, f := range w.namespaces {
			if nsOwner(ns) == owner && !f.gone {
				return namespaceSet(ns, f)
			}
		}
		return nil
	}
	for ns, f := range w.namespaces {
		for n := range f.pods {
			if podOwner(ns, n) == owner && !f.gone {
				return podSet(ns)
			}
		}
	}
	return nil
}

func namespaceSet(ns string, f *features) []drivers.Resource {
	subnet := drivers.Subnet{
		Name: text(ns), NetworkID: drivers.From("network"), IPVersion: number(4), DNSNameservers: []string{f.dns},
	}
	expand := 0
	if f.cidr != "" {
		subnet.CIDR = &f.cidr
	} else {
		subnet.SubnetPoolID, subnet.PrefixLength = drivers.FromRole(drivers.Role{Role: "pool"}), number(24)
		expand = 3
	}
	set := []drivers.Resource{
		{Name: "network", Spec: drivers.Network{Name: text(ns)}},
		{Name: f.subnet, Spec: subnet, Expand: expand},
		{Name: "interface", Spec: drivers.RouterInterface{
			RouterID: drivers.FromRole(drivers.Role{Role: "router"}), SubnetID: drivers.From(f.subnet),
			NetworkID: drivers.From("network"),
			IPAddress: drivers.From(f.subnet, "gateway_ip"),
		}},
		{Name: "group", Spec: drivers.SecurityGroup{Name: text(ns)}},
	}
	for i := range f.rules {
		set = append(set, drivers.Resource{Name: fmt.Sprintf("rule-%d", i), Spec: drivers.SecurityGroupRule{
			SecurityGroupID: drivers.From("group"), Direction: text("ingress"), EtherType: text("IPv4"), Protocol: text("tcp"),
			PortRangeMin: number(int64(i + f.rules)), PortRangeMax: number(int64(i + f.rules)),
		}})
	}
	return set
}

func podSet(ns string) []drivers.Resource {
	return []drivers.Resource{{Name: "port", Spec: drivers.Port{
		Name: text("pod"), NetworkID: drivers.FromRole(nsRole(ns, "network")),
		FixedIPs:       []drivers.FixedIP{{SubnetID: drivers.FromRole(nsRole(ns, "subnet"))}},
		SecurityGroups: []drivers.Value{drivers.FromRole(nsRole(ns, "group"))},
	}}}
}

func (w *world) compute(owner plan.Owner) plan.Plan {
	var desired []plan.Desired
	for _, r := range w.set(owner) {
		kind := r.Spec.Kind()
		desired = append(desired, plan.Desired{
			Kind: kind, Attrs: drivers.Attributes(r.Spec), Expand: r.Expand, After: r.After,
			Hints: neutron.SubnetHints{Full: r.Expand > 0 && w.full[owner.UID]},
			Identity: plan.Identity{
				Cluster: testCluster, Owner: owner, Name: kinds.LogicalName(kind, r.Name), Policy: r.OnDelete,
			},
		})
	}
	observed := w.cloud.owned(owner)
	w.rnd.Shuffle(len(observed), func(i, j int) { observed[i], observed[j] = observed[j], observed[i] })
	return kinds.Compute(plan.Input{
		Desired: desired, Observed: observed, Prune: w.prune, Dependants: w.cloud.dependants,
		Resolve: func(ref drivers.Ref) (any, bool) { return w.resolve(owner, ref) },
	})
}

func (w *world) resolve(owner plan.Owner, ref drivers.Ref) (any, bool) {
	name := ref.Name
	if ref.Role != nil {
		name, owner = ref.Role.Role, sharedOwner()
		if ref.Role.Kind != "" {
			owner = nsOwner(ref.Role.Name)
			if name == "subnet" {
				name = w.namespaces[ref.Role.Name].subnet
			}
		}
	}
	twins := slices.DeleteFunc(w.cloud.owned(owner), func(o plan.Observed) bool { return o.Identity.Name != name })
	i := kinds.Keeper(twins, w.cloud.dependants)
	if i < 0 {
		return nil, false
	}
	if ref.Attribute == "" {
		return twins[i].ID, true
	}
	value, ok := twins[i].Attrs[ref.Attribute]
	return value, ok
}

// change makes other wishes.
func (w *world) change() {
	for i := range 4 {
		ns := fmt.Sprintf("n%d", i)
		f := w.namespaces[ns]
		if f == nil {
			f = &features{subnet: "subnet"}
			w.namespaces[ns] = f
			w.owners = append(w.owners, nsOwner(ns))
		}
		f.gone = w.rnd.IntN(4) == 0
		f.rules, f.dns = w.rnd.IntN(4), fmt.Sprintf("10.0.0.%d", w.rnd.IntN(3)+1)
		if f.pods == 0 && w.rnd.IntN(2) == 0 { // under pods of other owners a range cannot change
			f.cidr = []string{"", "10.1.0.0/24", "10.2.0.0/24"}[w.rnd.IntN(3)]
			f.subnet = []string{"subnet", "range"}[w.rnd.IntN(2)]
		} else {
			f.pods = w.rnd.IntN(4)
		}
		for n := range f.pods {
			if owner := podOwner(ns, n); !slices.Contains(w.owners, owner) {
				w.owners = append(w.owners, owner)
			}
		}
		w.full[nsOwner(ns).UID] = w.rnd.IntN(6) == 0
	}
}

// settle applies ready steps until none is left: one at random between two computations, as if a crash followed each;
// now and then a create twice, as if the answer to the first had been lost; and some by tags and description that
// people edited.
func (w *world) settle(t *testing.T, faults bool) {
	t.Helper()
	for range 5000 {
		var ready []plan.Step
		open := 0
		for _, owner := range w.owners {
			p := w.compute(owner)
			open += len(p.Steps)
			for _, s := range p.Steps {
				if !w.prune && (s.Op == plan.Delete || s.Op == plan.Detach) {
					t.Fatalf("%s of %s although nothing may be deleted", s.Op, s.Identity)
				}
				if s.Ready() {
					ready = append(ready, s)
				}
			}
		}
		if len(ready) == 0 {
			if open > 0 && w.prune {
				w.stuck(t)
			}
			return
		}
		s := ready[w.rnd.IntN(len(ready))]
		if err := w.cloud.apply(s); err != nil {
			w.cloud.dump(t)
			t.Fatalf("a step that was ready was refused: %v: %v", s, err)
		}
		if s.Op == plan.Create && s.Kind == drivers.KindSubnet {
			w.full[s.Identity.Owner.UID] = false
		}
		if faults && s.Op == plan.Create && w.rnd.IntN(3) == 0 {
			if err := w.cloud.apply(s); err != nil && !errors.Is(err, errRefused) {
				t.Fatal(err)
			}
		}
		if faults && w.rnd.IntN(5) == 0 {
			w.edit()
		}
	}
	w.stuck(t)
}

// edit does to a resource what operators do: adds tags and words, and removes one proof of the two.
func (w *world) edit() {
	all := w.cloud.sorted()
	if len(all) == 0 {
		return
	}
	o := all[w.rnd.IntN(len(all))]
	if _, byTags := plan.Parse(o.Tags, ""); byTags && w.rnd.IntN(2) == 0 {
		o.Description = "please keep"
	} else if _, byText := plan.Parse(nil, o.Description); byText {
		o.Tags = []string{"mine"}
		o.Description = "see " + o.Description + " (ticket 7)"
	}
	w.cloud.changed(o)
}

func (w *world) stuck(t *testing.T) {
	t.Helper()
	w.cloud.dump(t)
	for _, owner := range w.owners {
		for _, s := range w.compute(owner).Steps {
			t.Logf("%s %s %s %s: %s %v", s.Op, s.Kind, s.Identity, s.ID, s.Reason, s.Waits)
		}
	}
	t.Fatal("it does not come to rest")
}

// exact checks that the cloud holds what is wanted and no more, each once.
func (w *world) exact(t *testing.T) {
	t.Helper()
	seen := map[resourceKey]bool{}
	for _, o := range w.cloud.sorted() {
		at := resourceKey{kinds.KindOf(o), o.Identity.Key()}
		if seen[at] {
			t.Errorf("%s is there twice", o.Identity)
		}
		seen[at] = true
	}
	for _, owner := range w.owners {
		for _, r := range w.set(owner) {
			at := resourceKey{
				r.Spec.Kind(),
				plan.Identity{Cluster: testCluster, Owner: owner, Name: kinds.LogicalName(r.Spec.Kind(), r.Name)}.Key(),
			}
			if !seen[at] {
				t.Errorf("%v is not there", at)
			}
			delete(seen, at)
		}
	}
	for at := range seen {
		if !w.expansion(at) {
			t.Errorf("%v is left over", at)
		}
	}
}

func (w *world) expansion(at resourceKey) bool {
	for _, r := range w.set(plan.Owner{at.key.Driver, at.key.UID}) {
		if r.Spec.Kind() == at.kind && at.kind == drivers.KindSubnet && plan.ExpansionOf(at.key.Name, r.Name) > 1 {
			return true
		}
	}
	return false
}

// Whatever is wished, in whatever order steps are applied, and whenever it crashes: in the end the cloud is as wished,
// a second look finds nothing to do, nothing is doubled, and when all wishes are gone nothing is left.
func TestConverges(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &world{
				cloud: newCloud(), rnd: rand.New(rand.NewPCG(seed, 1)), namespaces: map[string]*features{}, prune: true,
				owners: []plan.Owner{sharedOwner()}, full: map[string]bool{},
			}
			foreign := &plan.Observed{Kind: drivers.KindNetwork, ID: "foreign", Attrs: map[string]any{"name": "n0"}}
			w.cloud.resources[foreign.ID] = foreign
			for range 3 {
				w.change()
				w.settle(t, seed%2 == 1)
				if w.cloud.resources[foreign.ID] != foreign {
					t.Fatal("a foreign network was touched")
				}
				delete(w.cloud.resources, foreign.ID)
				w.exact(t)
				w.cloud.resources[foreign.ID] = foreign
			}
			writes := w.cloud.writes
			w.settle(t, false)
			if w.cloud.writes != writes {
				t.Errorf("%d writes in steady state", w.cloud.writes-writes)
			}
			for _, f := range w.namespaces {
				f.gone = true
			}
			w.settle(t, seed%2 == 1)
			if len(w.cloud.resources) != 1 {
				w.cloud.dump(t)
				t.Error("something is left over")
			}
		})
	}
}

// While not all opinions are in, nothing is deleted, whatever is wished.
func TestNothingDeletedUnlessAllowed(t *testing.T) {
	for seed := range uint64(10) {
		w := &world{
			cloud: newCloud(), rnd: rand.New(rand.NewPCG(seed, 2)), namespaces: map[string]*features{},
			owners: []plan.Owner{sharedOwner()}, full: map[string]bool{},
		}
		for range 4 {
			w.change()
			w.settle(t, true)
		}
		if w.cloud.deletions != 0 {
			t.Errorf("seed %d: %d deletions", seed, w.cloud.deletions)
		}
		for _, f := range w.namespaces {
			f.gone = true
		}
		held := 0
		for _, owner := range w.owners {
			held += w.compute(owner).Held
		}
		if held == 0 {
			t.Errorf("seed %d: no deletion is held", seed)
		}
	}
}
