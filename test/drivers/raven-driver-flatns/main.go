// SPDX-License-Identifier: Apache-2.0

// Command raven-driver-flatns is a namespace driver as a third party would write it: one flat network for all
// namespaces, exported under the same roles as the in-tree driver's. It is for tests, and must never depend on how
// the in-tree drivers work: what it shows is that they can do without each other.
package main

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/sdk"
)

func main() { sdk.Serve(new(flat)) }

type flat struct {
	cidr atomic.Pointer[netip.Prefix]
}

// Info implements drivers.Driver.
func (f *flat) Info() drivers.Info {
	return drivers.Info{
		Name:        "flatns",
		Version:     "1",
		Description: "Gives all namespaces one flat network.",
		Options: []drivers.Option{{
			Group: "flatns", Name: "cidr", Type: drivers.StringOption, Default: "10.244.0.0/16", HasDefault: true,
			Help: "Range of the network.",
		}},
		Kinds: []drivers.Kind{
			drivers.KindNetwork, drivers.KindSubnet, drivers.KindSecurityGroup, drivers.KindSecurityGroupRule,
		},
		Annotations: []string{"flatns.example/network"},
	}
}

// Configure implements drivers.Driver.
func (f *flat) Configure(_ context.Context, values drivers.Values) error {
	cidr, err := netip.ParsePrefix(values.String("flatns", "cidr"))
	if err != nil {
		return fmt.Errorf("[flatns] cidr: %w", err)
	}
	f.cidr.Store(new(cidr.Masked()))
	return nil
}

// Watches implements drivers.Driver.
func (f *flat) Watches() []drivers.Watch {
	return []drivers.Watch{{
		Name: "ns", GVR: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: "Namespace",
		Fields: []string{"metadata.name"}, Source: true,
	}}
}

// Translate implements drivers.Driver.
func (f *flat) Translate(context.Context, drivers.Object, *drivers.Needs) (drivers.Set, error) {
	cidr := f.cidr.Load()
	if cidr == nil {
		return drivers.Set{}, fmt.Errorf("flatns: Translate before Configure")
	}
	version, etherType, role := int64(4), "IPv4", drivers.PodSubnet
	if cidr.Addr().Is6() {
		version, etherType, role = 6, "IPv6", drivers.PodSubnet6
	}
	claim := func(name string, spec drivers.Spec, exports ...string) drivers.Resource {
		return drivers.Resource{Name: name, Claim: name, Spec: spec, Exports: exports}
	}
	return drivers.Set{
		Resources: []drivers.Resource{
			claim("flat-network", drivers.Network{Name: new("flat")}, drivers.PodNetwork),
			claim("flat-subnet", drivers.Subnet{
				Name: new("flat-subnet"), NetworkID: drivers.From("flat-network"), IPVersion: &version, CIDR: new(cidr.String()),
				EnableDHCP: new(false),
			}, role),
			claim("flat-group", drivers.SecurityGroup{Name: new("flat-sg")}, drivers.NamespaceSecurityGroup),
			claim("flat-ingress", drivers.SecurityGroupRule{
				SecurityGroupID: drivers.From("flat-group"), Direction: new("ingress"), EtherType: &etherType,
			}),
		},
		Outputs: []drivers.Output{{
			Kind: drivers.Annotation, Key: "flatns.example/network", Text: drivers.From("flat-network"),
		}},
	}, nil
}
