// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/namespace"
	"github.com/kuryr/raven/drivers/networkpolicy"
	"github.com/kuryr/raven/drivers/pod"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

func networkPolicies() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}
}

// policed are the drivers that keep NetworkPolicies.
func policed() setup {
	s := setup{drivers: map[string]drivers.Driver{
		"namespace": namespace.New(), "pod": pod.New(), "networkpolicy": networkpolicy.New(),
	}}
	for _, d := range s.drivers {
		if aware, ok := d.(drivers.CoreAware); ok {
			aware.Core([]string{drivers.DriverCapability("networkpolicy")})
		}
	}
	return s
}

func policyObject(name string, spec map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"metadata": map[string]any{"namespace": "shop", "name": name}, "spec": spec,
	}
}

// everyPod selects all pods, and no label says so: their ports join the policy's group one by one.
func everyPod() map[string]any {
	return map[string]any{"matchExpressions": []any{map[string]any{"key": "no", "operator": "DoesNotExist"}}}
}

// peersGroup is how the group of the peers of this policy begins.
const peersGroup = "network-policy-peers-"

// TestAPolicyComesAndGoes: pods leave the groups that let everything through, are in those of the policy and of its
// peers, whichever comes first; nothing is written at rest nor by a restart; with the policy all that goes.
func TestAPolicyComesAndGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(policed())
	w.createNamespace("shop")
	w.createPod("shop", "web")
	r.settled(6)
	w.hasGroups("web", "shop-in shop-members shop-out")

	w.create(networkPolicies(), policyObject("deny", map[string]any{
		"podSelector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
		"ingress": []any{map[string]any{
			"from":  []any{map[string]any{"namespaceSelector": map[string]any{}, "podSelector": map[string]any{}}},
			"ports": []any{map[string]any{"protocol": "TCP", "port": int64(80)}},
		}},
		"policyTypes": []any{"Ingress"},
	}))
	r.settled(7)
	w.eventually("web is a peer, and not isolated", func() (bool, string) {
		got := w.groupsOf("web")
		return strings.HasPrefix(got, peersGroup) && strings.HasSuffix(got, " shop-in shop-members shop-out"), got
	})
	labels := []byte(`{"metadata": {"labels": {"app": "web"}}}`)
	if _, err := w.kube.Patch(pods(), "shop", "web", types.MergePatchType, labels); err != nil {
		t.Fatal(err)
	}
	isolated := func(port string) {
		t.Helper()
		w.eventually(port+" is isolated", func() (bool, string) {
			got := w.groupsOf(port)
			return strings.HasPrefix(got, peersGroup) && strings.HasSuffix(got, " shop-deny shop-members shop-out"), got
		})
	}
	isolated("web")
	labelled := podObject("shop", "later")
	metadata, _ := labelled["metadata"].(map[string]any)
	metadata["labels"] = map[string]any{"app": "web"}
	w.create(pods(), labelled)
	isolated("later")
	r.settled(8)
	w.cloud.ResetLog()
	time.Sleep(50 * time.Millisecond) // so that a write that must not come had its time
	r.stop()
	r = w.start(policed())
	r.settled(8)
	if n := w.cloud.Stats().Writes; n != 0 {
		t.Errorf("at rest and by a restart there were %d writes: %v %v", n, w.asked(http.MethodPut, "port"),
			w.asked(http.MethodPost, "security_group_rule"))
	}
	w.delete(networkPolicies(), "shop", "deny")
	w.hasGroups("web", "shop-in shop-members shop-out")
	w.hasGroups("later", "shop-in shop-members shop-out")
	w.none("security_group", "shop-deny")
	w.eventually("the peers' group is gone", func() (bool, string) {
		left := slices.DeleteFunc(w.cloud.SecurityGroups(), func(o map[string]any) bool {
			return !strings.HasPrefix(text(o, "name"), peersGroup)
		})
		return len(left) == 0, fmt.Sprint(left)
	})
}

// TestAPolicyMovesPortsOnce: ports of pods that run join the policy's group by one update each, once its rules are
// there, so that what the policy allows is not interrupted.
func TestAPolicyMovesPortsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(policed())
	w.createNamespace("shop")
	const running = 5
	for i := range running {
		w.createPod("shop", fmt.Sprint("web-", i))
	}
	r.settled(5 + running)
	w.cloud.ResetLog()
	w.create(networkPolicies(), policyObject("allow", map[string]any{
		"podSelector": everyPod(),
		"ingress": []any{map[string]any{
			"from": []any{
				map[string]any{"podSelector": everyPod()}, map[string]any{"ipBlock": map[string]any{"cidr": "192.0.2.0/24"}},
			},
			"ports": []any{map[string]any{"port": int64(80)}, map[string]any{"port": int64(443)}},
		}},
	}))
	for i := range running {
		port := fmt.Sprint("web-", i)
		w.eventually(port+" is isolated", func() (bool, string) {
			got := w.groupsOf(port)
			return strings.HasPrefix(got, peersGroup) && strings.HasSuffix(got, " shop-allow shop-members shop-out"), got
		})
	}
	r.settled(6 + running)
	moves, rules := 0, 0
	for _, req := range w.cloud.Log(0) {
		switch {
		case req.Method == http.MethodPost && req.Kind == "security_group_rule":
			if rules++; moves > 0 {
				t.Errorf("a rule was made after a port had joined the group")
			}
		case req.Method == http.MethodPut && req.Kind == "port":
			moves++
		}
	}
	if moves != running || rules == 0 {
		t.Errorf("%d ports were moved by %d updates, after %d requests for rules", running, moves, rules)
	}
}

