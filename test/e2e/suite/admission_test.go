// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// The users of the scenario. They have every right: what is denied, the policy denies.
const (
	ravenUser     = "system:serviceaccount:kube-system:raven-e2e"
	ravenNodeUser = "system:serviceaccount:raven:raven-node"
	nodeNameExtra = "authentication.kubernetes.io/node-name"
)

// TestAdmissionPolicy is the policy of etc/kustomize on the real API server: annotations of Raven's are Raven's to
// write, those of a node the node's, whichever way they are written, and everything else is everybody's as before.
// Raven works under it.
func TestAdmissionPolicy(t *testing.T) {
	applyPolicy(t)
	createNamespace(t, "ap-shop")
	policyActive(t, "ap-shop")
	s := standing(t)
	createPod(t, "ap-shop", "web")
	createPod(t, "ap-shop", "waits", func(spec, _ map[string]any) { spec["schedulerName"] = "none" })
	s.settled(t)
	if _, port, err := getPod(t.Context(), "ap-shop", "web"); err != nil || port == nil {
		t.Fatalf("Raven cannot write its annotations: %v (%v)", port, err)
	}
	nodes, err := world.kube.Resource(resource("nodes")).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) == 0 {
		t.Fatalf("there are %d nodes (%v)", len(nodes.Items), err)
	}
	t.Run("creates", func(t *testing.T) { policyOnCreates(t) })
	t.Run("changes", func(t *testing.T) { policyOnChanges(t) })
	t.Run("nodes", func(t *testing.T) { policyOnNodes(t, nodes.Items[0].GetName()) })
}

