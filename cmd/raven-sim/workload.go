// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	simkube "github.com/kuryr/raven/test/sim/kube"
)

func namespacesGVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
}

func podsGVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

func servicesGVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "services"}
}

// app is a part of the workload: so many pods of one name, in one namespace, and perhaps a Service for them.
type app struct {
	namespace, name, image string
	replicas               int
	job                    bool // its pods complete, and others take their place
	host                   bool // on the hosts' network: they have no port
	port                   int64
	protocol               string // of the port; "": TCP
	outside                bool   // of type LoadBalancer
}

func startingApps() []*app {
	return []*app{
		{namespace: "shop", name: "web", image: "nginx:1.29", replicas: 3, port: 80, outside: true},
		{namespace: "shop", name: "cart", image: "redis:8", replicas: 2, port: 6379},
		{namespace: "blog", name: "wordpress", image: "wordpress:6", replicas: 2, port: 80},
		{namespace: "blog", name: "mariadb", image: "mariadb:11", replicas: 1, port: 3306},
		{namespace: "monitoring", name: "statsd", image: "prom/statsd-exporter:v0", replicas: 1, port: 8125, protocol: "UDP"},
		{namespace: "ci", name: "build", image: "golang:1.26", replicas: 2, job: true},
		{namespace: "monitoring", name: "node-exporter", image: "prom/node-exporter:v1", replicas: 1, host: true},
	}
}

// workload makes a cluster look alive: pods come, change, complete and go. It keeps nothing in mind but how many
// there should be, so whatever other clients do to them is made good with the next change, as controllers would.
type workload struct {
	kube *simkube.API
	rand *rand.Rand
	apps []*app
	hash map[string]string // of an app's template, a part of its pods' names

	mu   sync.Mutex
	last string // what was done last, for people
}

// did says what was done last; "": nothing yet.
func (w *workload) did() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

func (w *workload) doing(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = what
}

func newWorkload(kube *simkube.API) *workload {
	return &workload{
		kube: kube, rand: rand.New(rand.NewPCG(1, 2)), //nolint:gosec // looks, not secrets
		apps: startingApps(), hash: map[string]string{},
	}
}

// run makes the workload and changes something every interval until ctx ends.
func (w *workload) run(ctx context.Context, interval time.Duration) error {
	w.doing(fmt.Sprintf("made %d apps with their Services", len(w.apps)))
	for _, a := range w.apps {
		if err := w.namespace(a.namespace); err != nil {
			return err
		}
	}
	for _, a := range w.apps {
		if err := w.service(a); err != nil {
			return err
		}
	}
	if err := w.replicas(); err != nil {
		return err
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for turn := 0; ; turn++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		changes := w.changes()
		change := changes[turn%len(changes)]
		w.doing(change.what)
		if err := change.do(); err != nil {
			return err
		}
		if err := w.replicas(); err != nil {
			return err
		}
	}
}

// change is something that happens.
type change struct {
	what string // for people
	do   func() error
}

// changes are what happens, in turn.
func (w *workload) changes() []change {
	web, cart, wordpress, build := w.apps[0], w.apps[1], w.apps[2], w.apps[5]
	preview := &app{namespace: "preview", name: "try", image: "nginx:1.29", replicas: 1, port: 80}
	return []change{
		{"a pod of ci/build completed: its port goes", func() error { return w.complete(build) }},
		{"shop/web got one replica more", func() error { web.replicas++; return nil }},
		{"a pod of blog/wordpress got another label", func() error { return w.relabel(wordpress) }},
		{"made namespace preview", func() error { return w.namespace(preview.namespace) }},
		{"made preview/try with a Service", func() error { return errors.Join(w.create(preview), w.service(preview)) }},
		{"replaced the oldest pod of shop/cart", func() error { return w.replaceOldest(cart) }},
		{"a pod of ci/build completed: its port goes", func() error { return w.complete(build) }},
		{"shop/web got one replica less", func() error { web.replicas--; return nil }},
		{"the Service of blog/wordpress got another type", func() error { return w.turn(wordpress) }},
		{"deleted a completed pod of ci/build", func() error { return w.sweepCompleted(build) }},
		{"deleted namespace preview", func() error {
			return excused(w.kube.Delete(namespacesGVR(), "", preview.namespace))
		}},
		{"replaced the oldest pod of blog/wordpress", func() error { return w.replaceOldest(wordpress) }},
		{"deleted a completed pod of ci/build", func() error { return w.sweepCompleted(build) }},
	}
}

