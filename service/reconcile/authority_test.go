// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"strings"
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// TestADriverMayWhatWasAcceptedOfIt: a program that declares more when it is back may make no more; one that declares
// less, less.
func TestADriverMayWhatWasAcceptedOfIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a := script("a", always(setOf(network("n"))))
	a.declare(drivers.KindNetwork, drivers.KindRouter)
	r := w.start(with(a))
	w.createMap("a", "x")
	r.settled(1)
	a.declare(drivers.KindNetwork, drivers.KindRouter, drivers.KindSecurityGroup)
	a.now(always(setOf(network("n"), group("g"))))
	r.engine.Replay("a")
	r.stands("a", "x", state.Terminal, "kind security_group is not among those that the driver declares")
	w.none("security_group", "g")
	a.declare(drivers.KindNetwork)
	a.now(always(setOf(network("n"), router("r"))))
	r.engine.Replay("a")
	r.stands("a", "x", state.Terminal, "kind router is not among those that the driver declares")
	w.one("network", "n")
}

// TestManyLargeAnswers: each is within its bounds, all together are not; what was answered before stays, and others
// make room.
func TestManyLargeAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	long := strings.Repeat("x", 40<<10)
	a := script("a", func(name string, _ *drivers.Needs) (drivers.Set, error) {
		set := setOf(network(name))
		if strings.HasPrefix(name, "large") {
			set.Diagnostics = []drivers.Diagnostic{{Severity: drivers.Note, Reason: "Long", Message: long}}
		}
		return set, nil
	})
	r := w.start(with(a).configured(func(c *config) { c.HeldPerDriver = 100 << 10 }))
	w.createMap("a", "large1")
	w.createMap("a", "large2")
	r.settled(2)
	w.createMap("a", "large3")
	r.stands("a", "large3", state.Terminal, "its answers take too much memory")
	w.createMap("a", "small")
	r.stands("a", "small", state.Done, "")
	w.none("network", "large3")
	w.one("network", "large1")
	w.deleteMap("large1")
	w.none("network", "large1")
	w.updateMap("large3")
	r.stands("a", "large3", state.Done, "")
}

// TestContributionsTakeConsent: what changes resources of others is refused, for the whole object, where the operator
// does not allow it.
func TestContributionsTakeConsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	set := setOf(network("n"))
	set.Contributions = []drivers.Contribution{{
		Name: "c", Target: drivers.Role{Role: drivers.ClusterRouter}, Attribute: "routes",
		Route: &drivers.Route{Destination: "0.0.0.0/0", NextHop: "10.6.6.6"},
	}}
	a, b := script("a", always(set)), script("b", always(set))
	s := with(a, b).configured(func(c *config) { c.Contributes = map[string][]string{"a": {"networks"}, "b": {"routes"}} })
	r := w.start(s)
	w.createMap("a", "x")
	r.stands("a", "x", state.Terminal, "[driver:a] allow_contributions does not name")
	w.none("network", "n")
	w.createMap("b", "y")
	w.one("network", "n")
}
