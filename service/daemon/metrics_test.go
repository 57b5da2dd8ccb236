// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/kuryr/raven/service/health"
)

var (
	describedName  = regexp.MustCompile(`fqName: "([^"]+)", help: "([^"]*)"`)
	documentedName = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|")
)

// withAll is a daemon that has metrics of every part.
func withAll(t *testing.T) *running {
	t.Helper()
	r := newRig(t)
	r.set("kubernetes", "controller_ha", "true")
	r.set("kubernetes", "lease_namespace", testNamespace)
	r.set("ovn", "nb_connection", "unix:"+filepath.Join(r.dir, "none"))
	r.create(configmaps, "one")
	p := r.start(nil)
	p.awaitComponent("driver "+configmaps, health.Ready, "")
	r.awaitNetworks(configmaps + "-one")
	return p
}

// TestMetricsAreDocumented: docs/metrics.md and the collectors name the same metrics, and what is deprecated says so in
// both.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	p := withAll(t)
	has, old := map[string]bool{}, map[string]bool{}
	for _, c := range append(p.collectors(), p.current().collectors()...) {
		descs := make(chan *prometheus.Desc)
		go func() { c.Describe(descs); close(descs) }()
		for d := range descs {
			found := describedName.FindStringSubmatch(d.String())
			if found == nil {
				t.Fatalf("%s has no name", d)
			}
			has[found[1]], old[found[1]] = true, strings.HasPrefix(found[2], "Deprecated: ")
		}
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	current, deprecated, _ := strings.Cut(string(page), "\n## Deprecated\n")
	documented := map[string]bool{}
	for i, part := range []string{current, deprecated} {
		for _, found := range documentedName.FindAllStringSubmatch(part, -1) {
			name := found[1]
			if strings.HasPrefix(name, "raven_node_") {
				continue // the node's daemon has a test of its own
			}
			documented[name] = true
			if has[name] && old[name] != (i == 1) {
				t.Errorf("%s: its HELP and the page do not agree whether it is deprecated", name)
			}
		}
	}
	if have, want := slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(has)); !slices.Equal(have, want) {
		t.Errorf("the page names\n%s\nthere are\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// TestMetricsFollowConventions: Prometheus' own linter has nothing to say of what is served.
func TestMetricsFollowConventions(t *testing.T) {
	t.Parallel()
	p := withAll(t)
	families, err := p.metricsRegistry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := ""
			for _, l := range m.GetLabel() {
				labels += fmt.Sprintf(" %s=%s", l.GetName(), l.GetValue())
			}
			values[f.GetName()+labels] = m.GetGauge().GetValue() + m.GetCounter().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, least := range map[string]float64{
		"raven_openstack_request_duration_seconds kind=network method=POST status=201": 1,
		"raven_openstack_request_resources_total kind=network method=POST status=201":  1,
		"raven_reconcile_duration_seconds driver=" + configmaps:                        1,
		"raven_driver_up driver=" + configmaps:                                         1,
		"raven_config_last_reload_successful":                                          1,
		"raven_config_last_reload_success_timestamp_seconds":                           float64(p.started.Unix()),
		"raven_backend_last_list_success_timestamp_seconds backend=Neutron":            float64(p.started.Unix()),
		"workqueue_adds_total name=" + configmaps:                                      1,
		"raven_steps_total kind=network op=create outcome=ok":                          1,
	} {
		if have, there := values[name]; !there || have < least {
			t.Errorf("%s is %v, want at least %v", name, have, least)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(slices.Sorted(maps.Keys(values)), "\n"))
	}
}
