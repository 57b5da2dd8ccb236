// SPDX-License-Identifier: Apache-2.0

package node

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// TestMetricsAreDocumented: docs/metrics.md and the collector name the same metrics, and Prometheus' linter has nothing
// to say of them.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	m.phases.WithLabelValues(phaseInstalled)
	m.requests.WithLabelValues("ADD", "ok")
	m.restored.WithLabelValues("link")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	has := map[string]bool{}
	for _, f := range families {
		has[f.GetName()] = true
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	row := regexp.MustCompile("(?m)^\\| `(raven_node_[a-z_]+)` \\|")
	for _, found := range row.FindAllStringSubmatch(string(page), -1) {
		documented[found[1]] = true
	}
	if !maps.Equal(has, documented) {
		t.Errorf("the page names %v, there are %v", slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(has)))
	}
}
