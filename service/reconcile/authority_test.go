package reconcile_test

import (
	"strings"
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/reconcile"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// TestADriverMayWhatWasAcceptedOfIt: a program that declares more when it is back may make no more; one that declares less, less.
func TestADriverMayWhatWasAcceptedOfIt(t *testing.T) {
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a := script("a", always(setOf(network("n"))))
	a.declare(drivers.KindNetwork, drivers.KindRouter)
	r := w.start(with(a))
	w.createMap("a", "x")
	r.settled(1)
	a.declare(drivers.KindNetwork, drivers.KindRouter, drivers.KindSecurityGroup)
	a.now(always(setOf(network("n"), group("g"))))
	r.engine.Replay("a")
	r.stands("a", "x", reconcile.Terminal, "kind security_group is not among those that the driver declares")
	w.none("security_group", "g")
	a.declare(drivers.KindNetwork)
	a.now(always(setOf(network("n"), router("r"))))
	r.engine.Replay("a")
	r.stands("a", "x", reconcile.Terminal, "kind router is not among those that the driver declares")
	w.one("network", "n")
}

// TestManyLargeAnswers: each is within its bounds, all together are not; what was answered before stays, and others make room.
func TestManyLargeAnswers(t *testing.T) {
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	long := strings.Repeat("x", 40<<10)
	a := script("a", func(name string, _ *drivers.Needs) (drivers.Set, error) {
		set := setOf(network(name))
		if strings.HasPrefix(name, "large") {
			set.Diagnostics = []drivers.Diagnostic{{Severity: drivers.Note, Reason: "Long", Message: long}}
		}
		return set, nil
	})
	r := w.start(with(a).configured(func(c *reconcile.Config) { c.HeldPerDriver = 100 << 10 }))
	w.createMap("a", "large1")
	w.createMap("a", "large2")
	r.settled(2)
	w.createMap("a", "large3")
	r.stands("a", "large3", reconcile.Terminal, "its answers take too much memory")
	w.createMap("a", "small")
	r.stands("a", "small", reconcile.Done, "")
	w.none("network", "large3")
	w.one("network", "large1")
	w.deleteMap("large1")
	w.none("network", "large1")
	w.updateMap("large3")
	r.stands("a", "large3", reconcile.Done, "")
}
