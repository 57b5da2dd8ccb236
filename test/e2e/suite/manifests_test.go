// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kuryr/raven/test/e2e/machine"
)

// The manifests of etc/kustomize are taken by the API server as they are, unknown fields refused, and so is what Helm
// makes of the chart. Nothing is kept.
// Their namespace does not exist then, so that they are tried in another.
func TestManifestsAreTakenByTheAPIServer(t *testing.T) {
	served := map[string]string{
		"Namespace": "namespaces", "ServiceAccount": "serviceaccounts", "ConfigMap": "configmaps", "Secret": "secrets",
		"Service": "services", "Deployment": "deployments", "ClusterRole": "clusterroles",
		"ClusterRoleBinding": "clusterrolebindings",
		"Role":               "roles", "RoleBinding": "rolebindings",
		"PodDisruptionBudget":              "poddisruptionbudgets",
		"ValidatingAdmissionPolicy":        "validatingadmissionpolicies",
		"ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
		"DaemonSet":                        "daemonsets",
	}
	files, err := filepath.Glob("../../../etc/kustomize/[0-9]*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("there are %d manifests (%v)", len(files), err)
	}
	texts := map[string]string{"the chart": chart(t)}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(file)] = string(text)
	}
	for file, text := range texts {
		for document := range strings.SplitSeq(text, "\n---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			gv, err := schema.ParseGroupVersion(object.GetAPIVersion())
			if err != nil || served[object.GetKind()] == "" {
				t.Fatalf("%s: this test does not know %s %s (%v)", file, object.GetAPIVersion(), object.GetKind(), err)
			}
			var to dynamic.ResourceInterface = world.kube.Resource(gv.WithResource(served[object.GetKind()]))
			if object.GetNamespace() != "" {
				object.SetNamespace(metav1.NamespaceDefault)
				to = world.kube.Resource(gv.WithResource(served[object.GetKind()])).Namespace(metav1.NamespaceDefault)
			}
			made, err := to.Create(t.Context(), object,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
			if err != nil {
				t.Errorf("%s: %s: %v", file, object.GetKind(), err)
				continue
			}
			if made.GetUID() == "" {
				t.Errorf("%s: %s: the API server made nothing of it", file, object.GetKind())
			}
		}
	}
}

// chart is what Helm makes of the chart with all that it knows.
func chart(t *testing.T) string {
	t.Helper()
	cache, err := machine.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := machine.Helm(t.Context(), "../..", cache, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(folder, "helm"), "template", "raven", "../../../etc/helm/raven",
		"--namespace", "raven", "--set", "apiServer=https://192.0.2.10:6443,authURL=https://keystone.example.org:5000/v3",
		"--set", "credentials.applicationCredentialID=a,credentials.applicationCredentialSecret=b",
		"--set", "drivers={namespace,pod,node,kubeproxy,networkpolicy}")
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("helm template: %v: %s", err, cmd.Stderr)
	}
	return strings.TrimPrefix(string(text), "---\n")
}
