// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// EndpointController stands in for what kube-controller-manager does for Services: EndpointSlices, and Endpoints, of
// the pods that a selector selects, as they run, become ready and go.
type EndpointController struct {
	// PerSlice is how many endpoints a slice holds at most. Default 100.
	PerSlice int
	// NoSlices and NoEndpoints leave out one or the other, as clusters do that are old or very new.
	NoSlices, NoEndpoints bool
}

func services() schema.GroupResource { return schema.GroupResource{Resource: "services"} }

func endpointsGVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "endpoints"}
}

func slicesGVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
}

const (
	serviceNameLabel = "kubernetes.io/service-name"
	managedByLabel   = "endpointslice.kubernetes.io/managed-by"
	sliceController  = "endpointslice-controller.k8s.io"
)

// endpointLoop is the controller at work: namespaces in which something changed are reconciled.
type endpointLoop struct {
	a       *API
	options EndpointController
	wake    chan struct{}

	mu    sync.Mutex
	dirty map[string]bool
}

func (a *API) startEndpoints(o EndpointController) {
	if o.PerSlice <= 0 {
		o.PerSlice = 100
	}
	l := &endpointLoop{a: a, options: o, wake: make(chan struct{}, 1), dirty: map[string]bool{}}
	if !o.NoSlices {
		l.seed()
	}
	for _, gr := range []schema.GroupResource{services(), pods()} {
		_, err := a.Follow(gr.WithVersion("v1"), func(_ apiwatch.EventType, object map[string]any) {
			l.touch(text(object, "metadata", "namespace"))
		})
		if err != nil {
			panic("starting the endpoint controller: " + err.Error()) // both kinds are served from the start
		}
	}
	a.tasks.Go(func() {
		for {
			select {
			case <-a.ctx.Done():
				return
			case <-l.wake:
			}
			l.work()
		}
	})
}

// seed makes the endpoint that the API server writes for its own Service.
func (l *endpointLoop) seed() {
	l.a.mustCreate(slicesGVR().GroupResource(), "default", map[string]any{
		"metadata":    map[string]any{"name": "kubernetes", "labels": map[string]any{serviceNameLabel: "kubernetes"}},
		"addressType": "IPv4",
		"endpoints":   []any{map[string]any{"addresses": []any{"192.0.2.1"}, "conditions": map[string]any{"ready": true}}},
		"ports":       []any{map[string]any{"name": "https", "port": int64(6443), "protocol": "TCP"}},
	})
}

func (l *endpointLoop) touch(namespace string) {
	l.mu.Lock()
	l.dirty[namespace] = true
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *endpointLoop) work() {
	l.mu.Lock()
	dirty := l.dirty
	l.dirty = map[string]bool{}
	l.mu.Unlock()
	for namespace := range dirty {
		if !l.namespace(namespace) {
			l.a.later(retryDelay, func() { l.touch(namespace) })
		}
	}
}

// namespace brings all endpoints of a namespace up to date, and returns false if something was in the way.
func (l *endpointLoop) namespace(namespace string) bool {
	all := l.a.items(pods(), namespace)
	owned := map[string][]*item{}
	for _, it := range l.a.items(slicesGVR().GroupResource(), namespace) {
		if text(it.object, "metadata", "labels", managedByLabel) == sliceController {
			name := text(it.object, "metadata", "labels", serviceNameLabel)
			owned[name] = append(owned[name], it)
		}
	}
	fine := true
	for _, svc := range l.a.items(services(), namespace) {
		selector := section(writable(svc.object), "spec")["selector"]
		want, ok := selector.(map[string]any)
		if !ok || len(want) == 0 || text(svc.object, "spec", "type") == "ExternalName" {
			continue
		}
		groups := groupEndpoints(svc, all, want)
		if !l.options.NoSlices {
			fine = l.slices(svc, owned[svc.name], groups) && fine
			delete(owned, svc.name)
		}
		if !l.options.NoEndpoints {
			fine = l.endpoints(svc, groups) && fine
		}
	}
	for _, left := range owned { // of Services that are gone, or have no selector any more
		for _, it := range left {
			fine = l.a.Delete(slicesGVR(), namespace, it.name) == nil && fine
		}
	}
	return l.strayEndpoints(namespace) && fine
}

// strayEndpoints deletes the Endpoints of Services that are gone.
func (l *endpointLoop) strayEndpoints(namespace string) bool {
	there := map[string]bool{}
	for _, svc := range l.a.items(services(), namespace) {
		there[svc.name] = true
	}
	fine := true
	for _, it := range l.a.items(endpointsGVR().GroupResource(), namespace) {
		if text(it.object, "metadata", "labels", managedByEndpoints) == endpointController && !there[it.name] {
			fine = l.a.Delete(endpointsGVR(), namespace, it.name) == nil && fine
		}
	}
	return fine
}

// items are the objects of a namespace as the store has them; they must not be changed.
func (a *API) items(gr schema.GroupResource, namespace string) []*item {
	a.mu.RLock()
	defer a.mu.RUnlock()
	items, _ := a.resources[gr].snapshotLocked(namespace, 0)
	return items
}

// endpointGroup is endpoints that may share a slice: of one address family, with the same ports.
type endpointGroup struct {
	family    string
	ports     []any
	endpoints []any // maps, in the order of their pods' names
}

