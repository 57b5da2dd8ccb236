// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

func contributing(set drivers.Set, list ...drivers.Contribution) drivers.Set {
	set.Contributions = list
	return set
}

func routeTo(destination, hop string) drivers.Contribution {
	return drivers.Contribution{
		Name: "route", Target: drivers.Role{Role: "way"}, Attribute: "routes",
		Route: &drivers.Route{Destination: destination, NextHop: hop},
	}
}

// groupsOf returns the names of the port's security groups.
func (w *world) groupsOf(port string) string {
	names := []string{}
	for _, p := range w.named("port", port) {
		for _, id := range p["security_groups"].([]any) {
			for _, g := range w.cloud.SecurityGroups() {
				if g["id"] == id {
					names = append(names, text(g, "name"))
				}
			}
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (w *world) hasGroups(port, want string) {
	w.t.Helper()
	w.eventually(port+" has groups "+want, func() (bool, string) { got := w.groupsOf(port); return got == want, got })
}

func (w *world) routes() string {
	var list []string
	for _, r := range w.named("router", "all") {
		for _, route := range r["routes"].([]any) {
			list = append(list, text(route.(map[string]any), "destination"))
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func (w *world) hasRoutes(want string) {
	w.t.Helper()
	w.eventually("routes "+want, func() (bool, string) { got := w.routes(); return got == want, got })
}

// TestContributedSecurityGroups join a port's own, or replace them, and go with who gave them, also while Raven does
// not run.
func TestContributedSecurityGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	p := exporting(port("web"), "port")
	spec := p.Spec.(drivers.Port)
	spec.SecurityGroups = []drivers.Value{drivers.From("group")}
	p.Spec = spec
	a := script("a", always(setOf(network("shop"), subnet("shop", "10.1.0.0/24"), group("own"), p)))
	give := func(mode drivers.ContributionMode) func(string, *drivers.Needs) (drivers.Set, error) {
		return func(name string, _ *drivers.Needs) (drivers.Set, error) {
			return contributing(setOf(group(name)), drivers.Contribution{
				Name: "g", Target: of("x", "port"), Attribute: "security_groups", SecurityGroup: drivers.From("group"), Mode: mode,
			}), nil
		}
	}
	b, c := script("b", give(drivers.Add)), script("c", give(drivers.Replace))
	r := w.start(with(a, b, c))
	w.createMap("a", "x")
	w.createMap("b", "added")
	r.settled(2)
	w.hasGroups("web", "added own")
	w.createMap("c", "strict")
	w.hasGroups("web", "added strict")
	r.stop()

	// A restart in which the replacing driver has not answered yet must not open what it closed, nor take away what was
	// added.
	var (
		mu   sync.Mutex
		seen []string
	)
	w.cloud.OnRequest(func(int, simcloud.Request) {
		groups := w.groupsOf("web")
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, groups)
	})
	c.now(func(string, *drivers.Needs) (drivers.Set, error) { return drivers.Set{}, drivers.ErrUnavailable })
	r = w.start(with(a, b, c))
	r.stands("a", "x", state.Done, "")
	time.Sleep(100 * time.Millisecond)
	mu.Lock()
	found := slices.Clone(seen)
	mu.Unlock()
	for _, groups := range found {
		if groups != "added strict" {
			t.Errorf("for a while the port had the groups %q", groups)
		}
	}
	c.now(give(drivers.Replace))
	r.settled(3)
	w.hasGroups("web", "added strict")
	r.stop()
	w.deleteMap("strict")
	r = w.start(with(a, b, c))
	w.hasGroups("web", "added own")
	w.deleteMap("added")
	w.hasGroups("web", "own")
	r.settled(1)
	for _, tag := range w.one("port", "web")["tags"].([]any) {
		if strings.HasPrefix(tag.(string), "raven:add") || strings.HasPrefix(tag.(string), "raven:replace") {
			t.Errorf("mark %s is left", tag)
		}
	}
}

func TestContributedAddressPairs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a := script("a", always(setOf(network("shop"), subnet("shop", "10.1.0.0/24"), exporting(port("web"), "port"))))
	b := script("b", func(name string, _ *drivers.Needs) (drivers.Set, error) {
		return contributing(drivers.Set{}, drivers.Contribution{
			Name: "p", Target: of("x", "port"), Attribute: "allowed_address_pairs",
			AddressPair: &drivers.AddressPair{IPAddress: "10.9.0.0/24"},
		}), nil
	})
	r := w.start(with(a, b).configured(drifting))
	pairs := func(n int) {
		t.Helper()
		w.eventually("pairs", func() (bool, string) {
			p := w.one("port", "web")
			return len(p["allowed_address_pairs"].([]any)) == n, w.dump()
		})
	}
	w.createMap("b", "y")
	r.stands("b", "y", state.Waiting, `contribution "p" waits for the port of ConfigMap default/x`)
	w.createMap("a", "x")
	r.settled(2)
	pairs(1)
	w.by("PUT", "/ports/"+text(w.one("port", "web"), "id"), map[string]any{"port": map[string]any{
		"allowed_address_pairs": []any{map[string]any{"ip_address": "10.9.0.0/24"}, map[string]any{"ip_address": "10.8.0.1"}},
	}}, 200)
	w.drifts(2)
	pairs(2) // the operator's own stays: the port's owner has no opinion about pairs
	w.deleteMap("y")
	pairs(1)
	if p := w.dump(); !strings.Contains(p, "10.8.0.1") {
		t.Errorf("the operator's pair is gone:\n%s", p)
	}
	r.settled(1)
}

// TestContributedRoutes: a claimed router's routes come and go with those who give them, and an operator's own stay.
func TestContributedRoutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	set := setOf(exporting(claiming(router("all"), "router"), "way"), claiming(network("all"), "network"))
	set.Resources = append(set.Resources, claiming(subnet("all", "10.1.0.0/24"), "subnet"),
		claiming(attachment(), "attachment"))
	a := script("a", always(set))
	b := script("b", func(name string, _ *drivers.Needs) (drivers.Set, error) {
		return contributing(drivers.Set{}, routeTo("10."+name+".0.0/16", "10.1.0.9")), nil
	})
	r := w.start(with(a, b).configured(drifting))
	w.createMap("a", "x")
	r.settled(1)
	w.createMap("b", "20")
	w.createMap("b", "21")
	w.hasRoutes("10.20.0.0/16 10.21.0.0/16")
	id := text(w.one("router", "all"), "id")
	w.by("PUT", "/routers/"+id+"/add_extraroutes", map[string]any{"router": map[string]any{
		"routes": []any{map[string]any{"destination": "10.99.0.0/16", "nexthop": "10.1.0.8"}},
	}}, 200)
	w.deleteMap("20")
	w.hasRoutes("10.21.0.0/16 10.99.0.0/16")
	r.settled(2)
	r.stop()
	w.deleteMap("21")
	r = w.start(with(a, b))
	w.hasRoutes("10.99.0.0/16")
	r.settled(1)
}

// TestNothingIsContributedToWhatAnOperatorNamed.
func TestNothingIsContributedToWhatAnOperatorNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	w.by("POST", "/routers", doc("router", "name", "all"), 201)
	a := script("a", always(setOf(drivers.Resource{
		Name: "router", Spec: drivers.Lookup{Of: drivers.KindRouter, ID: "all"}, Exports: []string{"way"},
	})))
	route := routeTo("10.2.0.0/16", "10.1.0.9")
	route.Target = of("x", "way")
	r := w.start(with(a, script("b", always(contributing(drivers.Set{}, route)))))
	w.createMap("a", "x")
	w.createMap("b", "y")
	r.stands("b", "y", state.Waiting, "never changed")
	if got := w.routes(); got != "" {
		t.Errorf("routes are %s", got)
	}
}
