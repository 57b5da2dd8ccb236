// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kuryr/raven/test/e2e/stack"
)

// podNetwork is how pods on real nodes get their network.
type podNetwork interface {
	// prepare is called before nodes are up, and connect when they are: pods can be set up on them afterwards.
	prepare(t *testing.T)
	connect(t *testing.T, nodes []stack.Node)
}

// realNodes brings up the stack's nodes, with a network for pods and a cluster's DNS. kwok's node is tainted meanwhile.
// All of it goes with the test.
func realNodes(t *testing.T, network podNetwork) []stack.Node {
	t.Helper()
	if world.stack == nil {
		t.Skip("real nodes are the harness's own: RAVEN_E2E_STACK is not set")
	}
	network.prepare(t)
	taint(t, world.stack.Network().Chassis)
	log, err := os.Create(filepath.Join(artifacts(t), "nodes.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() }) // it is for people
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := world.stack.NodesDown(ctx); err != nil {
			t.Errorf("taking the nodes down: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	if err := world.stack.NodesUp(ctx, stack.Options{Progress: log}); err != nil {
		t.Fatalf("bringing up the nodes: %v", err)
	}
	up := time.Since(began)
	nodes := world.stack.Nodes()
	network.connect(t, nodes)
	for _, node := range nodes {
		await(t, "node "+node.Name+" to be ready", func(ctx context.Context) string { return nodeReadiness(ctx, node.Name) })
	}
	ready := time.Since(began)
	clusterDNS(t)
	t.Logf("nodes up after %.1f s, ready after %.1f s, with the cluster's DNS after %.1f s", up.Seconds(), ready.Seconds(),
		time.Since(began).Seconds())
	return nodes
}

// dumpIfFailed writes what the servers and switches hold if the scenario fails, before what was made since goes.
func dumpIfFailed(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			if err := world.stack.Dump(context.Background(), filepath.Join(t.Name(), "failed")); err != nil {
				t.Logf("writing what there is: %v", err)
			}
		}
	})
}

// artifacts is the scenario's folder for what is for people.
func artifacts(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(world.artifacts, t.Name())
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

// kwokTaint is what keeps pods from kwok's node while there are real ones.
const kwokTaint = "kwok.x-k8s.io/node"

// taint keeps pods from a node until the test ends.
func taint(t *testing.T, node string) {
	t.Helper()
	set := func(ctx context.Context, taints []any) error {
		patch, err := json.Marshal(thing{"spec": thing{"taints": taints}})
		if err != nil {
			return err
		}
		_, err = world.kube.Resource(resource("nodes")).Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	t.Cleanup(func() {
		if err := set(context.Background(), []any{}); err != nil {
			t.Errorf("taking the taint of node %s away: %v", node, err)
		}
	})
	if err := set(t.Context(), []any{thing{"key": kwokTaint, "effect": "NoSchedule"}}); err != nil {
		t.Fatal(err)
	}
}

// nodeReadiness says what keeps a node from being ready.
func nodeReadiness(ctx context.Context, name string) string {
	node, err := world.kube.Resource(resource("nodes")).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	conditions, _, _ := unstructured.NestedSlice(node.Object, "status", "conditions")
	for _, one := range conditions {
		c, _ := one.(map[string]any)
		if c["type"] == "Ready" && c["status"] == "True" {
			if taints, _, _ := unstructured.NestedSlice(node.Object, "spec", "taints"); len(taints) > 0 {
				return fmt.Sprintf("it has taints: %v", taints)
			}
			return ""
		}
		if c["type"] == "Ready" {
			return fmt.Sprintf("%v", c["message"])
		}
	}
	return "its kubelet has said nothing yet"
}

// clusterDNS runs CoreDNS as the Service kube-dns until the test ends.
func clusterDNS(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "coredns.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	applyManifests(t, string(text))
	t.Cleanup(func() { // registered last, so that it is first: pods go while their kubelets run
		gone := waitFor(context.Background(), patience, func(ctx context.Context) string {
			err := kubeSystem("apps", "deployments").Delete(ctx, "coredns", metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return err.Error()
			}
			list, err := pods("kube-system").List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
			if err != nil {
				return err.Error()
			}
			if len(list.Items) > 0 {
				return fmt.Sprintf("%d pods of it are left", len(list.Items))
			}
			return ""
		})
		if gone != "" {
			t.Errorf("waiting for the end of CoreDNS: %s", gone)
		}
	})
	await(t, "CoreDNS to be ready", func(ctx context.Context) string {
		deployment, err := kubeSystem("apps", "deployments").Get(ctx, "coredns", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if ready, _, _ := unstructured.NestedInt64(deployment.Object, "status", "readyReplicas"); ready == 0 {
			status, _, _ := unstructured.NestedMap(deployment.Object, "status")
			return fmt.Sprintf("it is not: %v", status)
		}
		return ""
	})
}

func kubeSystem(group, kind string) dynamic.ResourceInterface {
	return world.kube.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: kind}).
		Namespace("kube-system")
}

// applyManifests applies the objects of a YAML text. They are deleted when the test ends, the last one first.
func applyManifests(t *testing.T, text string) {
	t.Helper()
	kinds := map[string]string{
		"ServiceAccount": "serviceaccounts", "ConfigMap": "configmaps", "Service": "services", "Deployment": "deployments",
		"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings",
	}
	for _, one := range strings.Split(text, "\n---\n") {
		object := thing{}
		if err := yaml.Unmarshal([]byte(one), &object); err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: object}
		group, version, found := strings.Cut(object.str("apiVersion"), "/")
		if !found {
			group, version = "", object.str("apiVersion")
		}
		kind, known := kinds[u.GetKind()]
		if !known {
			t.Fatalf("objects of kind %s cannot be applied here", u.GetKind())
		}
		var in dynamic.ResourceInterface = world.kube.Resource(schema.GroupVersionResource{
			Group: group, Version: version, Resource: kind,
		})
		if u.GetNamespace() != "" {
			in = in.(dynamic.NamespaceableResourceInterface).Namespace(u.GetNamespace())
		}
		if err := apply(t.Context(), in, object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			err := in.Delete(context.Background(), u.GetName(), metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("deleting %s %s: %v", u.GetKind(), u.GetName(), err)
			}
		})
	}
}
