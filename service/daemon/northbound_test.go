// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/test/sim/northbound"
)

// TestOVNIsReported: a database that is wanted and not configured, or away, degrades the daemon with the reason; one
// that nobody wants is not spoken of.
func TestOVNIsReported(t *testing.T) {
	t.Parallel()
	registry := health.NewRegistry(clock.RealClock{})
	said := func(r *runtime) health.Report {
		r.reportOVN(registry.Component(ovnComponent))
		for _, report := range registry.Reports() {
			if report.Name == ovnComponent {
				return report
			}
		}
		return health.Report{}
	}
	watching := func(name string, kind drivers.Kind) []*Watcher {
		return []*Watcher{newWatcher(watcherConfig{Program: Program{
			Name: name,
			Info: drivers.Info{Kinds: []drivers.Kind{kind}},
		}})}
	}
	r := &runtime{watchers: watching("pod", drivers.KindPort)}
	if r.hasOVN() || r.ovnReport() != nil {
		t.Error("nobody wants it, and it is spoken of")
	}
	r.watchers = watching("kubeproxy", drivers.KindOVNLoadBalancer)
	if got := said(r); !r.hasOVN() || got.State != health.Degraded || !strings.Contains(got.Reason, "kubeproxy") ||
		!strings.Contains(got.Reason, "[ovn] nb_connection") {
		t.Errorf("wanted and not configured: %+v", got)
	}
	n, err := ovn.Open(t.Context(), ovn.Config{Cluster: "c", Endpoints: []string{"unix:" + t.TempDir() + "/none"}},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	r.northbound = n
	if got := said(r); got.State != health.Degraded || !strings.Contains(got.Reason, "unreachable") {
		t.Errorf("away: %+v", got)
	}
	if s := r.ovnReport(); s == nil || s.Connected || !strings.Contains(NorthboundText(*s), "unreachable") {
		t.Errorf("away: %+v", s)
	}
}

// TestOVNIsNotDropped: a configuration without OVN's northbound database is refused while load balancers of the
// cluster's are in it, also while it is away; with another address of it, or when they are gone, it is not.
func TestOVNIsNotDropped(t *testing.T) {
	t.Parallel()
	if err := northbound.Available(); err != nil {
		t.Skip(err)
	}
	server, err := northbound.Start(t.Context(), northbound.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	n, err := ovn.Open(t.Context(), ovn.Config{Cluster: "c", Endpoints: []string{server.Unix()}},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	if err := n.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	values := func(environ ...string) *config.Values {
		v, _, err := config.Load(config.Sources{Environ: environ}, Options())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	without, elsewhere := values(), values("OS_OVN__NB_CONNECTION=tcp:192.0.2.1:6641")
	r := &runtime{northbound: n}
	check := func(when string, refused bool) {
		t.Helper()
		err := r.mayDropOVN(without)
		if (err != nil) != refused || refused && !(strings.Contains(err.Error(), "[ovn] nb_connection") &&
			strings.Contains(err.Error(), "1 load balancers")) {
			t.Errorf("%s: %v", when, err)
		}
		if err := r.mayDropOVN(elsewhere); err != nil {
			t.Errorf("%s, with another address: %v", when, err)
		}
	}
	check("nothing is there", false)
	identity := plan.Identity{
		Cluster: "c", Owner: plan.Owner{Driver: "kubeproxy", UID: "u"}, Name: "lb",
		Policy: drivers.Delete,
	}
	group, err := n.Create(t.Context(), drivers.KindOVNLoadBalancerGroup, identity, map[string]any{"name": "g"})
	if err != nil {
		t.Fatal(err)
	}
	check("a group is there", false)
	serve := func() (id string) {
		made, err := n.Create(t.Context(), drivers.KindOVNLoadBalancer, identity,
			map[string]any{"name": "shop/web", "group_id": group.ID, "vips": []any{
				map[string]any{"protocol": "TCP", "address": "10.96.0.10", "port": int64(80), "backends": []any{}},
			}})
		if err != nil {
			t.Fatal(err)
		}
		return made.ID
	}
	id := serve()
	check("it serves", true)
	if err := (&runtime{}).mayDropOVN(without); err != nil {
		t.Errorf("there was none: %v", err)
	}
	if err := n.Delete(t.Context(), drivers.KindOVNLoadBalancer, id); err != nil {
		t.Fatal(err)
	}
	check("it is gone", false)
	serve()
	server.Kill()
	for end := time.Now().Add(patience); n.Status().Connected; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the database is dead, and still counts as connected")
		}
	}
	check("it serves, and the database is away", true)
	if err := r.mayDropOVN(without); !strings.Contains(err.Error(), "if it is gone for good, start Raven anew") {
		t.Errorf("no way out: %v", err)
	}
}
