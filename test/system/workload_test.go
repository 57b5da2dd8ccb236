// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// The annotations that the CNI side reads.
const (
	portAnnotation    = "kuryr.org/neutron-port"
	networkAnnotation = "kuryr.org/neutron-network"
	groupLabel        = "kuryr.org/neutron-security-group"
)

func namespaces() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
}

func pods() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

func sources() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{namespaces(), pods()}
}

type object = map[string]any

// check fails the test on an error of the simulated cluster.
func (r *rig) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Error(err)
	}
}

func (r *rig) createNamespace(name string) {
	r.t.Helper()
	_, err := r.kube.Create(namespaces(),
		object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": name}})
	r.check(err)
}

// createPod makes a pod that is scheduled already.
func (r *rig) createPod(namespace, name string) {
	r.t.Helper()
	_, err := r.kube.Create(pods(), object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"namespace": namespace, "name": name, "labels": object{"app": "x"}},
		"spec":     object{"nodeName": "node-1", "containers": []any{object{"name": "c", "image": "i"}}},
	})
	r.check(err)
}

func (r *rig) deletePod(namespace, name string) {
	r.t.Helper()
	r.check(r.kube.Delete(pods(), namespace, name))
}

func (r *rig) deleteNamespace(name string) {
	r.t.Helper()
	r.check(r.kube.Delete(namespaces(), "", name))
}

func (r *rig) patchPod(namespace, name, patch string) {
	r.t.Helper()
	_, err := r.kube.Patch(pods(), namespace, name, types.MergePatchType, []byte(patch))
	r.check(err)
}

// bare deletes the namespaces that every cluster has, but for the one that gives it its identity. No API server
// would let anybody do that, so that it is told as an event; it halves what there is to do.
func (r *rig) bare() {
	r.t.Helper()
	for _, name := range []string{"default", "kube-public", "kube-node-lease"} {
		r.vanish(name)
	}
	must(r.t, "the end of the usual namespaces", func() string {
		list, err := r.kube.List(namespaces(), "")
		if err != nil || len(list) != 1 {
			return fmt.Sprintf("%d are left (%v)", len(list), err)
		}
		return ""
	})
}

// vanish tells of the end of a namespace that no client may delete.
func (r *rig) vanish(namespace string) {
	r.t.Helper()
	event := fmt.Sprintf(`{"type":"DELETED","object":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}}`,
		namespace)
	r.check(r.kube.Replay(strings.NewReader(event)))
}

// operatorGroup makes a security group that is no business of Raven's and returns its id.
func (r *rig) operatorGroup(name string) string {
	r.t.Helper()
	code, doc := r.cloud.Call(simcloud.UserKuryr, simcloud.ProjectKuryr, http.MethodPost, "/security-groups",
		object{"security_group": object{"name": name}})
	group, _ := doc["security_group"].(map[string]any)
	id, _ := group["id"].(string)
	if code != http.StatusCreated || id == "" {
		r.t.Fatalf("creating a security group: %d %v", code, doc)
	}
	return id
}

// phase is a part of a workload: something happens, and the cloud follows.
type phase func(*rig)

// workload returns the phases of the ordinary workload: two namespaces and five pods; one pod deleted, one completed,
// one relabelled; one namespace deleted. The group is the id of the one that the label names.
func workload(group string) []phase {
	return []phase{
		func(r *rig) {
			r.createNamespace("shop")
			r.createNamespace("blog")
			for _, name := range []string{"shop/a", "shop/b", "shop/c", "blog/d", "blog/e"} {
				ns, pod, _ := strings.Cut(name, "/")
				r.createPod(ns, pod)
			}
		},
		func(r *rig) {
			r.deletePod("shop", "a")
			r.patchPod("shop", "b", `{"status":{"phase":"Succeeded"}}`)
			r.patchPod("shop", "c", fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, groupLabel, group))
		},
		func(r *rig) { r.deleteNamespace("blog") },
	}
}

