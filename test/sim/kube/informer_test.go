// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func podsGVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

func started(t *testing.T, o Options) (*API, *rest.Config) {
	t.Helper()
	api := New(o)
	t.Cleanup(api.Close)
	url, err := api.Start("")
	if err != nil {
		t.Fatal(err)
	}
	return api, &rest.Config{Host: url, QPS: -1}
}

func aPod(name string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "namespace": "default", "labels": map[string]any{"app": "web"}},
		"spec": map[string]any{
			"containers": []any{
				map[string]any{"name": "main", "image": "nginx", "ports": []any{map[string]any{"containerPort": 80}}},
			},
		},
	}
}

func mustCreate(t *testing.T, api *API, object map[string]any) map[string]any {
	t.Helper()
	out, err := api.Create(podsGVR(), object)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never came: ", what)
		}
	}
}

// informer follows the pods of a config; what it knows is read with versions.
func informer(t *testing.T, config *rest.Config) cache.Store {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	shared := dynamicinformer.NewFilteredDynamicInformer(client, podsGVR(), "", 0, cache.Indexers{}, nil).Informer()
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { shared.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); wait.Wait() })
	if !cache.WaitForCacheSync(t.Context().Done(), shared.HasSynced) {
		t.Fatal("not synced")
	}
	return shared.GetStore()
}

func known(store cache.Store) map[string]string {
	out := map[string]string{}
	for _, object := range store.List() {
		if u, ok := object.(*unstructured.Unstructured); ok {
			out[u.GetName()] = u.GetResourceVersion()
		}
	}
	return out
}

func stored(t *testing.T, api *API) map[string]string {
	t.Helper()
	list, err := api.List(podsGVR(), "")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, object := range list {
		out[text(object, "metadata", "name")] = text(object, "metadata", "resourceVersion")
	}
	return out
}

// TestInformer lets an informer go through everything that can befall a watch; it must end up with the store's state.
func TestInformer(t *testing.T) {
	for name, o := range map[string]Options{
		"watch list":   {},
		"list":         {NoWatchList: true},
		"gone as 410":  {GoneStatus: true},
		"small window": {History: 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // client-go's own backoff takes most of the time
			api, config := started(t, o)
			mustCreate(t, api, aPod("first"))
			store := informer(t, config)
			if lists := api.Count("list pods"); (lists > 0) != o.NoWatchList {
				t.Errorf("%d lists", lists)
			}
			n := 0
			more := func() {
				for range 3 {
					n++
					mustCreate(t, api, aPod(fmt.Sprint("p", n)))
				}
				if err := api.Delete(podsGVR(), "default", fmt.Sprint("p", n-1)); err != nil {
					t.Fatal(err)
				}
				mustCreate(t, api, aPod(fmt.Sprint("p", n-1)))
			}
			settled := func(what string) {
				t.Helper()
				eventually(t, what, func() bool { return cmp.Equal(stored(t, api), known(store)) })
			}
			more()
			settled("plain events")
			eventually(t, "a watch to cut", func() bool { return api.CutWatches("pods", CleanEOF) > 0 })
			more()
			settled("after a clean end")
			eventually(t, "a watch to cut", func() bool { return api.CutWatches("pods", MidLine) > 0 })
			more()
			settled("after a cut in an event")
			api.Expire("pods")
			more()
			settled("after a 410 in the stream")
			api.Compact()
			eventually(t, "a watch to cut", func() bool { return api.CutWatches("", CleanEOF) > 0 })
			more()
			settled("after a compaction")
		})
	}
}

