package main

import (
	"log/slog"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/service/ovn"
)

// TestOVNIsReported: a database that is wanted and not configured, or away, degrades the daemon with the reason; one that nobody wants is not
// spoken of.
func TestOVNIsReported(t *testing.T) {
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
	r := &runtime{units: []*unit{{program: driverProgram{name: "pod", info: drivers.Info{Kinds: []drivers.Kind{drivers.KindPort}}}}}}
	if r.hasOVN() || r.ovnReport() != nil {
		t.Error("nobody wants it, and it is spoken of")
	}
	r.units[0].program = driverProgram{name: "kubeproxy", info: drivers.Info{Kinds: []drivers.Kind{drivers.KindOVNLoadBalancer}}}
	if got := said(r); !r.hasOVN() || got.State != health.Degraded || !strings.Contains(got.Reason, "kubeproxy") || !strings.Contains(got.Reason, "[ovn] nb_connection") {
		t.Errorf("wanted and not configured: %+v", got)
	}
	n, err := ovn.Open(t.Context(), ovn.Config{Cluster: "c", Endpoints: []string{"unix:" + t.TempDir() + "/none"}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	r.northbound = n
	if got := said(r); got.State != health.Degraded || !strings.Contains(got.Reason, "is away") {
		t.Errorf("away: %+v", got)
	}
	if s := r.ovnReport(); s == nil || s.Connected || !strings.Contains(ovnText(*s), "is away") {
		t.Errorf("away: %+v", s)
	}
}
