// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuryr/raven/test/e2e/stack"
)

// nodeTraces is what there is of networks on a node.
type nodeTraces struct {
	podLinks, otherLinks []string // names; those of pods are called as the daemon does
	podRows, otherRows   []string // of Open vSwitch: namespace/name of the pod, and names of the others
	// namespaces are of sandboxes, and bare the files in the runtime's folder for them that are none: containerd makes
	// the file first, and knows of it only when the namespace is mounted on it (2.2.9), so that a kill in between leaves
	// one. No CNI plugin has a part in that.
	namespaces, bare int
}

func tracesOf(ctx context.Context, node stack.Node) (nodeTraces, error) {
	var found nodeTraces
	links, err := sh(ctx, "ip", "-n", node.Namespace, "-br", "link")
	if err != nil {
		return found, err
	}
	for line := range strings.Lines(links) {
		name, _, _ := strings.Cut(strings.Fields(line)[0], "@")
		if strings.HasPrefix(name, "rvn") {
			found.podLinks = append(found.podLinks, name)
		} else {
			found.otherLinks = append(found.otherLinks, name)
		}
	}
	if err := found.rows(ctx, node); err != nil {
		return found, err
	}
	folders, err := filepath.Glob(filepath.Join(filepath.Dir(node.Containerd), "state", "*", "netns"))
	if err != nil {
		return found, err
	}
	if len(folders) > 1 {
		return found, fmt.Errorf("there are several folders of network namespaces: %v", folders)
	}
	var files []string
	for _, folder := range folders { // it is made with the first sandbox
		if files, err = filepath.Glob(filepath.Join(folder, "*")); err != nil {
			return found, err
		}
	}
	mounts, err := sh(ctx, append(node.Enter(), "cat", "/proc/self/mountinfo")...)
	if err != nil {
		return found, err
	}
	for _, file := range files {
		if strings.Contains(mounts, " "+file+" ") {
			found.namespaces++
		}
	}
	found.bare = len(files) - found.namespaces
	slices.Sort(found.podLinks)
	slices.Sort(found.otherLinks)
	slices.Sort(found.podRows)
	slices.Sort(found.otherRows)
	return found, nil
}

func (f *nodeTraces) rows(ctx context.Context, node stack.Node) error {
	text, err := sh(ctx, "ovs-vsctl", "--timeout=20", "--db="+node.OVS, "--format=json", "--columns=name,external_ids",
		"list", "Interface")
	if err != nil {
		return err
	}
	var table struct{ Data [][]any }
	if err := json.Unmarshal([]byte(text), &table); err != nil {
		return fmt.Errorf("reading the interfaces of %s: %w", node.Name, err)
	}
	for _, row := range table.Data {
		pod := ""
		pairs, _ := row[1].([]any)[1].([]any) // ["map", [[key, value], ...]]
		for _, pair := range pairs {
			if key, _ := pair.([]any); key[0] == "raven-pod" {
				pod = fmt.Sprint(key[1])
			}
		}
		if pod != "" {
			f.podRows = append(f.podRows, pod)
		} else {
			f.otherRows = append(f.otherRows, fmt.Sprint(row[0]))
		}
	}
	return nil
}

// leftOn says what there is on a node that is not of its pods, "" where each pod has one interface, one row of Open
// vSwitch and one network namespace, and nothing else is there.
func leftOn(ctx context.Context, node stack.Node) string {
	found, err := tracesOf(ctx, node)
	if err != nil {
		return err.Error()
	}
	list, err := pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node.Name})
	if err != nil {
		return err.Error()
	}
	var want []string
	for i := range list.Items {
		pod := &list.Items[i]
		if host, _, _ := unstructured.NestedBool(pod.Object, "spec", "hostNetwork"); !host {
			want = append(want, pod.GetNamespace()+"/"+pod.GetName())
		}
	}
	slices.Sort(want)
	if !slices.Equal(found.podRows, want) || len(found.podLinks) != len(want) || found.namespaces != len(want) {
		return fmt.Sprintf("%s has pods %v; in Open vSwitch are those of %v, there are links %v, %d network namespaces",
			node.Name, want, found.podRows, found.podLinks, found.namespaces)
	}
	return ""
}

// traces are the interfaces of nodes that are not of pods, as links and as rows of Open vSwitch.
func traces(t *testing.T, nodes []stack.Node) string {
	t.Helper()
	var all []string
	for _, node := range nodes {
		found, err := tracesOf(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s: links %v, rows %v", node.Name, found.otherLinks, found.otherRows))
	}
	return strings.Join(all, "\n")
}

// asBefore waits until nodes have what they had, and of pods what those have that there are.
func asBefore(t *testing.T, nodes []stack.Node, before string) {
	t.Helper()
	await(t, "the nodes to be as before", func(ctx context.Context) string {
		for _, node := range nodes {
			if left := leftOn(ctx, node); left != "" {
				return left
			}
		}
		if after := traces(t, nodes); after != before {
			return fmt.Sprintf("pods have left something; before:\n%s\nafter:\n%s", before, after)
		}
		return ""
	})
	for _, node := range nodes {
		if found, err := tracesOf(t.Context(), node); err == nil && found.bare > 0 {
			t.Logf("containerd has left %d files on %s that are no network namespaces", found.bare, node.Name)
		}
	}
}

// portsLeft waits until each port of a pod in Neutron has its pod, and no pod has two.
func (r *ravenNetwork) portsLeft(t *testing.T) {
	t.Helper()
	await(t, "ports without a pod to go", func(ctx context.Context) string {
		all, err := world.cloud.ours(ctx, r.cluster) // before the pods: what is new has its pod
		if err != nil {
			return err.Error()
		}
		list, err := pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		without := map[string]bool{} // by UID
		for i := range list.Items {
			without[string(list.Items[i].GetUID())] = true
		}
		for _, one := range all {
			if one.str("kind") != "ports" || !strings.HasPrefix(one.token("owner"), "pod:") {
				continue
			}
			if !without[one.str("device_id")] {
				return fmt.Sprintf("port %s (%s) is of no pod, or its second one", one.str("id"), one.str("name"))
			}
			delete(without, one.str("device_id"))
		}
		return ""
	})
}
