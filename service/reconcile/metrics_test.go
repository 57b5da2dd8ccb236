// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// TestDelaysAreOfNewObjects: how long a pod waits for its port and for its annotation is measured once, and not
// again by a Raven that starts later.
func TestDelaysAreOfNewObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(setup{})
	delays := func(r *raven) [2]int {
		return [2]int{
			observed(t, r, "raven_resource_creation_delay_seconds", map[string]string{"driver": "pod", "kind": "port"}),
			observed(t, r, "raven_writeback_delay_seconds", map[string]string{"driver": "pod"}),
		}
	}
	w.createNamespace("shop")
	w.createPod("shop", "web-1")
	w.createPod("shop", "web-2")
	r.settled(systemNamespaces + 3)
	if got := delays(r); got != [2]int{2, 2} {
		t.Errorf("two pods: ports and annotations were measured %v times", got)
	}
	r.stop()
	again := w.start(setup{})
	again.settled(systemNamespaces + 3)
	if got := delays(again); got != [2]int{} {
		t.Errorf("after a restart they were measured %v times", got)
	}
	w.createPod("shop", "web-3")
	again.settled(systemNamespaces + 4)
	if got := delays(again); got != [2]int{1, 1} {
		t.Errorf("a pod after a restart: they were measured %v times", got)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(again.engine.Metrics()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// observed is how often a histogram with these labels was observed.
func observed(t *testing.T, r *raven, name string, labels map[string]string) (n int) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.engine.Metrics()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, f := range families {
		for _, m := range f.GetMetric() {
			same := f.GetName() == name
			for _, l := range m.GetLabel() {
				same = same && labels[l.GetName()] == l.GetValue()
			}
			if same {
				found = true
				n += int(m.GetHistogram().GetSampleCount())
			}
		}
	}
	if !found {
		t.Fatalf("there is no metric %s with %v", name, labels)
	}
	return n
}