// groupEndpoints are the endpoints of a Service's pods.
func groupEndpoints(svc *item, all []*item, selector map[string]any) []*endpointGroup {
	var groups []*endpointGroup
	for _, pod := range all {
		if !selects(selector, pod.object) {
			continue
		}
		ports := podPorts(svc.object, pod.object)
		for _, family := range families(svc.object) {
			address := podAddress(pod.object, family)
			if address == "" {
				continue
			}
			i := slices.IndexFunc(groups, func(g *endpointGroup) bool {
				return g.family == family && reflect.DeepEqual(g.ports, ports)
			})
			if i < 0 {
				groups = append(groups, &endpointGroup{family: family, ports: ports})
				i = len(groups) - 1
			}
			groups[i].endpoints = append(groups[i].endpoints, endpointOf(svc.object, pod, address))
		}
	}
	return groups
}

func selects(selector, pod map[string]any) bool {
	phase := text(pod, "status", "phase")
	if phase == "Succeeded" || phase == "Failed" {
		return false
	}
	for key, want := range selector {
		if text(pod, "metadata", "labels", key) != want {
			return false
		}
	}
	return true
}

func families(svc map[string]any) []string {
	spec, _ := svc["spec"].(map[string]any)
	out := textList(spec["ipFamilies"])
	if len(out) == 0 { // headless without families
		out = []string{"IPv4"}
	}
	return out
}

// endpointOf is a pod as an endpoint: ready unless it is going, or always if the Service wants it so.
func endpointOf(svc map[string]any, pod *item, address string) map[string]any {
	running := podReady(pod.object)
	going := metadata(pod.object)["deletionTimestamp"] != nil
	spec, _ := svc["spec"].(map[string]any)
	always, _ := spec["publishNotReadyAddresses"].(bool)
	out := map[string]any{
		"addresses":  []any{address},
		"conditions": map[string]any{"ready": always || (running && !going), "serving": running, "terminating": going},
		"targetRef":  map[string]any{"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
	}
	if node := text(pod.object, "spec", "nodeName"); node != "" {
		out["nodeName"] = node
	}
	return out
}

func podReady(pod map[string]any) bool {
	status, _ := pod["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, _ := c.(map[string]any)
		return m["type"] == "Ready" && m["status"] == "True"
	})
}

// slices changes a Service's slices as little as it can: what stays, stays where it is.
func (l *endpointLoop) slices(svc *item, had []*item, groups []*endpointGroup) bool {
	fine := true
	free := slices.Clone(had)
	for _, g := range groups {
		left := map[string]any{} // endpoints that are in no slice yet, by their pod
		for _, e := range g.endpoints {
			left[text(e.(map[string]any), "targetRef", "uid")] = e
		}
		var mine []*item
		free = slices.DeleteFunc(free, func(it *item) bool {
			same := it.object["addressType"] == g.family && reflect.DeepEqual(it.object["ports"], any(g.ports))
			if same {
				mine = append(mine, it)
			}
			return same
		})
		kept := make([][]any, len(mine))
		for i, it := range mine {
			old, _ := it.object["endpoints"].([]any)
			for _, e := range old {
				m, _ := e.(map[string]any)
				uid := text(m, "targetRef", "uid")
				if fresh, ok := left[uid]; ok {
					kept[i] = append(kept[i], fresh)
					delete(left, uid)
				}
			}
		}
		for _, uid := range slices.SortedFunc(maps.Keys(left), func(x, y string) int {
			return cmp.Compare(text(left[x].(map[string]any), "targetRef", "name"),
				text(left[y].(map[string]any), "targetRef", "name"))
		}) {
			i := slices.IndexFunc(kept, func(es []any) bool { return len(es) < l.options.PerSlice })
			if i < 0 {
				mine, kept = append(mine, nil), append(kept, nil)
				i = len(kept) - 1
			}
			kept[i] = append(kept[i], left[uid])
		}
		for i := range mine {
			fine = l.slice(svc, mine[i], g, kept[i]) && fine
		}
	}
	return l.placeholder(svc, free, len(groups) == 0) && fine
}

// placeholder deletes the slices that nothing is in; a Service without any endpoint keeps an empty one.
func (l *endpointLoop) placeholder(svc *item, free []*item, wanted bool) bool {
	fine := true
	if wanted {
		empty := &endpointGroup{family: families(svc.object)[0], ports: []any{}}
		if i := slices.IndexFunc(free, func(it *item) bool { return it.object["addressType"] == empty.family }); i >= 0 {
			fine = l.slice(svc, free[i], empty, []any{})
			free = slices.Delete(slices.Clone(free), i, i+1)
		} else {
			fine = l.slice(svc, nil, empty, []any{})
		}
	}
	for _, it := range free {
		fine = l.a.Delete(slicesGVR(), it.namespace, it.name) == nil && fine
	}
	return fine
}

// slice makes, changes or deletes one slice.
func (l *endpointLoop) slice(svc, it *item, g *endpointGroup, endpoints []any) bool {
	if it != nil && len(endpoints) == 0 && len(g.endpoints) > 0 {
		return l.a.Delete(slicesGVR(), it.namespace, it.name) == nil
	}
	if endpoints == nil {
		endpoints = []any{}
	}
	object := map[string]any{"addressType": g.family, "endpoints": endpoints, "ports": g.ports}
	if it == nil {
		object["metadata"] = map[string]any{
			"generateName": svc.name + "-", "namespace": svc.namespace,
			"labels": map[string]any{serviceNameLabel: svc.name, managedByLabel: sliceController},
			"ownerReferences": []any{map[string]any{
				"apiVersion": "v1", "kind": "Service", "name": svc.name, "uid": svc.uid, "controller": true,
				"blockOwnerDeletion": true,
			}},
		}
		_, err := l.a.Create(slicesGVR(), object)
		return err == nil
	}
	if reflect.DeepEqual(it.object["endpoints"], any(endpoints)) && reflect.DeepEqual(it.object["ports"], any(g.ports)) {
		return true
	}
	object["metadata"] = metadata(it.object)
	_, err := l.a.Update(slicesGVR(), object)
	return err == nil
}
