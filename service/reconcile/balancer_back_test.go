// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// TestReplacementWhosePartsAreRefused: what served is not given up for a load balancer without it. The old one is
// made again as it was, with the algorithm of its provider, its members are followed, and the other one is not asked
// for again, not after a restart either.
func TestReplacementWhosePartsAreRefused(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{
		"not understood": http.StatusBadRequest, "not supported": http.StatusNotImplemented,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVetted(t, nil)
			answer := `{"faultstring":"Invalid input for field/attribute protocol. Value: 'TCP'."}`
			for kind, body := range map[string]string{"loadbalancer": `"listeners"`, "listener": "", "pool": ""} {
				rule := simcloud.Rule{
					Method: http.MethodPost, Kind: kind, Body: body, Action: simcloud.ActionStatus, Status: status, Response: answer,
				}
				if kind == "loadbalancer" {
					rule.Times = 1
				}
				v.fault(rule)
			}
			v.want.provider = "ovn"
			v.wish(1, nil)
			served := func(members int) {
				t.Helper()
				v.eventually(fmt.Sprint(members, " members as it was"), func() (bool, string) {
					found := v.named("loadbalancer", "shop")
					return len(found) == 1 && found[0]["provider"] == "amphora" && found[0]["provisioning_status"] == "ACTIVE" &&
						len(v.members("shop:TCP:80")) == members && len(v.named("listener", "shop:TCP:80")) == 1, v.dump()
				})
				v.r.stands("a", "x", state.Terminal, "is made anew as it was")
			}
			served(1)
			refused := fmt.Sprint("POST loadbalancer ", status)
			asked := func() []string {
				return slices.DeleteFunc(v.lbWrites(), func(write string) bool {
					return !strings.HasPrefix(write, "POST") && !strings.HasPrefix(write, "DELETE")
				})
			}
			want := []string{"DELETE loadbalancer 204", refused, "POST loadbalancer 201"}
			if got := asked(); !slices.Equal(got, want) {
				t.Errorf("asked for %v, want %v", got, want)
			}
			v.wish(2, nil)
			served(2)
			v.r.stop()
			v.r = v.start(with(v.a).configured(quick))
			v.r.stands("a", "x", state.Terminal, "the cloud has refused before what is wished")
			if n := len(slices.DeleteFunc(v.lbWrites(), func(write string) bool {
				return !strings.HasSuffix(write, "loadbalancer "+fmt.Sprint(status))
			})); n != 1 {
				t.Errorf("asked for %d times: %v", n, v.lbWrites())
			}
		})
	}
}

// TestReplacementWithAPartThatNobodyTakes: what the old one had not either keeps nobody from being served by another
// one.
func TestReplacementWithAPartThatNobodyTakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{},
		simcloud.Options{Providers: []simcloud.Provider{amphora(), ovnProvider()}, NoProtocols: []string{"SCTP"}})
	says := func(provider string) func(string, *drivers.Needs) (drivers.Set, error) {
		return always(served{provider: provider, ports: []int64{80, 90}, members: 1, udp: true}.set())
	}
	a := script("a", says("amphora"))
	r := w.start(with(a).configured(quick))
	w.createMap("a", "x")
	isServed := func(provider string) {
		t.Helper()
		w.eventually("it is served by "+provider, func() (bool, string) {
			found := w.named("loadbalancer", "shop")
			return len(found) == 1 && found[0]["provider"] == provider && found[0]["provisioning_status"] == "ACTIVE" &&
				len(w.members("shop:TCP:80")) == 1, w.dump()
		})
		r.stands("a", "x", state.Terminal, "Value: 'SCTP'")
	}
	isServed("amphora")
	w.cloud.ResetLog()
	a.now(says("ovn"))
	w.touchMap("x", 1)
	isServed("ovn")
	got := slices.DeleteFunc(w.lbWrites(), func(write string) bool { return strings.HasPrefix(write, "PUT") })
	if want := []string{
		"DELETE loadbalancer 204", "POST loadbalancer 400", "POST loadbalancer 201", "POST pool 400",
	}; !slices.Equal(got, want) {
		t.Errorf("asked for %v, want %v", got, want)
	}
}
