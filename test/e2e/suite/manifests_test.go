// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// The manifests of etc/kubernetes are taken by the API server as they are, unknown fields refused. Nothing is kept.
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
	files, err := filepath.Glob("../../../etc/kubernetes/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("there are %d manifests (%v)", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
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
				t.Errorf("%s: %s: %v", filepath.Base(file), object.GetKind(), err)
				continue
			}
			if made.GetUID() == "" {
				t.Errorf("%s: %s: the API server made nothing of it", filepath.Base(file), object.GetKind())
			}
		}
	}
}
