// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// static runs a static pod, which the kubelet knows by another UID than the API server has of its mirror pod. It is
// plugged into the mirror pod's port, and that goes with it.
func (r *realPods) static(t *testing.T) {
	node := r.nodes[0]
	mirror := "static-" + node.Name
	manifest := newPod("static", webPod("static", node.Name))
	manifest.SetNamespace(r.namespace)
	text, err := json.Marshal(manifest.Object)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(node.StaticPods, 0o755); err != nil {
		t.Fatal(err)
	}
	unfinished, path := filepath.Join(node.StaticPods, ".static.json"), filepath.Join(node.StaticPods, "static.json")
	if err := os.WriteFile(unfinished, text, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) }) // where the test has ended before
	if err := os.Rename(unfinished, path); err != nil {
		t.Fatal(err)
	}
	await(t, "the static pod to be ready", func(ctx context.Context) string {
		return podReadiness(ctx, r.namespace, mirror)
	})
	pod, port, err := getPod(t.Context(), r.namespace, mirror)
	if err != nil {
		t.Fatal(err)
	}
	annotations := pod.GetAnnotations()
	if hash := annotations["kubernetes.io/config.hash"]; hash == "" || hash == string(pod.GetUID()) {
		t.Errorf("the mirror pod %s has the UID %s and the annotations %v", mirror, pod.GetUID(), annotations)
	}
	address, _, _ := unstructured.NestedString(pod.Object, "status", "podIP")
	if !slices.Equal(port.addresses(), []string{address}) || port.str("device_id") != string(pod.GetUID()) {
		t.Errorf("the static pod has the address %s, and the port %v", address, port)
	}
	r.answers(t, 1, curl("http://"+net.JoinHostPort(address, webPort)+"/hostname"), mirror)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	await(t, "the static pod to go", func(ctx context.Context) string {
		if _, _, err := getPod(ctx, r.namespace, mirror); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("its mirror pod is there (%v)", err)
		}
		return leftOn(ctx, node)
	})
}
