// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

func rule(protocol string, port int) drivers.Resource {
	return drivers.Resource{Name: fmt.Sprint(protocol, "-", port), Spec: drivers.SecurityGroupRule{
		SecurityGroupID: drivers.From("group"), Direction: new("ingress"), EtherType: new("IPv4"), Protocol: new(protocol),
		PortRangeMin: new(int64(port)), PortRangeMax: new(int64(port)),
	}}
}

// TestNewRulesComeBeforeOldOnesGo, and a new one that is refused does not keep an old one.
func TestNewRulesComeBeforeOldOnesGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a := script("a", always(setOf(group("g"), rule("tcp", 80), rule("tcp", 81))))
	r := w.start(with(a))
	w.createMap("a", "x")
	r.settled(1)
	order := func() (list []string) {
		for _, req := range w.cloud.Log(0) {
			if req.Kind == "security_group_rule" && req.Method != http.MethodGet {
				list = append(list, req.Method)
			}
		}
		return list
	}
	w.cloud.ResetLog()
	a.now(always(setOf(group("g"), rule("tcp", 90), rule("tcp", 91))))
	r.engine.Replay("a")
	w.eventually("the rules are others", func() (bool, string) { return len(order()) >= 3, fmt.Sprint(order()) })
	r.settled(1)
	got := slices.Compact(order())
	if !slices.Equal(got, []string{http.MethodPost, http.MethodDelete}) {
		t.Errorf("rules were changed in the order %v", order())
	}
	w.fault(simcloud.Rule{
		Method: http.MethodPost, Kind: "security_group_rule", Action: simcloud.ActionStatus, Status: 409,
		Response: `{"NeutronError": {"type": "OverQuota", "message": "Quota exceeded", "detail": ""}}`,
	})
	a.now(always(setOf(group("g"), rule("tcp", 99))))
	r.engine.Replay("a")
	w.eventually("the old rules are gone", func() (bool, string) {
		left := slices.DeleteFunc(w.cloud.SecurityGroupRules(), func(o map[string]any) bool { return o["protocol"] != "tcp" })
		return len(left) == 0, fmt.Sprint(left)
	})
	r.stands("a", "x", state.Waiting, "uota")
	w.cloud.ClearFaults()
}