func TestBookmark(t *testing.T) {
	api, config := started(t, Options{})
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w, err := client.Resource(podsGVR()).Watch(t.Context(), metav1.ListOptions{AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if _, err := api.Patch(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", "default",
		types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`)); err != nil {
		t.Fatal(err)
	}
	api.Bookmark("pods")
	ev := <-w.ResultChan()
	u, ok := ev.Object.(*unstructured.Unstructured)
	if !ok || ev.Type != "BOOKMARK" || u.GetResourceVersion() != fmt.Sprint(api.Stats().Version) {
		t.Errorf("got %s %v, want a bookmark at %d", ev.Type, ev.Object, api.Stats().Version)
	}
}

// TestSlowWatcher checks that a stream that falls behind its buffer ends, and that the others go on.
func TestSlowWatcher(t *testing.T) {
	api, config := started(t, Options{WatchBuffer: 5})
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w, err := client.Resource(podsGVR()).Watch(t.Context(),
		metav1.ListOptions{ResourceVersion: fmt.Sprint(api.Stats().Version)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	res := api.resource(pods())
	api.mu.Lock() // no watch reads the history meanwhile
	for i := range 10 {
		object := aPod(fmt.Sprint("p", i))
		api.commitLocked(res, nil, &item{namespace: "default", name: fmt.Sprint("p", i), object: object}, false)
	}
	api.mu.Unlock()
	for ev := range w.ResultChan() {
		t.Errorf("got %v, want the end", ev)
	}
}

func TestSeedEvents(t *testing.T) {
	for file, want := range map[string]string{
		"namespaces.watch.jsonl": "", "pods.watch.jsonl": "", "pods-nginx-app.watch.jsonl": "default/nginx-app-o0kvl",
		"services.watch.jsonl": "", "endpoints.watch.jsonl": "default/frontend",
	} {
		t.Run(file, func(t *testing.T) {
			api, config := started(t, Options{})
			store := informer(t, config)
			f, err := os.Open("../../testdata/seed-events/" + file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close() //nolint:errcheck // it was only read
			if err := api.Replay(f); err != nil {
				t.Fatal(err)
			}
			resource := map[bool]string{true: "endpoints", false: "pods"}[file == "endpoints.watch.jsonl"]
			list, err := api.List(schema.GroupVersionResource{Version: "v1", Resource: resource}, "default")
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, object := range list {
				got = text(object, "metadata", "namespace") + "/" + text(object, "metadata", "name")
			}
			if got != want {
				t.Errorf("left %q, want %q", got, want)
			}
			eventually(t, "the informer to follow", func() bool { return cmp.Equal(stored(t, api), known(store)) })
		})
	}
}

// TestOddAnnotation replays a pod whose annotation is an object: it stays one, and causes no error.
func TestOddAnnotation(t *testing.T) {
	api, config := started(t, Options{})
	seed, err := os.ReadFile("../../testdata/seed-events/pods.watch.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(seed), "\n")
	if err := api.Replay(strings.NewReader(first)); err != nil {
		t.Fatal(err)
	}
	store := informer(t, config)
	out, err := api.Apply(podsGVR(), map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "my-nginx-y67ky", "namespace": "default", "annotations": map[string]any{"a": "b"}},
	}, "raven", true)
	if err != nil {
		t.Fatal(err)
	}
	annotations, _ := metadata(out)["annotations"].(map[string]any)
	if annotations["a"] != "b" || jsonType(annotations["kubernetes.io/created-by"]) != "object" {
		t.Errorf("annotations %v", annotations)
	}
	eventually(t, "the informer to follow", func() bool { return cmp.Equal(stored(t, api), known(store)) })
}

func TestFaults(t *testing.T) {
	api, config := started(t, Options{})
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	namespaced := client.Resource(podsGVR()).Namespace("default")
	post := func(name string) error {
		_, err := namespaced.Create(t.Context(), &unstructured.Unstructured{Object: aPod(name)}, metav1.CreateOptions{})
		return err
	}
	inject := func(f Fault) func() int {
		t.Helper()
		remove, err := api.Inject(f)
		if err != nil {
			t.Fatal(err)
		}
		return remove
	}
	remove := inject(Fault{Method: http.MethodPost, Path: "/pods", Times: 1, Status: http.StatusForbidden})
	if err := post("a"); err == nil || api.Stats().Objects["pods"] != 0 {
		t.Error("a refused create went through")
	}
	if err := post("a"); err != nil {
		t.Error("the second is not hit: ", err)
	}
	if hits := remove(); hits != 1 {
		t.Errorf("%d hits", hits)
	}
	remove = inject(Fault{Method: http.MethodPost, Path: "/pods", Skip: 1, Cut: true, Apply: true})
	if err := post("b"); err != nil {
		t.Error("the first is let through: ", err)
	}
	if err := post("c"); err == nil {
		t.Error("a cut connection answered")
	}
	remove()
	if _, err := api.Get(podsGVR(), "default", "c"); err != nil {
		t.Error("applied, then cut: ", err)
	}
	defer inject(Fault{Path: "/pods/a", Hang: true})()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := namespaced.Get(ctx, "a", metav1.GetOptions{}); err == nil {
		t.Error("a hanging request answered")
	}
	if n := api.Count("create pods"); n != 4 {
		t.Errorf("%d creates counted, want 4", n)
	}
}