// excused drops what comes of others changing the same cluster at the same time.
func excused(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// replicas makes what is missing of each app and removes what is too much.
func (w *workload) replicas() error {
	for _, a := range w.apps {
		live, err := w.pods(a, true)
		if err != nil {
			return err
		}
		for range a.replicas - len(live) {
			if err := w.create(a); err != nil {
				return err
			}
		}
		for i := 0; i < len(live)-a.replicas; i++ {
			if err := excused(w.kube.Delete(podsGVR(), a.namespace, live[i])); err != nil {
				return err
			}
		}
	}
	return nil
}

// pods lists an app's pods that are not being deleted, those that have not completed or those that have; the oldest
// first.
func (w *workload) pods(a *app, running bool) ([]string, error) {
	all, err := w.kube.List(podsGVR(), a.namespace)
	if err != nil {
		return nil, fmt.Errorf("listing pods of %s: %w", a.namespace, err)
	}
	type pod struct{ created, name string }
	var found []pod
	for _, object := range all {
		meta, _ := object["metadata"].(map[string]any)
		labels, _ := meta["labels"].(map[string]any)
		status, _ := object["status"].(map[string]any)
		completed := status["phase"] == "Succeeded" || status["phase"] == "Failed"
		if labels["app"] != a.name || meta["deletionTimestamp"] != nil || completed == running {
			continue
		}
		created, _ := meta["creationTimestamp"].(string)
		name, _ := meta["name"].(string)
		found = append(found, pod{created, name})
	}
	slices.SortStableFunc(found, func(x, y pod) int {
		switch {
		case x.created < y.created:
			return -1
		case x.created > y.created:
			return 1
		}
		return 0
	})
	names := make([]string, len(found))
	for i, p := range found {
		names[i] = p.name
	}
	return names, nil
}

func (w *workload) namespace(name string) error {
	_, err := w.kube.Create(namespacesGVR(), map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"kubernetes.io/metadata.name": name}},
	})
	if excused(err) != nil {
		return fmt.Errorf("creating namespace %s: %w", name, err)
	}
	return nil
}

func (w *workload) create(a *app) error {
	if w.hash[a.name] == "" {
		w.hash[a.name] = w.letters(9)
	}
	name := fmt.Sprintf("%s-%s-%s", a.name, w.hash[a.name], w.letters(5))
	if a.job || a.host {
		name = fmt.Sprintf("%s-%s", a.name, w.letters(5))
	}
	spec := map[string]any{"containers": []any{map[string]any{"name": a.name, "image": a.image}}}
	if a.host {
		spec["hostNetwork"] = true
	}
	_, err := w.kube.Create(podsGVR(), map[string]any{
		"apiVersion": "v1", "kind": "Pod", "spec": spec,
		"metadata": map[string]any{
			"name": name, "namespace": a.namespace, "labels": map[string]any{"app": a.name, "version": "1"},
		},
	})
	if excused(err) != nil {
		return fmt.Errorf("creating pod %s/%s: %w", a.namespace, name, err)
	}
	return nil
}

// service makes an app's Service, if it has a port.
func (w *workload) service(a *app) error {
	if a.port == 0 {
		return nil
	}
	port := map[string]any{"port": a.port}
	if a.protocol != "" {
		port["protocol"] = a.protocol
	}
	_, err := w.kube.Create(servicesGVR(), map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": a.name, "namespace": a.namespace},
		"spec": map[string]any{"type": a.kind(), "selector": map[string]any{"app": a.name}, "ports": []any{port}},
	})
	if excused(err) != nil {
		return fmt.Errorf("creating service %s/%s: %w", a.namespace, a.name, err)
	}
	return nil
}

// kind is the type of an app's Service.
func (a *app) kind() string {
	if a.outside {
		return "LoadBalancer"
	}
	return "ClusterIP"
}

// turn opens an app's Service to the outside, or closes it.
func (w *workload) turn(a *app) error {
	a.outside = !a.outside
	patch := fmt.Sprintf(`{"spec":{"type":%q}}`, a.kind())
	if _, err := w.kube.Patch(servicesGVR(), a.namespace, a.name, types.MergePatchType,
		[]byte(patch)); excused(err) != nil {
		return fmt.Errorf("changing service %s/%s: %w", a.namespace, a.name, err)
	}
	return nil
}

// replaceOldest deletes the oldest pod; replicas makes another.
func (w *workload) replaceOldest(a *app) error {
	return w.oldest(a, true, func(name string) error { return w.kube.Delete(podsGVR(), a.namespace, name) })
}

// complete lets the oldest pod of a job succeed.
func (w *workload) complete(a *app) error {
	return w.oldest(a, true, func(name string) error {
		_, err := w.kube.Patch(podsGVR(), a.namespace, name, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`))
		return err
	})
}

// sweepCompleted deletes the oldest completed pod of a job, as the job controller does in time.
func (w *workload) sweepCompleted(a *app) error {
	return w.oldest(a, false, func(name string) error { return w.kube.Delete(podsGVR(), a.namespace, name) })
}

// relabel changes a label of the oldest pod.
func (w *workload) relabel(a *app) error {
	return w.oldest(a, true, func(name string) error {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"version":"2-%s"}}}`, w.letters(4))
		_, err := w.kube.Patch(podsGVR(), a.namespace, name, types.MergePatchType, []byte(patch))
		return err
	})
}

// oldest does something to an app's oldest pod, if it has one.
func (w *workload) oldest(a *app, running bool, do func(name string) error) error {
	names, err := w.pods(a, running)
	if err != nil || len(names) == 0 {
		return err
	}
	if err := excused(do(names[0])); err != nil {
		return fmt.Errorf("changing pod %s/%s: %w", a.namespace, names[0], err)
	}
	return nil
}

func (w *workload) letters(n int) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	text := make([]byte, n)
	for i := range text {
		text[i] = letters[w.rand.IntN(len(letters))]
	}
	return string(text)
}
