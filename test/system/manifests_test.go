// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/kuryr/raven/test/harness"
)

// rights are the verbs of a role by group, resource and name.
func rights(t *testing.T, role []byte) map[string]string {
	t.Helper()
	var r rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict(role, &r); err != nil {
		t.Fatal(err)
	}
	verbs := map[string][]string{}
	for _, rule := range r.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				on := fmt.Sprintf("%s/%s %v", group, resource, rule.ResourceNames)
				verbs[on] = append(verbs[on], rule.Verbs...)
			}
		}
	}
	sorted := map[string]string{}
	for on, list := range verbs {
		slices.Sort(list)
		sorted[on] = strings.Join(slices.Compact(list), " ")
	}
	return sorted
}

// document returns the one document of a manifest that is of a kind.
func document(t *testing.T, manifest, kind string) []byte {
	t.Helper()
	for text := range strings.SplitSeq(manifest, "---\n") {
		if strings.Contains("\n"+text, "\nkind: "+kind+"\n") {
			return []byte(text)
		}
	}
	t.Fatalf("there is no %s in:\n%s", kind, manifest)
	return nil
}

func TestRolesAreWhatTheDriversNeed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	// The file is for the drivers of the manifests' configuration.
	r.install("raven-driver-node", "bin/raven-driver-node")
	got := r.raven("driver", "rbac", "--config-file", r.write("empty.conf", ""),
		"--set", "raven.drivers=namespace,pod,node", "--set", "raven.runtime_dir="+r.path("run"))
	want, err := os.ReadFile("../../etc/kustomize/20-rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(want)) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	if file := strings.Join(lines, ""); got.status != 0 || got.out != file {
		t.Errorf("etc/kustomize/20-rbac.yaml is stale: make it anew as its first line says (exit status %d %s):\n%s",
			got.status, got.errors,
			harness.LineDiff(file, got.out))
	}

	// The README shows the one for all drivers of Raven.
	r.install("raven-driver-lbaas", "bin/raven-driver-lbaas")
	r.install("raven-driver-networkpolicy", "bin/raven-driver-networkpolicy")
	got = r.raven("driver", "rbac", "--config-file", r.write("empty.conf", ""), "--set",
		"raven.drivers=namespace,pod,node,lbaas,networkpolicy",
		"--set", "kubernetes.kubeconfig=/etc/kuryr/kubeconfig", "--set", "raven.runtime_dir="+r.path("run"))
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"ClusterRole", "Role"} {
		var shown map[string]string
		for _, block := range strings.Split(string(readme), "```yaml\n")[1:] {
			if block, _, _ = strings.Cut(block, "```"); strings.Contains(block, "kind: "+kind+"\n") {
				shown = rights(t, []byte(block))
			}
		}
		if made := rights(t, document(t, got.out, kind)); len(shown) == 0 || !maps.Equal(made, shown) {
			t.Errorf("README.md shows another %s than raven driver rbac prints:\n README %v\n made   %v", kind, shown, made)
		}
	}
	if role := string(document(t, got.out, "Role")); !strings.Contains(role, "  namespace: kube-system\n") {
		t.Errorf("a Raven outside of the cluster has its Lease in kube-system; its Role is\n%s", role)
	}

	// Namespaced rights and named ones, and nothing for what is turned off.
	got = r.raven("driver", "rbac", "--config-file", r.write("empty.conf", ""), "--set", "raven.drivers=pod", "--set",
		"raven.cluster_id=x",
		"--set", "kubernetes.use_events=false", "--name", "kuryr", "--namespace", "net", "--set",
		"raven.runtime_dir="+r.path("run"))
	if text := got.out; strings.Contains(text, "events") || strings.Contains(text, "kube-system") ||
		!strings.Contains(text, "leases") ||
		!strings.Contains(text, "  name: kuryr\n  namespace: net\n") {
		t.Errorf("raven driver rbac prints:\n%s", text)
	}
	got = r.raven("driver", "rbac", "--config-file", r.write("empty.conf", ""), "--set", "raven.drivers=pod",
		"--set", "raven.runtime_dir="+r.path("run"))
	if named := rights(t, document(t, got.out, "ClusterRole"))["/namespaces [kube-system]"]; named != "get" {
		t.Errorf("the cluster's id is read, and the role lets it %q", named)
	}
}

// The chart has a file with the rules that each driver of the tree needs alone: `make generate` makes them.
func TestChartRules(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	folders, err := filepath.Glob("../../plugins/raven-driver-*")
	if err != nil || len(folders) == 0 {
		t.Fatal(folders, err)
	}
	for _, folder := range folders {
		driver := strings.TrimPrefix(filepath.Base(folder), "raven-driver-")
		r.install(filepath.Base(folder), "bin/"+filepath.Base(folder))
		got := r.raven("driver", "rbac", "--config-file", r.write("empty.conf", ""), "--set", "raven.drivers="+driver,
			"--set", "raven.runtime_dir="+r.path("run"))
		_, rules, _ := strings.Cut(string(document(t, got.out, "ClusterRole")), "\nrules:\n")
		file := "../../etc/helm/raven/rules/" + driver + ".yaml"
		if os.Getenv("RAVEN_UPDATE") != "" {
			if err := os.WriteFile(file, []byte(rules), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(file); err != nil || rules == "" || string(want) != rules {
			t.Errorf("%s is stale: run make generate (%v):\n%s", file, err, harness.LineDiff(string(want), rules))
		}
	}
}

// What the manifests configure is a configuration.
func TestManifestsConfigureRaven(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("raven-driver-node", "bin/raven-driver-node")
	text, err := os.ReadFile("../../etc/kustomize/30-configuration.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var conf corev1.ConfigMap
	var secret corev1.Secret
	for into, kind := range map[any]string{&conf: "ConfigMap", &secret: "Secret"} {
		if err := yaml.UnmarshalStrict(document(t, string(text), kind), into); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(r.path("conf.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.write("conf.d/credentials.conf", secret.StringData["credentials.conf"])
	args := []string{
		"--strict", "--config-file", r.write("k.conf", conf.Data["kuryr.conf"]), "--config-dir", r.path("conf.d"), "--set",
		"raven.runtime_dir=" + r.path("run"),
	}
	if got := r.raven(append([]string{"config", "validate"}, args...)...); got.status != 0 || got.errors != "" {
		t.Errorf("raven config validate: exit status %d: %s", got.status, got.errors)
	}
}
