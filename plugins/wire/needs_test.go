// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

// What a driver needs and watches by selectors arrives as it was sent.
func TestNeedsAndWatchesArriveWhole(t *testing.T) {
	need := drivers.Selecting("policies", "web", map[string]string{"team": "a", "x": ""}, map[string]string{"app": "b"})
	need.Namespace, need.Selector = "other", "l=1"
	others := []drivers.Need{{Watch: "pods", Namespace: "web", Name: "a"}, {Watch: "pods", Selector: "a=b"}}
	for _, want := range append(others, need) {
		if got := needFromProto(needToProto(want)); got != want {
			t.Errorf("%s arrived as %s", want, got)
		}
	}
	if got := needFromProto(&ravenv1.Need{Watch: "policies", Selects: &ravenv1.Subject{}}); !selects(got) {
		t.Errorf("a need by an empty subject arrived as %s", got)
	}
	watches := []drivers.Watch{{Name: "policies", Selectors: []drivers.SelectorPath{
		{Path: "spec.ingress[].from[]", Namespaces: "namespaceSelector", Objects: "podSelector"},
	}}, {Name: "pods", Fields: []string{"spec"}, Source: true, Optional: true}}
	if diff := cmp.Diff(watches, watchesFromProto(watchesToProto(watches))); diff != "" {
		t.Error(diff)
	}
}

// A driver is told which drivers are enabled.
func TestEnabledDriversAreTold(t *testing.T) {
	told := coreCapabilities([]string{"pod", "networkpolicy"})
	for _, name := range []string{"pod", "networkpolicy"} {
		if !slices.Contains(told, drivers.DriverCapability(name)) {
			t.Errorf("of driver %s nothing is told: %v", name, told)
		}
	}
	if slices.Contains(told, drivers.DriverCapability("namespace")) {
		t.Errorf("a driver is told of that is not enabled: %v", told)
	}
}

// demanding is a driver that asks for one need and wants one resource.
type demanding struct {
	drivers.Driver
	need drivers.Need
	spec drivers.Spec
}

func (demanding) Info() drivers.Info { return drivers.Info{Name: "n"} }

func (d demanding) Translate(_ context.Context, _ drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
	if d.need.Watch != "" {
		needs.Get(d.need)
	}
	return drivers.Set{Resources: []drivers.Resource{{Name: "r", Spec: d.spec}}}, nil
}

// What an older core would not notice in a Set, or in a need, is an error, which names the capability and the core.
func TestOlderCoreIsNotAskedForMore(t *testing.T) {
	plain := &drivers.SecurityGroup{}
	role := drivers.Role{Kind: "NetworkPolicy", Namespace: "n", Name: "p", Role: "r"}
	for name, d := range map[string]demanding{
		drivers.BareGroups: {spec: &drivers.SecurityGroup{DefaultRules: new(false)}},
		drivers.SoftReferences: {spec: drivers.Port{
			NetworkID: drivers.Text("n"), SecurityGroups: []drivers.Value{drivers.Soft(role)},
		}},
		drivers.ChassisBackends: {spec: drivers.OVNLoadBalancer{
			GroupID: drivers.Text("g"),
			VIPs: []drivers.OVNVIP{{
				Protocol: "TCP", Address: drivers.Text("10.0.0.1"), Port: 80, Chassis: []drivers.OVNChassis{{ID: "c"}},
			}},
		}},
		drivers.ReverseSelectors: {spec: plain, need: drivers.Selecting("policies", "web", nil, nil)},
		"":                       {spec: plain, need: drivers.Need{Watch: "policies"}},
	} {
		for _, capabilities := range [][]string{nil, {"kind:port"}, coreCapabilities(nil)} {
			s := NewServer(d, ServerConfig{})
			if _, err := s.GetInfo(t.Context(), &ravenv1.GetInfoRequest{
				CoreVersion: "1.2.3", Capabilities: capabilities,
			}); err != nil {
				t.Fatal(err)
			}
			result := s.translate(t.Context(), NewItem(drivers.Object{Watch: "pods"}, nil, 1))
			got := result.GetError().GetMessage()
			older := name != "" && !slices.Contains(capabilities, name)
			named := strings.Contains(got, name) && strings.Contains(got, "1.2.3")
			if older != (result.GetError() != nil) || older && !named {
				t.Errorf("%s of a core with %v: %v", name, capabilities, result)
			}
			if older && len(result.GetNeeds()) > 0 {
				t.Errorf("%s of a core with %v: it is asked %v", name, capabilities, result.GetNeeds())
			}
		}
	}
}
