// SPDX-License-Identifier: Apache-2.0

package drivers_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kuryr/raven/drivers"
)

// sidenet gives every Namespace a second network, whose MTU a ConfigMap of that Namespace may set.
type sidenet struct{}

func (sidenet) Info() drivers.Info {
	return drivers.Info{
		Name: "sidenet", Kinds: []drivers.Kind{drivers.KindNetwork}, Annotations: []string{"example.org/side-network"},
	}
}

func (sidenet) Configure(context.Context, drivers.Values) error { return nil }

func (sidenet) Watches() []drivers.Watch {
	return []drivers.Watch{
		{
			Name: "namespaces", GVR: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: "Namespace",
			Source: true,
		},
		{
			Name: "settings", GVR: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: "ConfigMap",
			Fields: []string{"data"},
		},
	}
}

func (sidenet) Translate(_ context.Context, object drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
	namespace, err := object.Meta()
	if err != nil {
		return drivers.Set{}, err
	}
	found, answered := needs.Get(drivers.Need{Watch: "settings", Namespace: namespace.Name, Name: "side-network"})
	if !answered {
		return drivers.Set{}, nil // the core calls again with the answer
	}
	network := drivers.Network{Name: new(namespace.Name + "-side")}
	for _, one := range found {
		var settings corev1.ConfigMap
		if err := one.Into(&settings); err != nil {
			return drivers.Set{}, err
		}
		if settings.Data["jumbo"] == "true" {
			network.MTU = new(int64(9000))
		}
	}
	return drivers.Set{
		Resources: []drivers.Resource{{Name: "network", Spec: network}},
		Outputs: []drivers.Output{
			{Kind: drivers.Annotation, Key: "example.org/side-network", Document: &drivers.Ref{Name: "network"}},
		},
	}, nil
}

// A driver translates one object to the Set of resources that the object should have. In the first round it asks for
// a ConfigMap; in the second it has the answer. The core then validates the Set and creates what is missing.
func Example() {
	driver := sidenet{}
	namespace := drivers.Object{
		Watch: "namespaces", Raw: []byte(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}`),
	}
	needs := drivers.NewNeeds(nil)
	if _, err := driver.Translate(context.Background(), namespace, needs); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("asks for", needs.Asked()[0])

	settings := drivers.Object{
		Watch: "settings",
		Raw:   []byte(`{"metadata": {"namespace": "shop", "name": "side-network"}, "data": {"jumbo": "true"}}`),
	}
	needs = drivers.NewNeeds(map[drivers.Need][]drivers.Object{needs.Asked()[0]: {settings}})
	set, err := driver.Translate(context.Background(), namespace, needs)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("valid:", set.Validate(driver.Info()) == nil)
	text, err := yaml.Marshal(set.Render())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = os.Stdout.Write(text)
	// Output:
	// asks for settings shop/side-network
	// valid: true
	// outputs:
	// - annotation: example.org/side-network
	//   document:
	//     ref: network
	// resources:
	// - kind: network
	//   name: network
	//   spec:
	//     mtu: 9000
	//     name: shop-side
}

// A Set refers to its own resources by logical name and to those of other owners by role. Validate finds what cannot
// be right without asking the cloud.
func ExampleSet_Validate() {
	router := drivers.Role{Kind: "Namespace", Name: "shop", Role: drivers.ClusterRouter}
	set := drivers.Set{Resources: []drivers.Resource{
		{Name: "subnet", Spec: drivers.Subnet{NetworkID: drivers.From("network"), IPVersion: new(int64(4))}},
		{Name: "interface", Spec: drivers.RouterInterface{
			RouterID: drivers.FromRole(router), SubnetID: drivers.From("subnet"),
			NetworkID: drivers.From("subnet", "network_id"),
		}},
	}}
	err := set.Validate(drivers.Info{Kinds: []drivers.Kind{drivers.KindSubnet, drivers.KindRouterInterface}})
	if invalid, ok := errors.AsType[*drivers.InvalidError](err); ok {
		for _, problem := range invalid.Problems {
			fmt.Println(problem)
		}
	}
	// Output:
	// resource "subnet": network_id: refers to "network", which is not in the set
	// resource "subnet": needs cidr or subnetpool_id
}

// Tests and tools configure a driver with the defaults of its options and what they change of them.
func ExampleDefaultValues() {
	options := []drivers.Option{
		{
			Group: "sidenet", Name: "pools", Type: drivers.ListOption, Default: "10.200.0.0/16", HasDefault: true,
			Item: drivers.CIDROption,
		},
		{
			Group: "sidenet", Name: "mtu", Type: drivers.IntegerOption, Default: "1500", HasDefault: true, Min: new(float64(68)),
		},
	}
	values, err := drivers.DefaultValues(options, map[string]map[string]any{"sidenet": {"mtu": "9000"}})
	fmt.Println(values.List("sidenet", "pools"), values.Int("sidenet", "mtu"), err)
	_, err = drivers.DefaultValues(options, map[string]map[string]any{"sidenet": {"mtu": 12}})
	fmt.Println(err)
	// Output:
	// [10.200.0.0/16] 9000 <nil>
	// [sidenet] mtu: 12 is less than 68
}

// The core shows a driver the fields that its watch names, and what every object keeps.
func ExampleTrim() {
	pod := map[string]any{
		"kind":     "Pod",
		"metadata": map[string]any{"name": "web", "resourceVersion": "7", "labels": map[string]any{"app": "shop"}},
		"spec":     map[string]any{"nodeName": "node-1", "hostNetwork": false},
	}
	fmt.Println(drivers.Trim(pod, []string{"spec.nodeName"}))
	// Output: map[kind:Pod metadata:map[name:web] spec:map[nodeName:node-1]]
}
