// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// What Raven writes for the CNI side, and what it reads.
const (
	portAnnotation    = "kuryr.org/neutron-port"
	subnetAnnotation  = "kuryr.org/neutron-subnet"
	subnetsAnnotation = "kuryr.org/neutron-subnets"
	networkAnnotation = "kuryr.org/neutron-network"
	groupAnnotation   = "kuryr.org/neutron-sg"
	groupLabel        = "kuryr.org/neutron-security-group"
	vipAnnotation     = "kuryr.org/neutron-vip"
	proxyNameLabel    = "service.kubernetes.io/service-proxy-name"
)

func resource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: name}
}

func namespaces() dynamic.ResourceInterface { return world.kube.Resource(resource("namespaces")) }

func pods(namespace string) dynamic.ResourceInterface {
	return world.kube.Resource(resource("pods")).Namespace(namespace)
}

// account makes the account that Raven has in a cluster, with the rights that the README gives it and no more.
func account(ctx context.Context) error {
	const name = "raven-e2e"
	rbac := func(kind string) dynamic.NamespaceableResourceInterface {
		return world.kube.Resource(schema.GroupVersionResource{
			Group: "rbac.authorization.k8s.io", Version: "v1", Resource: kind,
		})
	}
	subject := []any{map[string]any{"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}}
	accounts := world.kube.Resource(resource("serviceaccounts")).Namespace("kube-system")
	err := apply(ctx, accounts, thing{
		"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": name},
	})
	if err != nil {
		return fmt.Errorf("the account of Raven: %w", err)
	}
	for kind, client := range map[string]func(string) dynamic.ResourceInterface{
		"ClusterRole": func(resource string) dynamic.ResourceInterface { return rbac("cluster" + resource) },
		"Role":        func(resource string) dynamic.ResourceInterface { return rbac(resource).Namespace("kube-system") },
	} {
		role, err := documentedRole(kind, name)
		if err != nil {
			return err
		}
		if err := apply(ctx, client("roles"), role); err != nil {
			return fmt.Errorf("the %s of Raven: %w", kind, err)
		}
		if err := apply(ctx, client("rolebindings"), thing{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind + "Binding", "metadata": map[string]any{"name": name},
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
			"subjects": subject,
		}); err != nil {
			return fmt.Errorf("the %sBinding of Raven: %w", kind, err)
		}
	}
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"expirationSeconds": int64(24 * 3600)},
	}}
	answer, err := accounts.Create(ctx, request, metav1.CreateOptions{}, "token")
	if err != nil {
		return fmt.Errorf("a token for Raven: %w", err)
	}
	token, _, _ := unstructured.NestedString(answer.Object, "status", "token")
	world.accountFile = filepath.Join(world.scratch, "kubeconfig")
	return writeKubeconfig(world.accountFile, token)
}

// documentedRole reads the role of a kind out of the README.
func documentedRole(kind, name string) (thing, error) {
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		return nil, err
	}
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		role := thing{}
		if err := yaml.Unmarshal([]byte(block), &role); err != nil || role.str("kind") != kind {
			continue
		}
		role["metadata"] = map[string]any{"name": name}
		return role, nil
	}
	return nil, fmt.Errorf("README.md shows no %s", kind)
}

func apply(ctx context.Context, in dynamic.ResourceInterface, object thing) error {
	u := &unstructured.Unstructured{Object: object}
	_, err := in.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "raven-e2e", Force: true})
	return err
}

func writeKubeconfig(path, token string) error {
	cluster := thing{"server": world.config.Host}
	ca := world.config.CAData
	if len(ca) == 0 && world.config.CAFile != "" {
		var err error
		if ca, err = os.ReadFile(world.config.CAFile); err != nil {
			return err
		}
	}
	if len(ca) > 0 {
		cluster["certificate-authority-data"] = base64.StdEncoding.EncodeToString(ca)
	}
	document, err := json.Marshal(thing{
		"apiVersion": "v1", "kind": "Config", "current-context": "e2e",
		"clusters": []thing{{"name": "e2e", "cluster": cluster}},
		"users":    []thing{{"name": "raven", "user": thing{"token": token}}},
		"contexts": []thing{{"name": "e2e", "context": thing{"cluster": "e2e", "user": "raven"}}},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(path, document, 0o600)
}

// createNamespace makes a namespace. It goes with the test, if the test has not deleted it.
func createNamespace(t *testing.T, name string) {
	t.Helper()
	object := &unstructured.Unstructured{
		Object: thing{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}},
	}
	if _, err := namespaces().Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

func deleteNamespace(t *testing.T, name string) {
	t.Helper()
	if err := namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// newPod is an ordinary pod, with changes.
func newPod(name string, changes ...func(spec, metadata map[string]any)) *unstructured.Unstructured {
	metadata := map[string]any{"name": name, "labels": map[string]any{"app": "e2e"}}
	spec := map[string]any{
		"containers": []any{map[string]any{"name": "c", "image": "none"}}, "terminationGracePeriodSeconds": int64(0),
		"automountServiceAccountToken": false,
	}
	for _, change := range changes {
		change(spec, metadata)
	}
	return &unstructured.Unstructured{Object: thing{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}}
}

func createPod(t *testing.T, namespace, name string, changes ...func(spec, metadata map[string]any)) {
	t.Helper()
	// A new namespace lets nobody in until its service account is there.
	await(t, "pod "+namespace+"/"+name+" to be let in", func(ctx context.Context) string {
		_, err := pods(namespace).Create(ctx, newPod(name, changes...), metav1.CreateOptions{})
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "serviceaccount") {
			return err.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
		return ""
	})
}

func deletePod(t *testing.T, namespace, name string) {
	t.Helper()
	if err := pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func patchPod(t *testing.T, namespace, name, patch string, subresources ...string) {
	t.Helper()
	_, err := pods(namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{},
		subresources...)
	if err != nil {
		t.Fatal(err)
	}
}

// getPod returns a pod and the port that its annotation tells of, nil without one.
func getPod(ctx context.Context, namespace, name string) (*unstructured.Unstructured, thing, error) {
	pod, err := pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	return pod, document(pod, portAnnotation), nil
}

// document is the JSON document of an annotation, nil without one.
func document(object *unstructured.Unstructured, annotation string) thing {
	var out thing
	_ = json.Unmarshal([]byte(object.GetAnnotations()[annotation]), &out)
	return out
}

// gone waits until a namespace is no more.
func gone(t *testing.T, name string) {
	t.Helper()
	await(t, "the end of namespace "+name, func(ctx context.Context) string {
		ns, err := namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		if err != nil {
			return err.Error()
		}
		status, _, _ := unstructured.NestedMap(ns.Object, "status")
		return fmt.Sprintf("it is still there: %v", status)
	})
}

// documents are those of a JSON list.
func documents(text string) []thing {
	var out []thing
	_ = json.Unmarshal([]byte(text), &out)
	return out
}

// annotated is the document of a namespace's annotation.
func annotated(t *testing.T, namespace, annotation string) thing {
	t.Helper()
	ns, err := namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return document(ns, annotation)
}