// clusterAmiss says where cluster and cloud do not agree: every namespace but the excluded ones has its network; every
// pod that should have a port names the one that there is for it, which has the security group of its label; and there
// are no others.
func (r *rig) clusterAmiss() string {
	byPod, networks := map[string][]object{}, map[string]int{}
	for _, port := range r.cloud.Ports() {
		uid, _ := port["device_id"].(string)
		byPod[uid] = append(byPod[uid], port)
	}
	for _, network := range r.cloud.Networks() {
		networks[fmt.Sprint(network["name"])]++
	}
	delete(networks, "public")
	delete(networks, "raven-default-service")
	var amiss []string
	spaces, err := r.kube.List(namespaces(), "")
	r.check(err)
	for _, space := range spaces {
		meta, _ := space["metadata"].(map[string]any)
		name := fmt.Sprint(meta["name"])
		if excluded(space) {
			continue // their networks would be too many
		}
		if networks[name] != 1 || meta["deletionTimestamp"] != nil {
			amiss = append(amiss,
				fmt.Sprintf("namespace %s has %d networks and the deletionTimestamp %v", name, networks[name],
					meta["deletionTimestamp"]))
		}
		delete(networks, name)
		delete(networks, name+"-service") // with topology dedicated
	}
	for name, n := range networks {
		amiss = append(amiss, fmt.Sprintf("there are %d networks for namespace %s, which is gone", n, name))
	}
	list, err := r.kube.List(pods(), "")
	r.check(err)
	for _, pod := range list {
		if text := podAmiss(pod, byPod); text != "" {
			amiss = append(amiss, text)
		}
	}
	return strings.Join(amiss, "; ")
}

// excluded says whether a namespace gets no network by default.
func excluded(space object) bool {
	meta, _ := space["metadata"].(map[string]any)
	return meta["name"] == "kube-public" || meta["name"] == "kube-node-lease"
}

func podAmiss(pod object, byPod map[string][]object) string {
	meta, _ := pod["metadata"].(map[string]any)
	phase, _ := pod["status"].(map[string]any)
	spec, _ := pod["spec"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	labels, _ := meta["labels"].(map[string]any)
	name := fmt.Sprintf("pod %v/%v", meta["namespace"], meta["name"])
	uid, _ := meta["uid"].(string)
	text, _ := annotations[portAnnotation].(string)
	ports := byPod[uid]
	if phase["phase"] == "Succeeded" || phase["phase"] == "Failed" || spec["hostNetwork"] == true {
		if text != "" || len(ports) > 0 {
			return fmt.Sprintf("%s should have no port and has %d, annotated %q", name, len(ports), text)
		}
		return ""
	}
	named := portIn(text)
	if len(ports) != 1 || ports[0]["id"] != named {
		return fmt.Sprintf("%s has %d ports and names %q", name, len(ports), named)
	}
	groups, _ := ports[0]["security_groups"].([]any)
	if label, ok := labels[groupLabel]; ok && !slices.Equal(groups, []any{label}) {
		return fmt.Sprintf("%s has the security groups %v and is labelled %v", name, groups, label)
	}
	return ""
}

// portIn returns the id in a port's document.
func portIn(text string) string {
	var port struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal([]byte(text), &port)
	return port.ID
}

// portOf returns the id of the port that a pod names, "" without one.
func (r *rig) portOf(namespace, name string) string {
	pod, err := r.kube.Get(pods(), namespace, name)
	if apierrors.IsNotFound(err) {
		return ""
	}
	r.check(err)
	meta, _ := pod["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	text, _ := annotations[portAnnotation].(string)
	return portIn(text)
}

// played is what an undisturbed run of the workload comes to.
type played struct {
	dumps     []string // after each phase
	deletions string   // as rig.deletions has it
	writes    int      // to the cloud
	creates   int      // of those, requests to create
	patches   int      // to the cluster
}

// reference runs the ordinary workload undisturbed.
func reference(t *testing.T) played {
	t.Helper()
	r := newRig(t)
	r.bare()
	p := r.start()
	var result played
	for _, do := range workload(r.operatorGroup("web")) {
		do(r)
		r.awaitRest(p)
		result.dumps = append(result.dumps, r.dump())
	}
	result.writes, result.deletions = r.cloud.Stats().Writes, r.deletions()
	for _, q := range r.cloud.Log(0) {
		if q.WriteN > 0 && q.Method == http.MethodPost {
			result.creates++
		}
	}
	for _, q := range r.kube.Requests() {
		if q.Verb == "patch" {
			result.patches++
		}
	}
	p.stop()
	return result
}

// awaitRest waits until raven has nothing to do and has written nothing for a moment.
func (r *rig) awaitRest(p *raven) {
	r.t.Helper()
	must(r.t, "rest", func() string {
		before := r.cloud.Stats().Writes
		if amiss := r.amiss(p); amiss != "" {
			return amiss
		}
		if amiss := waitFor(0, func() string { return r.amiss(p) }); amiss != "" || r.cloud.Stats().Writes != before {
			return "it is still writing " + amiss
		}
		return ""
	})
}

func (r *rig) amiss(p *raven) string {
	if amiss := r.clusterAmiss(); amiss != "" {
		return amiss
	}
	return p.settled()
}
