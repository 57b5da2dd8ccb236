// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

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

// ruleWrites lists the requests that changed rules, in order, each with its status.
func (w *world) ruleWrites() (list []string) {
	for _, req := range w.cloud.Log(0) {
		if req.Kind == "security_group_rule" && req.Method != http.MethodGet {
			list = append(list, fmt.Sprint(req.Method, " ", req.Status))
		}
	}
	return list
}

// tcpRules lists the ports of the rules for TCP, sorted.
func (w *world) tcpRules() (ports []string) {
	for _, r := range w.cloud.SecurityGroupRules() {
		if r["protocol"] == "tcp" {
			ports = append(ports, fmt.Sprint(r["port_range_min"]))
		}
	}
	slices.Sort(ports)
	return ports
}

// tcpRulesAre waits until there are rules for these TCP ports and no others.
func (w *world) tcpRulesAre(ports ...string) {
	w.t.Helper()
	w.eventually(fmt.Sprint("rules are ", ports), func() (bool, string) {
		got := w.tcpRules()
		return slices.Equal(got, ports), fmt.Sprint(got)
	})
}

// from is a rule for what a group of the Set, or of a claim, lets in.
func from(port int, group string) drivers.Resource {
	r := rule("tcp", port)
	spec, _ := r.Spec.(drivers.SecurityGroupRule)
	spec.RemoteGroupID = drivers.From(group)
	r.Spec = spec
	return r
}

func peer(claim string) drivers.Resource {
	r := bareGroup("peer")
	r.Name, r.Claim = "peer", claim
	return r
}

func overQuota() simcloud.Rule {
	return simcloud.Rule{
		Method: http.MethodPost, Action: simcloud.ActionStatus, Status: 409,
		Response: `{"NeutronError": {"type": "OverQuota", "message": "Quota exceeded", "detail": ""}}`,
	}
}

// TestNewRulesAreCreatedBeforeOldOnesAreDeleted, and a new one that is refused does not keep an old one.
func TestNewRulesAreCreatedBeforeOldOnesAreDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a := script("a", always(setOf(group("g"), rule("tcp", 80), rule("tcp", 81))))
	r := w.start(with(a))
	w.createMap("a", "x")
	r.settled(1)
	w.cloud.ResetLog()
	a.now(always(setOf(group("g"), rule("tcp", 90), rule("tcp", 91))))
	r.engine.Replay("a")
	w.tcpRulesAre("90", "91")
	r.settled(1)
	if got := slices.Compact(w.ruleWrites()); !slices.Equal(got, []string{"POST 201", "DELETE 204"}) {
		t.Errorf("rules were changed in the order %v", w.ruleWrites())
	}
	fault := overQuota()
	fault.Kind = "security_group_rule"
	w.fault(fault)
	a.now(always(setOf(group("g"), rule("tcp", 99))))
	r.engine.Replay("a")
	w.tcpRulesAre()
	r.stands("a", "x", state.Waiting, "uota")
	w.cloud.ClearFaults()
}

// TestOldRulesOutlastNewOnesThatWait for a group that is yet to be made: of the same Set, or claimed.
func TestOldRulesOutlastNewOnesThatWait(t *testing.T) {
	t.Parallel()
	for name, claim := range map[string]string{"own": "", "claimed": "peers"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, simkube.Options{}, simcloud.Options{})
			a := script("a", always(setOf(group("g"), rule("tcp", 80))))
			r := w.start(with(a))
			w.createMap("a", "x")
			r.settled(1)
			w.cloud.ResetLog()
			a.now(always(setOf(group("g"), peer(claim), from(90, "peer"))))
			r.engine.Replay("a")
			w.tcpRulesAre("90")
			r.settled(1)
			// Two are the deletions of Neutron's own rules in the new group.
			want := []string{"DELETE 204", "DELETE 204", "POST 201", "DELETE 204"}
			if got := w.ruleWrites(); !slices.Equal(got, want) {
				t.Errorf("rules were changed in the order %v", got)
			}
		})
	}
}

// TestOldRulesDoNotWaitForARefusedGroup that new ones refer to: at once where that is known, else for SlowRetry.
func TestOldRulesDoNotWaitForARefusedGroup(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		claim string
		slow  time.Duration
	}{"own": {"", time.Hour}, "claimed": {"peers", 50 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, simkube.Options{}, simcloud.Options{})
			a := script("a", always(setOf(group("g"), rule("tcp", 80))))
			r := w.start(with(a).configured(func(c *config) { c.SlowRetry = tt.slow }))
			w.createMap("a", "x")
			r.settled(1)
			fault := overQuota()
			fault.Kind = "security_group"
			w.fault(fault)
			a.now(always(setOf(group("g"), peer(tt.claim), from(90, "peer"))))
			r.engine.Replay("a")
			w.tcpRulesAre()
		})
	}
}

// TestOldRulesOutlastAFailureThatPasses of the request that creates the new ones.
func TestOldRulesOutlastAFailureThatPasses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a := script("a", always(setOf(group("g"), rule("tcp", 80))))
	r := w.start(with(a))
	w.createMap("a", "x")
	r.settled(1)
	w.cloud.ResetLog()
	w.fault(simcloud.Rule{
		Method: http.MethodPost, Kind: "security_group_rule", Action: simcloud.ActionStatus, Status: 503, Times: 1,
	})
	a.now(always(setOf(group("g"), rule("tcp", 90))))
	r.engine.Replay("a")
	w.tcpRulesAre("90")
	r.settled(1)
	if got := w.ruleWrites(); !slices.Equal(got, []string{"POST 503", "POST 201", "DELETE 204"}) {
		t.Errorf("rules were changed in the order %v", got)
	}
}

// TestOldRulesDoNotOutlastAFailureForEver: they are deleted after SlowRetry.
func TestOldRulesDoNotOutlastAFailureForEver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a := script("a", always(setOf(group("g"), rule("tcp", 80))))
	r := w.start(with(a).configured(func(c *config) { c.SlowRetry = 50 * time.Millisecond }))
	w.createMap("a", "x")
	r.settled(1)
	w.fault(simcloud.Rule{
		Method: http.MethodPost, Kind: "security_group_rule", Action: simcloud.ActionStatus, Status: 503,
	})
	a.now(always(setOf(group("g"), rule("tcp", 90))))
	r.engine.Replay("a")
	w.tcpRulesAre()
}

// TestRulesAreReplacedAtTheQuota without the wait for a quota that is exhausted: the deletion of the old ones made
// room, and wakes their owner.
func TestRulesAreReplacedAtTheQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a := script("a", always(setOf(group("g"), rule("tcp", 80), rule("tcp", 81))))
	r := w.start(with(a).configured(func(c *config) { c.SlowRetry = time.Hour }))
	w.createMap("a", "x")
	r.settled(1)
	w.cloud.SetQuota(w.cloud.ProjectID(simcloud.ProjectKuryr), "security_group_rule", len(w.cloud.SecurityGroupRules()))
	a.now(always(setOf(group("g"), rule("tcp", 90), rule("tcp", 91))))
	r.engine.Replay("a")
	w.tcpRulesAre("90", "91")
	r.settled(1)
}
