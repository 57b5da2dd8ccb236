// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
	"github.com/kuryr/raven/plugins/wire"
	"github.com/kuryr/raven/service/plan"
)

// FuzzCompute plans for any valid Set that a driver may send: first in an empty cloud, then in one that has made of
// it what can be made. A plan is the same when it is computed again, and creates nothing twice.
func FuzzCompute(f *testing.F) {
	for _, resources := range [][]drivers.Resource{
		namespaceSet("shop", &features{subnet: "subnet", rules: 2, dns: "10.0.0.2"}),
		podSet("shop"),
		{{Name: "lb", Spec: drivers.LoadBalancer{
			Name: text("shop/web"), VIPSubnetID: drivers.Text("s"), VIPAddress: text("10.96.0.9"),
			Listeners: []drivers.Listener{{Name: "http", Protocol: text("TCP"), ProtocolPort: number(80), DefaultPool: "http"}},
			Pools: []drivers.Pool{{
				Name: "http", Protocol: text("TCP"), LBAlgorithm: text("ROUND_ROBIN"),
				Members: []drivers.Member{{Name: "web-0", Address: "10.0.0.5", ProtocolPort: number(8080)}},
			}},
		}}},
		{{Name: "ovn", Spec: drivers.OVNLoadBalancer{
			GroupID: drivers.Text("g"), VIPs: []drivers.OVNVIP{{
				Protocol: "TCP", Address: drivers.Text("10.96.0.9"), Port: 80,
				Backends: []drivers.OVNBackend{{Address: "10.0.0.5", Port: 80}},
			}},
		}}},
	} {
		message, err := wire.SetToProto(drivers.Set{Resources: resources})
		if err != nil {
			f.Fatal(err)
		}
		raw, err := proto.Marshal(message)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, uint8(2))
	}
	info := drivers.Info{Name: "fuzz", Kinds: drivers.Kinds()}
	f.Fuzz(func(t *testing.T, raw []byte, lost uint8) {
		message := &ravenv1.Set{}
		if proto.Unmarshal(raw, message) != nil || len(message.GetResources()) > 64 {
			return
		}
		set, err := wire.SetFromProto(message)
		set.Outputs, set.Contributions = nil, nil // none of a plan's business
		if err != nil || set.Validate(info) != nil {
			return
		}
		made := fuzzPlans(t, plan.Input{Desired: fuzzDesired(set), Prune: true})
		if lost > 0 { // every resource with such a number is gone
			kept := slices.DeleteFunc(made, func(o plan.Observed) bool { return o.Revision%int64(lost) == 0 })
			made = fuzzPlans(t, plan.Input{Desired: fuzzDesired(set), Observed: kept, Prune: true})
		}
		for _, step := range kinds.Compute(plan.Input{Observed: made, Prune: true}).Steps {
			if step.Op == plan.Create {
				t.Errorf("nothing is wanted, and %s %q is created", step.Kind, step.Identity.Name)
			}
		}
	})
}

func fuzzDesired(set drivers.Set) []plan.Desired {
	var desired []plan.Desired
	for _, r := range set.Resources {
		kind := r.Spec.Kind()
		if kind == drivers.KindLookup {
			continue
		}
		desired = append(desired, plan.Desired{
			Kind: kind, Attrs: drivers.Attributes(r.Spec), Expand: r.Expand, After: r.After,
			Identity: plan.Identity{
				Cluster: testCluster, Owner: podOwner("shop", 0), Name: kinds.LogicalName(kind, r.Name), Policy: r.OnDelete,
			},
		})
	}
	return desired
}

// fuzzPlans plans, and makes what can be made, until there is nothing more to make. It returns what there is then.
func fuzzPlans(t *testing.T, in plan.Input) []plan.Observed {
	t.Helper()
	in.Resolve = func(ref drivers.Ref) (any, bool) {
		if ref.Role != nil {
			return "11111111-1111-4111-8111-111111111111", true
		}
		for _, o := range in.Observed {
			if o.Identity.Name == ref.Name || o.Identity.Name == kinds.LogicalName(drivers.KindRouterInterface, ref.Name) {
				return o.ID, true
			}
		}
		return nil, false
	}
	for range len(in.Desired) + 1 {
		steps := kinds.Compute(in).Steps
		if again := kinds.Compute(in).Steps; !reflect.DeepEqual(steps, again) {
			t.Fatalf("computed again the steps are others:\n%+v\n%+v", steps, again)
		}
		before := len(in.Observed)
		for _, step := range steps {
			if step.Op != plan.Create || !step.Ready() || step.Part != nil {
				continue
			}
			same := func(o plan.Observed) bool { return o.Kind == step.Kind && o.Identity.Key() == step.Identity.Key() }
			if slices.ContainsFunc(in.Observed, same) {
				t.Fatalf("%s %q is created twice", step.Kind, step.Identity.Name)
			}
			in.Observed = append(in.Observed, plan.Observed{
				Kind: step.Kind, ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", len(in.Observed)), Identity: step.Identity,
				Managed: true, Attrs: step.Attrs, Tags: step.Identity.Tags(), Description: step.Identity.Description(),
				Revision: int64(len(in.Observed)),
			})
		}
		if len(in.Observed) == before {
			break
		}
	}
	return in.Observed
}
