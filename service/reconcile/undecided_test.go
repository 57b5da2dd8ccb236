// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// unchanged checks that the cloud stays as it is.
func (w *world) unchanged(want string) {
	w.t.Helper()
	time.Sleep(200 * time.Millisecond)
	if now := w.dump(); now != want {
		w.t.Errorf("the cloud is\n%s\nwant\n%s", now, want)
	}
}

// TestAnotherServiceCIDR: the service network cannot be laid out any more, so it stays as it is, and the namespaces
// are told.
func TestAnotherServiceCIDR(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{ServiceCIDR: "10.96.0.0/16"}, simcloud.Options{})
	r := w.start(setup{})
	r.settled(4) // the namespaces of a new cluster
	w.one("network", "raven-default-service")
	w.one("subnet", "raven-default-10.96.0.0/16")
	want := w.dump()
	cidrs := schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "servicecidrs"}
	w.create(cidrs, map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": map[string]any{"name": "added"},
		"spec": map[string]any{"cidrs": []any{"10.97.0.0/16"}},
	})
	w.events("NoServiceNetwork", 2) // of the two namespaces that get networks by default
	r.stands("shared", "", state.Waiting, `driver namespace has no opinion on shared resource "service-subnet" now`)
	w.unchanged(want)
	r.stop()
	r = w.start(setup{})
	r.stands("shared", "", state.Waiting, "no opinion")
	w.unchanged(want)
	w.delete(cidrs, "", "added")
	r.settled(4)
	w.unchanged(want)
}

// TestUndecided: of what is undecided nothing is made, changed or deleted, not even by a replay or by another owner,
// and references lead to it.
func TestUndecided(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	whole := setOf(
		claiming(router("all"), "router"), claiming(network("all"), "net"), exporting(group("own"), "guests"),
	)
	a := script("a", always(whole))
	b := script("b", always(setOf(drivers.Resource{Name: "rule", Spec: drivers.SecurityGroupRule{
		SecurityGroupID: drivers.FromRole(of("x", "guests")), Direction: new("ingress"), EtherType: new("IPv4"),
	}})))
	s := with(a, b).configured(func(c *config) { c.MaxReplayDeletes = 0 })
	r := w.start(s)
	w.createMap("a", "x")
	w.createMap("a", "z")
	w.createMap("b", "y")
	r.settled(3)
	want := w.dump()

	open := drivers.Set{Undecided: []string{"router", "net", "group", "never made"}}
	a.now(always(open))
	r.engine.Replay("a")
	r.stands("shared", "", state.Waiting, `driver a has no opinion on shared resource "net" now`)
	r.stands("a", "x", state.Done, "")
	r.stands("b", "y", state.Waiting, "guests of ConfigMap default/x")
	w.unchanged(want)
	if guards := r.engine.Guards(); len(guards) > 0 {
		t.Errorf("the replay would delete something: %v", guards)
	}
	r.stop()
	r = w.start(s)
	r.stands("shared", "", state.Waiting, "no opinion")
	w.unchanged(want)

	// References of the Set lead to what exists, own and shared.
	using := open
	using.Resources = []drivers.Resource{
		{Name: "rule", Spec: drivers.SecurityGroupRule{
			SecurityGroupID: drivers.From("group"), Direction: new("egress"), EtherType: new("IPv4"), Protocol: new("tcp"),
		}},
		{Name: "port", Spec: drivers.Port{Name: new("guest"), NetworkID: drivers.From("net")}},
	}
	a.now(func(name string, _ *drivers.Needs) (drivers.Set, error) {
		if name == "x" {
			return using, nil
		}
		return open, nil
	})
	r.engine.Replay("a")
	r.stands("a", "x", state.Done, "")
	w.one("port", "guest")

	// Who claims it still counts, and it goes when all that had no opinion are gone or have one again.
	a.now(func(name string, _ *drivers.Needs) (drivers.Set, error) {
		if name == "x" {
			return drivers.Set{Undecided: []string{"router", "net", "group"}}, nil
		}
		return setOf(claiming(router("renamed"), "router")), nil
	})
	w.updateMap("x")
	w.updateMap("z")
	w.one("router", "renamed")
	w.one("network", "all")
	w.deleteMap("x")
	w.none("network", "all")
	w.one("router", "renamed")
}