// applyPolicy makes the policy for the account that Raven has here, until the test ends.
func applyPolicy(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("../../../etc/kustomize/25-admission.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const shipped = "system:serviceaccount:raven:raven'"
	if !strings.Contains(string(text), shipped) {
		t.Fatalf("the policy does not name the user %s", shipped)
	}
	served := map[string]string{
		"ValidatingAdmissionPolicy":        "validatingadmissionpolicies",
		"ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
	}
	for document := range strings.SplitSeq(strings.ReplaceAll(string(text), shipped, ravenUser+"'"), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		to := world.kube.Resource(schema.GroupVersionResource{
			Group: "admissionregistration.k8s.io", Version: "v1", Resource: served[object.GetKind()],
		})
		if _, err := to.Create(t.Context(), object, metav1.CreateOptions{FieldValidation: "Strict"}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := to.Delete(context.Background(), object.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// policyActive waits until the API server has taken the policy up.
func policyActive(t *testing.T, namespace string) {
	t.Helper()
	await(t, "the policy to be in force", func(ctx context.Context) string {
		_, err := pods(namespace).Create(ctx, newPod("first", withAnnotation(portAnnotation)), dryCreate())
		if denial(err) == "" {
			return fmt.Sprintf("a pod with an annotation of Raven's is let in (%v)", err)
		}
		return ""
	})
}

func dryCreate() metav1.CreateOptions {
	return metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
}

// withAnnotation gives a pod an annotation.
func withAnnotation(key string) func(spec, metadata map[string]any) {
	return func(_, metadata map[string]any) { metadata["annotations"] = map[string]any{key: "{}"} }
}

// denial is what the policy says about a request, "" if it does not deny it.
func denial(err error) string {
	if err == nil || !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'raven-annotations'") {
		return ""
	}
	return err.Error()
}

// as is a client with another user name and every right.
func as(t *testing.T, user string, extra map[string][]string) dynamic.Interface {
	t.Helper()
	config := rest.CopyConfig(world.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}, Extra: extra}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// verdict compares what the policy said with what it should have said: "" lets the request pass.
func verdict(t *testing.T, what string, err error, says string) {
	t.Helper()
	switch {
	case says == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case says != "" && !strings.Contains(denial(err), says):
		t.Errorf("%s: want a denial that says %q, got %v", what, says, err)
	}
}

// policyOnCreates makes objects with annotations.
func policyOnCreates(t *testing.T) {
	copied, _, err := getPod(t.Context(), "ap-shop", "web")
	if err != nil {
		t.Fatal(err)
	}
	const ravens, nodes = " are reserved for Raven", " are reserved for the node itself"
	for _, tc := range []struct{ kind, key, value, by string }{
		{"pods", portAnnotation, copied.GetAnnotations()[portAnnotation], ravens},
		{"pods", "kuryr.org/made-up", "x", ravens},
		{"pods", "node.kuryr.org/chassis-hostname", "x", nodes},
		{"pods", "example.org/kuryr.org", "x", ""},
		{"services", vipAnnotation, "{}", ravens},
		{"services", "kuryr.org/octavia-provider", "ovn", ""},
		{"namespaces", networkAnnotation, "{}", ravens},
		{"namespaces", "example.org/team", "x", ""},
		{"namespaces", "kuryr.org/ports-pool-min", "3", ""},
		{"nodes", "node.kuryr.org/chassis-hostname", "x", nodes},
	} {
		object := newPod("made")
		switch tc.kind {
		case "services":
			object = &unstructured.Unstructured{Object: thing{
				"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "made"},
				"spec": map[string]any{"ports": []any{map[string]any{"port": int64(80)}}},
			}}
		case "namespaces":
			object = &unstructured.Unstructured{Object: thing{
				"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "ap-made"},
			}}
		case "nodes":
			object = &unstructured.Unstructured{Object: thing{
				"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "ap-made"},
			}}
		}
		object.SetAnnotations(map[string]string{tc.key: tc.value})
		var to dynamic.ResourceInterface = world.kube.Resource(resource(tc.kind))
		if tc.kind == "pods" || tc.kind == "services" {
			to = world.kube.Resource(resource(tc.kind)).Namespace("ap-shop")
		}
		_, err := to.Create(t.Context(), object, dryCreate())
		says := ""
		if tc.by != "" {
			says = "annotations " + tc.key + tc.by
		}
		verdict(t, tc.kind+" with "+tc.key, err, says)
	}
}

// policyOnChanges writes on a pod that has its annotations, and binds one by its name.
func policyOnChanges(t *testing.T) {
	const (
		reserved = "are reserved for Raven: "
		nodes    = "are reserved for the node itself"
		another  = `{"metadata":{"annotations":{"kuryr.org/neutron-port":"{}"}}}`
	)
	for _, tc := range []struct{ name, user, pod, subresource, patch, says string }{
		{"another port", "admin", "web", "", another, reserved + "admin may not"},
		{"no port", "admin", "web", "", `{"metadata":{"annotations":{"kuryr.org/neutron-port":null}}}`, reserved},
		{"a port for one that has none", "admin", "waits", "", `{"metadata":{"annotations":{"kuryr.org/x":"{}"}}}`, reserved},
		{"by way of the status", "admin", "web", "status", another, reserved},
		{"another annotation", "admin", "web", "", `{"metadata":{"annotations":{"example.org/x":"y"}}}`, ""},
		{"a label", "admin", "web", "", `{"metadata":{"labels":{"kuryr.org/neutron-security-group":"x"}}}`, ""},
		{"the status", "admin", "web", "status", `{"status":{"message":"x"}}`, ""},
		{"another service account", "system:serviceaccount:ap-shop:raven", "web", "", another, reserved},
		{"Raven", ravenUser, "web", "", another, ""},
		{"Raven for a node", ravenUser, "web", "", `{"metadata":{"annotations":{"node.kuryr.org/x":"y"}}}`, nodes},
		{"a node on a pod", ravenNodeUser, "web", "", another, reserved},
	} {
		var subresources []string
		if tc.subresource != "" {
			subresources = append(subresources, tc.subresource)
		}
		_, err := as(t, tc.user, nil).Resource(resource("pods")).Namespace("ap-shop").Patch(t.Context(), tc.pod,
			types.MergePatchType, []byte(tc.patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, subresources...)
		verdict(t, tc.name, err, tc.says)
	}
	for annotation, says := range map[string]string{portAnnotation: reserved, "example.org/x": ""} {
		binding := &unstructured.Unstructured{Object: thing{
			"apiVersion": "v1", "kind": "Binding",
			"metadata": map[string]any{"name": "waits", "annotations": map[string]any{annotation: "{}"}},
			"target":   map[string]any{"kind": "Node", "name": "any"},
		}}
		_, err := pods("ap-shop").Create(t.Context(), binding, dryCreate(), "binding")
		verdict(t, "a binding with "+annotation, err, says)
	}
}

// policyOnNodes writes on a Node as itself, as its daemon and as others.
func policyOnNodes(t *testing.T, node string) {
	const (
		chassis = `{"metadata":{"annotations":{"node.kuryr.org/chassis-hostname":"compute-7"}}}`
		port    = `{"metadata":{"annotations":{"kuryr.org/neutron-port":"{}"}}}`
		other   = `{"metadata":{"annotations":{"example.org/x":"y"}}}`
		denied  = "annotations node.kuryr.org/chassis-hostname are reserved for the node itself, on its own Node"
	)
	on := func(name string) map[string][]string { return map[string][]string{nodeNameExtra: {name}} }
	for _, tc := range []struct {
		name, user  string
		extra       map[string][]string
		subresource string
		patch, says string
	}{
		{"the kubelet of the node", "system:node:" + node, nil, "", chassis, ""},
		{"the kubelet by way of the status", "system:node:" + node, nil, "status", chassis, ""},
		{"the kubelet of another", "system:node:" + node + "x", nil, "", chassis, denied},
		{"the kubelet with a port", "system:node:" + node, nil, "", port, "reserved for Raven"},
		{"the daemon on the node", ravenNodeUser, on(node), "", chassis, ""},
		{"the daemon on another", ravenNodeUser, on("another"), "", chassis, denied},
		{"a daemon that is nowhere", ravenNodeUser, nil, "", chassis, denied},
		{"another account on the node", "system:serviceaccount:raven:other", on(node), "", chassis, denied},
		{"Raven", ravenUser, nil, "", port, ""},
		{"Raven for the node", ravenUser, nil, "", chassis, denied},
		{"an administrator", "admin", nil, "", chassis, denied},
		{"an administrator with another annotation", "admin", nil, "", other, ""},
	} {
		var subresources []string
		if tc.subresource != "" {
			subresources = append(subresources, tc.subresource)
		}
		_, err := as(t, tc.user, tc.extra).Resource(resource("nodes")).Patch(t.Context(), node, types.MergePatchType,
			[]byte(tc.patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, subresources...)
		verdict(t, tc.name, err, tc.says)
	}
}
