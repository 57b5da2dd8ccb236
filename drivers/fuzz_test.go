// SPDX-License-Identifier: Apache-2.0

package drivers_test

import (
	"errors"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
	"github.com/kuryr/raven/plugins/wire"
)

// fuzzSet reads any bytes as a Set, as it comes from a driver's process.
func fuzzSet(raw []byte) (drivers.Set, bool) {
	message := &ravenv1.Set{}
	if proto.Unmarshal(raw, message) != nil {
		return drivers.Set{}, false
	}
	set, err := wire.SetFromProto(message)
	return set, err == nil
}

// FuzzValidate validates any Set that a driver may send. Whether it is refused or not: that does not depend on
// anything else, says at least one and not too many things, and a Set that is valid can be shown.
func FuzzValidate(f *testing.F) {
	role := drivers.Role{Kind: "Namespace", Name: "shop", Role: drivers.ClusterRouter}
	for _, set := range []drivers.Set{
		{},
		{Resources: []drivers.Resource{
			{Name: "a", Spec: drivers.Network{}, After: []drivers.Ref{{Name: "b"}}},
			{Name: "b", Spec: drivers.Network{}, After: []drivers.Ref{{Name: "a"}}},
		}},
		{Resources: []drivers.Resource{
			{Name: "pool", Claim: "pool", Spec: drivers.SubnetPool{Prefixes: []string{"10.0.0.0/8", "fd00::/8"}}},
			{Name: "subnet", Expand: 2, Spec: drivers.Subnet{
				NetworkID: drivers.FromRole(role), SubnetPoolID: drivers.From("pool"), IPVersion: new(int64(4)),
			}},
			{Name: "lb", Exports: []string{"x"}, Spec: drivers.LoadBalancer{
				VIPSubnetID: drivers.From("subnet"),
				Pools:       []drivers.Pool{{Name: "p", Members: []drivers.Member{{Address: "::1"}}}},
			}},
			{Name: "ovn", Spec: drivers.OVNLoadBalancer{GroupID: drivers.Text("g"), VIPs: []drivers.OVNVIP{
				{
					Protocol: "TCP", Address: drivers.From("lb", "vip_address"), Port: 80,
					Backends: []drivers.OVNBackend{{Address: "10.0.0.2", Port: 80}},
				},
			}}},
		}, Undecided: []string{"later"}, Diagnostics: []drivers.Diagnostic{{Severity: drivers.Note, Reason: "X"}}},
		{Contributions: []drivers.Contribution{
			{
				Name: "r", Target: role, Attribute: "routes", Route: &drivers.Route{Destination: "10.0.0.0/8", NextHop: "10.0.0.1"},
			},
		}, Outputs: []drivers.Output{{Kind: drivers.Annotation, Key: "a/b", Text: drivers.Text("x")}}},
	} {
		message, err := wire.SetToProto(set)
		if err != nil {
			f.Fatal(err)
		}
		raw, err := proto.Marshal(message)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	info := drivers.Info{
		Name: "x", Kinds: drivers.Kinds(), Annotations: []string{"a/b"}, Labels: []string{"a/b"},
		Status: []string{drivers.StatusLoadBalancer},
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		set, ok := fuzzSet(raw)
		if !ok {
			return
		}
		err := set.Validate(info)
		again, _ := fuzzSet(raw)
		if err == nil {
			if err := again.Validate(info); err != nil {
				t.Errorf("valid at first, then: %v", err)
			}
			_ = set.Render()
			for _, resource := range set.Resources {
				_ = drivers.Attributes(resource.Spec)
			}
			return
		}
		invalid, ok := errors.AsType[*drivers.InvalidError](err)
		if !ok || len(invalid.Problems) == 0 || len(invalid.Problems) > 51 || len(err.Error()) > 64<<10 {
			t.Fatalf("refused by %T of %d bytes: %.200v", err, len(err.Error()), err)
		}
		second, ok := errors.AsType[*drivers.InvalidError](again.Validate(info))
		if !ok || !slices.Equal(invalid.Problems, second.Problems) {
			t.Errorf("refused for %q, and then for %v", invalid.Problems, second)
		}
	})
}