// abrupt has a Raven that is told to end leave what is under way.
func abrupt(c *config) { c.Grace = time.Millisecond }

// TestPoliciesOutliveCrashes: Raven ends at one write after the other while a policy comes. A port that
// left a group that lets everything in is never in it again, no port is in a group with rules that nothing asked for,
// and the next Raven ends where one that was not interrupted does.
func TestPoliciesOutliveCrashes(t *testing.T) {
	t.Parallel()
	for crash := range 14 {
		t.Run(fmt.Sprint("at write ", crash), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, simkube.Options{}, simcloud.Options{})
			r := w.start(policed().configured(abrupt))
			w.createNamespace("shop")
			w.createPod("shop", "web")
			r.settled(6)
			w.hasGroups("web", "shop-in shop-members shop-out")
			var isolated atomic.Bool
			w.cloud.OnRequest(func(_ int, req simcloud.Request) {
				if !req.After || req.Kind != "port" || req.Method == http.MethodGet {
					return
				}
				open := strings.Contains(w.groupsOf("web"), "shop-in")
				if isolated.Load() && open {
					t.Errorf("the isolated port is in %s", w.groupsOf("web"))
				}
				isolated.Store(isolated.Load() || !open)
			})
			var writes atomic.Int32
			ended := make(chan struct{})
			end := sync.OnceFunc(func() { close(ended) })
			w.cloud.OnRequest(func(_ int, req simcloud.Request) {
				if !req.After && req.WriteN > 0 && int(writes.Add(1)) == crash+1 {
					end()
				}
			})
			w.create(networkPolicies(), policyObject("deny", map[string]any{
				"podSelector": everyPod(), "policyTypes": []any{"Ingress"},
				"ingress": []any{map[string]any{"from": []any{map[string]any{"namespaceSelector": map[string]any{}}}}},
			}))
			select {
			case <-ended:
			case <-time.After(2 * time.Second): // there are fewer writes than that
			}
			r.stop()
			r = w.start(policed().configured(abrupt))
			r.settled(7)
			w.eventually("web is isolated", func() (bool, string) {
				got := w.groupsOf("web")
				return strings.HasPrefix(got, peersGroup) && strings.HasSuffix(got, " shop-deny shop-members shop-out"), got
			})
			for _, group := range []string{"shop-deny", "shop-members", "shop-in"} {
				if n := w.foreignRules(group); n > 0 {
					t.Errorf("group %s has %d rules that nothing asked for", group, n)
				}
			}
		})
	}
}

// TestAPolicyOfAWholeNamespace: its rules are in the group of the namespace's members, and the group that lets
// everything in has none, before any port has left it.
func TestAPolicyOfAWholeNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(policed())
	w.createNamespace("shop")
	w.createPod("shop", "web")
	r.settled(6)
	w.hasGroups("web", "shop-in shop-members shop-out")
	rulesOf := func(group string) (n int) {
		id := ""
		for _, o := range w.cloud.SecurityGroups() {
			if text(o, "name") == group {
				id = text(o, "id")
			}
		}
		for _, o := range w.cloud.SecurityGroupRules() {
			if text(o, "security_group_id") == id {
				n++
			}
		}
		return n
	}
	rules := func(group string, want int) {
		t.Helper()
		w.eventually(fmt.Sprint("group ", group, " has ", want, " rules"), func() (bool, string) {
			return rulesOf(group) == want, fmt.Sprint(rulesOf(group))
		})
	}
	rules("shop-in", 2)
	w.create(networkPolicies(), policyObject("deny", map[string]any{
		"podSelector": map[string]any{}, "policyTypes": []any{"Ingress"},
		"ingress": []any{map[string]any{"ports": []any{map[string]any{"protocol": "TCP", "port": int64(80)}}}},
	}))
	rules("shop-in", 0)
	rules("shop-members", 2) // one is for what a pod sends itself
	rules("shop-deny", 0)
	rules("shop-out", 2)
	w.hasGroups("web", "shop-members shop-out")
	r.settled(7)
	w.createPod("shop", "later")
	w.hasGroups("later", "shop-members shop-out")
	r.settled(8)
	w.cloud.ResetLog()
	r.stop()
	r = w.start(policed())
	r.settled(8)
	if n := w.cloud.Stats().Writes; n != 0 {
		t.Errorf("by a restart there were %d writes", n)
	}
	w.delete(networkPolicies(), "shop", "deny")
	rules("shop-in", 2)
	rules("shop-members", 1)
	w.hasGroups("web", "shop-in shop-members shop-out")
	w.none("security_group", "shop-deny")
}

