// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

func bareGroup(name string) drivers.Resource {
	return drivers.Resource{Name: "group", Spec: drivers.SecurityGroup{Name: new(name), DefaultRules: new(false)}}
}

func inGroup(p drivers.Resource, group drivers.Value) drivers.Resource {
	spec, _ := p.Spec.(drivers.Port)
	spec.SecurityGroups = []drivers.Value{group}
	p.Spec = spec
	return p
}

// foreignRules counts the rules of a group that no Set here has: those that let out.
func (w *world) foreignRules(group string) (n int) {
	for _, g := range w.named("security_group", group) {
		for _, r := range w.cloud.SecurityGroupRules() {
			if r["security_group_id"] == g["id"] && r["direction"] == "egress" {
				n++
			}
		}
	}
	return n
}

// TestBareGroupsHaveNoPortsBeforeTheirRulesAreGone: as long as Neutron's rules are in a group, no reference leads to
// it, within a Set, by role, and by a claim; and a rule that is added later is deleted.
func TestBareGroupsHaveNoPortsBeforeTheirRulesAreGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	own := script("own", always(setOf(network("n1"), subnet("s1", "10.1.0.0/24"),
		exporting(bareGroup("own"), "bare"), inGroup(port("within"), drivers.From("group")))))
	byRole := script("role", always(setOf(network("n2"), subnet("s2", "10.2.0.0/24"),
		inGroup(port("by role"), drivers.FromRole(of("x", "bare"))))))
	byClaim := script("claim", always(setOf(network("n3"), subnet("s3", "10.3.0.0/24"),
		claiming(bareGroup("claimed"), "claimed"), inGroup(port("by claim"), drivers.From("group")))))
	id, err := w.cloud.AddFault(simcloud.Rule{
		Method: http.MethodDelete, Kind: "security_group_rule", Action: simcloud.ActionStatus, Status: 500,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := w.start(with(own, byRole, byClaim))
	w.createMap("own", "x")
	w.createMap("role", "y")
	w.createMap("claim", "z")
	r.stands("own", "x", state.Failing, "")
	r.stands("role", "y", state.Waiting, "bare of ConfigMap default/x")
	r.stands("claim", "z", state.Waiting, `"group"`)
	if ports := w.cloud.Objects("port"); len(w.named("port", "within"))+len(w.named("port", "by role"))+
		len(w.named("port", "by claim")) > 0 {
		t.Errorf("there are ports in groups that let everything out: %v", ports)
	}
	w.cloud.RemoveFault(id)
	r.settled(3)
	for port, group := range map[string]string{"within": "own", "by role": "own", "by claim": "claimed"} {
		w.hasGroups(port, group)
		if n := w.foreignRules(group); n > 0 {
			t.Errorf("group %s has %d rules that nothing asked for", group, n)
		}
	}
	w.by(http.MethodPost, "/security-group-rules", map[string]any{"security_group_rule": map[string]any{
		"security_group_id": w.one("security_group", "own")["id"], "direction": "egress", "ethertype": "IPv4",
	}}, http.StatusCreated)
	if err := r.engine.Observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.eventually("the added rule is gone", func() (bool, string) { return w.foreignRules("own") == 0, w.dump() })
	r.settled(3)
	w.hasGroups("within", "own")
}

// TestCrashesWhileAGroupIsMadeBare: whichever request is cut off and the process with it, no port gets into the group
// before it has lost Neutron's rules, and another process brings all to the same end, after which nothing is written.
func TestCrashesWhileAGroupIsMadeBare(t *testing.T) {
	t.Parallel()
	for n := 1; ; n++ {
		w := newWorld(t, simkube.Options{}, simcloud.Options{})
		a := script("a", always(setOf(network("n"), subnet("s", "10.1.0.0/24"), bareGroup("bare"),
			inGroup(port("web"), drivers.From("group")))))
		s := with(a).configured(func(c *config) { c.AmbiguousWait, c.SlowRetry = 60*time.Millisecond, 50*time.Millisecond })
		cut := make(chan struct{})
		w.cloud.OnRequest(func(_ int, r simcloud.Request) {
			if r.After && r.Fault != "" {
				close(cut)
			}
			if !r.After && r.Kind == "port" && r.Method == http.MethodPost && w.foreignRules("bare") > 0 {
				t.Errorf("request %d cut off: the port is made before the group has lost its rules", n)
			}
		})
		w.fault(simcloud.Rule{Method: "write", Nth: n, Action: simcloud.ActionApplyCut})
		run := w.start(s)
		w.createMap("a", "x")
		w.eventually(fmt.Sprintf("the port is there, with request %d cut off", n), func() (bool, string) {
			select {
			case <-cut:
				run.stop()
				run, cut = w.start(s), make(chan struct{}) // a second time nothing is cut
			default:
			}
			return run.object("a", "x").State == state.Done && len(w.named("port", "web")) == 1, w.dump()
		})
		w.hasGroups("web", "bare")
		if rules := w.foreignRules("bare"); rules > 0 || len(w.named("security_group", "bare")) != 1 {
			t.Errorf("request %d cut off: there are %d rules that nothing asked for:\n%s", n, rules, w.dump())
		}
		run.stop()
		w.cloud.ResetLog()
		run = w.start(s)
		run.settled(1)
		run.stop()
		if writes := w.cloud.Stats().Writes; writes != 0 {
			t.Errorf("request %d cut off: a restart wrote %d times: %v", n, writes, w.cloud.Log(0))
		}
		if w.cloud.Faults()[0].Acted == 0 {
			if n < 6 { // the network, its subnet, the group, two rules of it, the port
				t.Errorf("only %d requests", n-1)
			}
			return
		}
	}
}
