// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// tuned is a setting that the plugin tuning changes in pods.
const tuned = "net.ipv4.ip_default_ttl"

// chained looks at what the plugins after Raven's have done: bandwidth on the node's end of a pod's link, tuning in
// pods. The link goes, with all that bandwidth has made, when its pod does.
func (r *realPods) chained(t *testing.T) {
	node := r.nodes[0]
	const name = "slow"
	before, err := tracesOf(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	createPod(t, r.namespace, name, func(spec, metadata map[string]any) {
		webPod(name, node.Name)(spec, metadata)
		metadata["labels"] = map[string]any{"app": name}
		metadata["annotations"] = map[string]any{
			"kubernetes.io/ingress-bandwidth": "7M", "kubernetes.io/egress-bandwidth": "9M",
		}
	})
	await(t, "pod "+name+" to be ready", func(ctx context.Context) string { return podReadiness(ctx, r.namespace, name) })
	shaped, err := sh(t.Context(), append(node.Enter(), "tc", "qdisc", "show")...)
	if err != nil {
		t.Fatal(err)
	}
	for _, rate := range []string{"rate 7Mbit", "rate 9Mbit"} {
		if !strings.Contains(shaped, rate) {
			t.Errorf("%s has no queue with %s:\n%s", node.Name, rate, shaped)
		}
	}
	out, err := kubectl(t.Context(), "exec", "-n", r.namespace, name, "--", "cat",
		"/proc/sys/"+strings.ReplaceAll(tuned, ".", "/"))
	if err != nil || out != "77" {
		t.Errorf("%s is %q in a pod (%v), not what the plugin tuning sets", tuned, out, err)
	}
	pod, _, err := getPod(t.Context(), r.namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	address, _, _ := unstructured.NestedString(pod.Object, "status", "podIP")
	r.answers(t, 1, curl("http://"+net.JoinHostPort(address, webPort)+"/hostname"), name)
	deletePod(t, r.namespace, name)
	await(t, "what the pod had to go", func(ctx context.Context) string {
		now, err := tracesOf(ctx, node)
		if err != nil {
			return err.Error()
		}
		if !slices.Equal(now.otherLinks, before.otherLinks) {
			return fmt.Sprintf("links %v, before %v", now.otherLinks, before.otherLinks)
		}
		return leftOn(ctx, node)
	})
}