// TestAPolicyWithoutQuota closes its pods, which start all the same, and says what it lacks; with the quota it goes on.
func TestAPolicyWithoutQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(policed().configured(waitingSoftly(time.Millisecond)))
	w.createNamespace("shop")
	w.createPod("shop", "web")
	r.settled(6)
	project := text(w.one("port", "web"), "project_id")
	w.cloud.SetQuota(project, "security_group_rule", 0)
	w.create(networkPolicies(), policyObject("allow", map[string]any{
		"podSelector": everyPod(),
		"ingress": []any{map[string]any{
			"ports": []any{map[string]any{"port": int64(80)}, map[string]any{"port": int64(443)}},
		}},
	}))
	r.stands("networkpolicy", "allow", state.Waiting, "uota")
	w.hasGroups("web", "shop-allow shop-members shop-out")
	w.createPod("shop", "later")
	w.hasGroups("later", "shop-allow shop-members shop-out")
	w.eventually("an Event of the policy says it", func() (bool, string) {
		list, err := w.kube.List(events(), "shop")
		said := fmt.Sprint(list, err)
		return strings.Contains(said, "NetworkPolicy") && strings.Contains(said, "uota"), said
	})
	w.cloud.SetQuota(project, "security_group_rule", -1)
	r.engine.Replay("networkpolicy")
	r.settled(8)
}

// TestPoliciesOutliveTheirDriver: networkpolicy is taken out of the configuration while policies count. The other
// drivers still hear of it, since its groups are there: ports stay as they are, and nothing is written.
func TestPoliciesOutliveTheirDriver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(policed())
	w.createNamespace("shop")
	w.createPod("shop", "web")
	w.create(networkPolicies(), policyObject("deny", map[string]any{
		"podSelector": everyPod(), "policyTypes": []any{"Ingress"},
		"ingress": []any{map[string]any{
			"from": []any{map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{"app": "a"}}}},
		}},
	}))
	labelled := podObject("shop", "a")
	metadata, _ := labelled["metadata"].(map[string]any)
	metadata["labels"] = map[string]any{"app": "a"}
	w.create(pods(), labelled)
	r.settled(8)
	w.eventually("both are isolated, one is a peer", func() (bool, string) {
		web, a := w.groupsOf("web"), w.groupsOf("a")
		return web == "shop-deny shop-members shop-out" && strings.HasPrefix(a, peersGroup), web + "; " + a
	})
	web, a, rules := w.groupsOf("web"), w.groupsOf("a"), len(w.cloud.SecurityGroupRules())
	r.stop()
	w.cloud.ResetLog()
	without := policed()
	delete(without.drivers, "networkpolicy")
	r = w.start(without)
	w.eventually("the pods wait for what the driver has left", func() (bool, string) {
		waiting, last := 0, ""
		for _, o := range r.engine.Objects(reconcile.Filter{}) {
			last += fmt.Sprintf(" %s/%s %s: %v", o.Kind, o.Name, o.State, o.Reasons)
			if o.Kind == "Pod" && strings.Contains(fmt.Sprint(o.Reasons), "network-policy-group") {
				waiting++
			}
		}
		return waiting == 2, last
	})
	time.Sleep(50 * time.Millisecond) // so that a write that must not come had its time
	if n := w.cloud.Stats().Writes; n != 0 {
		t.Errorf("there were %d writes: %v %v", n, w.asked(http.MethodPut, "port"), w.asked(http.MethodDelete, ""))
	}
	if w.groupsOf("web") != web || w.groupsOf("a") != a || len(w.cloud.SecurityGroupRules()) != rules {
		t.Errorf("web was in %s and is in %s, a in %s and %s; %d rules were %d", web, w.groupsOf("web"), a, w.groupsOf("a"),
			len(w.cloud.SecurityGroupRules()), rules)
	}
	w.createPod("shop", "later")
	w.eventually("a pod that comes is closed", func() (bool, string) {
		got := w.groupsOf("later")
		return got == "shop-members shop-out", got
	})
	r.stop()
	r = w.start(policed())
	r.settled(9)
	w.hasGroups("later", "shop-deny shop-members shop-out")
	r.stop()

	// What the driver made is removed: its groups are left first, and until the other drivers hear that it is gone the
	// pods are closed altogether.
	c := w.cleanup(nil, time.Second)
	c.Driver = "networkpolicy"
	if left, err := c.Run(t.Context()); err != nil || len(left) > 0 {
		t.Fatalf("left %v (%v)", left, err)
	}
	w.none("security_group", "shop-deny")
	if got := w.groupsOf("later"); got != "shop-members shop-out" {
		t.Errorf("the pod is in %s", got)
	}
	r = w.start(setup{drivers: map[string]drivers.Driver{"namespace": namespace.New(), "pod": pod.New()}})
	for _, name := range []string{"web", "a", "later"} {
		w.hasGroups(name, "shop-sg")
	}
	w.none("security_group", "shop-members")
}
