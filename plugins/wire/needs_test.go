// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
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
