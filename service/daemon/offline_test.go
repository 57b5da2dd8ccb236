// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"log/slog"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/watch"
)

// needy gives a ConfigMap a network named as its namespace's label says, with a load balancer of an operator's subnet.
type needy struct{}

func (needy) Info() drivers.Info {
	return drivers.Info{Name: "needy", Kinds: []drivers.Kind{
		drivers.KindLookup, drivers.KindNetwork,
		drivers.KindLoadBalancer, drivers.KindFloatingIP,
	}}
}
func (needy) Configure(context.Context, drivers.Values) error { return nil }
func (needy) Watches() []drivers.Watch {
	core := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: resource}
	}
	return []drivers.Watch{
		{Name: "maps", GVR: core("configmaps"), Kind: "ConfigMap", LabelSelector: "net", Source: true},
		{Name: "spaces", GVR: core("namespaces"), Kind: "Namespace", Fields: []string{"metadata.labels"}},
	}
}

func (needy) Translate(_ context.Context, object drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
	meta, err := object.Meta()
	if err != nil {
		return drivers.Set{}, err
	}
	spaces, ok := needs.Get(drivers.Need{Watch: "spaces", Name: meta.Namespace})
	if !ok {
		return drivers.Set{}, nil
	}
	name := "nowhere"
	if len(spaces) > 0 {
		name = "somewhere"
	}
	return drivers.Set{Resources: []drivers.Resource{
		{Name: "subnet", Spec: drivers.Lookup{Of: drivers.KindSubnet, ID: "theirs"}},
		{Name: "outside", Spec: drivers.Lookup{Of: drivers.KindNetwork, ID: "public"}},
		{Name: "network", Spec: drivers.Network{Name: new(name)}},
		{Name: "balancer", Spec: drivers.LoadBalancer{
			VIPSubnetID: drivers.From("subnet"), VIPAddress: new("10.0.0.9"),
			Provider: new("amphora"), FlavorID: new("f"),
		}},
		{Name: "address", Spec: drivers.FloatingIP{
			FloatingNetworkID: drivers.From("outside"), FloatingIPAddress: new("172.24.4.9"),
			PortID: drivers.From("balancer", "vip_port_id"),
		}},
	}}, nil
}

// Everything that a plan from files asks of the cloud must be answered: what emptyCloud leaves out panics.
func TestPlanFromFiles(t *testing.T) {
	t.Parallel()
	object := func(kind, namespace, name string, labels map[string]string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion("v1")
		o.SetKind(kind)
		o.SetNamespace(namespace)
		o.SetName(name)
		o.SetLabels(labels)
		return o
	}
	net := map[string]string{"net": "1"}
	objects := []*unstructured.Unstructured{
		object("ConfigMap", "shop", "a", net), object("ConfigMap", "other", "b", net),
		object("ConfigMap", "shop", "hidden", nil),
		object("Namespace", "", "shop", nil),
	}
	source, err := newFileSource(needy{}.Watches(), objects)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := newOfflineEngine([]string{"needy"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := engine.Add("needy", needy{}, source); err != nil {
		t.Fatal(err)
	}
	planned, err := engine.DryRun(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, p := range planned {
		if len(p.Problems) > 0 {
			t.Errorf("%s: %v", p.Object, p.Problems)
		}
		for _, s := range p.Steps {
			if s.Op != plan.Create {
				t.Errorf("%s: %s of a %s, where nothing exists", p.Object, s.Op, s.Kind)
			}
			if s.Kind == drivers.KindNetwork {
				got[p.Object], _ = s.Attrs["name"].(string)
			}
		}
		if len(p.Steps) != 3 {
			t.Errorf("%s has %d steps", p.Object, len(p.Steps))
		}
	}
	if len(got) != 2 || got["ConfigMap shop/a"] != "somewhere" || got["ConfigMap other/b"] != "nowhere" {
		t.Errorf("got %v", got)
	}
	if _, _, state := source.Get(watch.Key{Watch: "maps", Namespace: "shop", Name: "hidden"}); state != watch.Absent {
		t.Errorf("what the selector leaves out is %s", state)
	}
}
