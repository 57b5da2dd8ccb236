// SPDX-License-Identifier: Apache-2.0

package etc_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	rulesFile     = "prometheus/raven.rules.yaml"
	rulesTestFile = "prometheus/raven.rules.test.yaml"
)

type alertRule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func alerts(t *testing.T) []alertRule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string      `json:"name"`
			Rules []alertRule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, rulesFile)), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) == 0 {
		t.Fatalf("%s has no rules", rulesFile)
	}
	return file.Groups[0].Rules
}

// metricWord finds names of metrics in a query.
var metricWord = regexp.MustCompile(`\b(?:raven|workqueue|rest_client)_[a-z0-9_]+`)

// checkMetrics reports the metrics of a query that docs/metrics.md does not name, or calls deprecated. Another test
// holds that page to the program.
func checkMetrics(t *testing.T, where, query string) {
	t.Helper()
	current, _, found := strings.Cut(read(t, "../docs/metrics.md"), "\n## Deprecated\n")
	if !found {
		t.Fatal("docs/metrics.md has no section on what is deprecated")
	}
	types := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (gauge|counter|histogram) \\|")
	for _, cells := range row.FindAllStringSubmatch(current, -1) {
		types[cells[1]] = cells[2]
	}
	names := metricWord.FindAllString(query, -1)
	if len(names) == 0 {
		t.Errorf("%s: %s has no metric", where, query)
	}
	for _, name := range names {
		base := name
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if cut, ok := strings.CutSuffix(name, suffix); ok && types[cut] == "histogram" {
				base = cut
			}
		}
		if kind := types[base]; kind == "" || kind == "histogram" && base == name {
			t.Errorf("%s: there is no metric %s", where, name)
		}
	}
}

// TestAlertsHaveWhatTheyNeed: each alert is of metrics that there are, has a severity, texts and a section in
// docs/alerts.md, which has no others, and unit tests in which it fires and does not.
func TestAlertsHaveWhatTheyNeed(t *testing.T) {
	t.Parallel()
	sections := map[string]bool{}
	for _, cells := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(read(t, "../docs/alerts.md"), -1) {
		sections[cells[1]] = true
	}
	tests := read(t, rulesTestFile)
	names := map[string]bool{}
	for _, a := range alerts(t) {
		names[a.Alert] = true
		checkMetrics(t, a.Alert, a.Expr)
		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("%s has the severity %q", a.Alert, a.Labels["severity"])
		}
		want := "https://github.com/kuryr/raven/blob/main/docs/alerts.md#" + strings.ToLower(a.Alert)
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" || a.Annotations["runbook_url"] != want {
			t.Errorf("%s has the annotations %v", a.Alert, a.Annotations)
		}
		for _, test := range []string{" fires\n", " does not fire\n"} {
			if !strings.Contains(tests, "- name: "+a.Alert+test) {
				t.Errorf("%s has no test %q", a.Alert, a.Alert+strings.TrimSpace(test))
			}
		}
	}
	if have, want := slices.Sorted(maps.Keys(sections)), slices.Sorted(maps.Keys(names)); !slices.Equal(have, want) {
		t.Errorf("docs/alerts.md has sections on %v, there are %v", have, want)
	}
}

// TestDashboardAsksForMetrics: each query of the dashboard is of metrics that there are.
func TestDashboardAsksForMetrics(t *testing.T) {
	t.Parallel()
	var dashboard struct {
		Panels []struct {
			ID      int    `json:"id"`
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal([]byte(read(t, "grafana/raven.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	if len(dashboard.Panels) == 0 {
		t.Fatal("the dashboard has no panels")
	}
	ids := map[int]bool{}
	for _, p := range dashboard.Panels {
		if len(p.Targets) == 0 || ids[p.ID] {
			t.Errorf("panel %q has no query, or another one's id", p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			checkMetrics(t, p.Title, target.Expr)
		}
	}
}

// TestServiceMonitorSelectsTheService: what the operator's Prometheus scrapes is the Service of the manifests.
func TestServiceMonitorSelectsTheService(t *testing.T) {
	t.Parallel()
	type metadata struct {
		Name, Namespace string
		Labels          map[string]string
	}
	var monitor struct {
		Metadata metadata
		Spec     struct {
			Selector  struct{ MatchLabels map[string]string }
			Endpoints []struct{ Port string }
		}
	}
	var service struct {
		Metadata metadata
		Spec     struct{ Ports []struct{ Name string } }
	}
	for path, into := range map[string]any{
		"prometheus/servicemonitor.yaml": &monitor, "kustomize/50-metrics.yaml": &service,
	} {
		if err := yaml.Unmarshal([]byte(read(t, path)), into); err != nil {
			t.Fatal(err)
		}
	}
	for key, value := range monitor.Spec.Selector.MatchLabels {
		if service.Metadata.Labels[key] != value {
			t.Errorf("the Service's label %s is %q, %q is selected", key, service.Metadata.Labels[key], value)
		}
	}
	if len(monitor.Spec.Selector.MatchLabels) == 0 || monitor.Metadata.Namespace != service.Metadata.Namespace ||
		len(monitor.Spec.Endpoints) != 1 || monitor.Spec.Endpoints[0].Port != service.Spec.Ports[0].Name {
		t.Errorf("%+v does not select %+v", monitor, service)
	}
}

// TestAlertsFire: promtool takes the rules, and fires each of them as their unit tests say.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	promtool := os.Getenv("RAVEN_TEST_PROMTOOL")
	if promtool == "" {
		var err error
		if promtool, err = exec.LookPath("promtool"); err != nil {
			t.Skip("there is no promtool: install Debian's prometheus, or set RAVEN_TEST_PROMTOOL to its path")
		}
	}
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"test", "rules", rulesTestFile}} {
		out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
		if err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
