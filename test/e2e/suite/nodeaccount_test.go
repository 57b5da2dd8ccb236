// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kuryr/raven/test/e2e/stack"
)

// accountKubeconfig makes the service account that the manifests have for nodes' daemons, with its role, and returns a
// kubeconfig with a token of it that is bound to a node, as a DaemonSet's pod there has one. The account goes with the
// test.
func accountKubeconfig(t *testing.T, node stack.Node, dir string) string {
	t.Helper()
	text, err := os.ReadFile("../../../etc/kustomize/60-node.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const namespace = "kube-system" // that of the manifests would be one more for Raven
	kinds := regexp.MustCompile(`(?m)^kind: (ServiceAccount|ClusterRole|ClusterRoleBinding)$`)
	in := regexp.MustCompile(`(?m)namespace: raven$`)
	var account []string
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if kinds.MatchString(document) {
			account = append(account, in.ReplaceAllString(document, "namespace: "+namespace))
		}
	}
	if len(account) != 3 {
		t.Fatalf("60-node.yaml has %d documents about the account", len(account))
	}
	applyManifests(t, strings.Join(account, "\n---\n"))
	object, err := world.kube.Resource(resource("nodes")).Get(t.Context(), node.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	request := &unstructured.Unstructured{Object: thing{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": map[string]any{"name": "raven-node"},
		"spec": map[string]any{
			"expirationSeconds": int64(24 * 60 * 60),
			"boundObjectRef": map[string]any{
				"apiVersion": "v1", "kind": "Node", "name": node.Name, "uid": string(object.GetUID()),
			},
		},
	}}
	made, err := world.kube.Resource(resource("serviceaccounts")).Namespace(namespace).Create(t.Context(), request,
		metav1.CreateOptions{}, "token")
	if err != nil {
		t.Fatal(err)
	}
	token, _, _ := unstructured.NestedString(made.Object, "status", "token")
	conf, err := clientcmd.LoadFromFile(node.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for name := range conf.AuthInfos {
		conf.AuthInfos[name] = &api.AuthInfo{Token: token}
	}
	path := filepath.Join(dir, "account.kubeconfig")
	if err := clientcmd.WriteToFile(*conf, path); err != nil {
		t.Fatal(err)
	}
	return path
}
