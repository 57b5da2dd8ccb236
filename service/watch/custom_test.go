// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/watch"
	"github.com/kuryr/raven/test/sim/kube"
)

// define makes the definition of widgets, which can be selected by spec.zone.
func (f *fixture) define(t *testing.T) {
	t.Helper()
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.example.org"},
		"spec": map[string]any{
			"group": "example.org", "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "selectableFields": []any{map[string]any{"jsonPath": ".spec.zone"}},
			}},
		},
	}}
	gvr := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := f.clients.Dynamic.Resource(gvr).Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) widget(t *testing.T, namespace, name, zone, tier string) {
	t.Helper()
	o := object(widgets(), "Widget", namespace, name, "tier", tier)
	o.Object["spec"] = map[string]any{"zone": zone, "size": int64(1), "other": "x"}
	o.SetAnnotations(map[string]string{"example.org/a": "1", "example.org/b": "1"})
	eventually(t, func() bool { // the definition is served a moment after it was made
		_, err := f.clients.Dynamic.Resource(widgets()).Namespace(namespace).Create(t.Context(), o, metav1.CreateOptions{})
		return err == nil
	}, func() any { return "creating " + name })
}

// asks records how widgets are asked for: the path, the selectors, and whether only for their metadata.
type asks struct {
	mu   sync.Mutex
	seen []string
	next http.RoundTripper
}

func (a *asks) RoundTrip(request *http.Request) (*http.Response, error) {
	if query := request.URL.Query(); strings.HasSuffix(request.URL.Path, "/widgets") && request.Method == http.MethodGet {
		what := "objects"
		if strings.Contains(request.Header.Get("Accept"), "PartialObjectMetadata") {
			what = "metadata"
		}
		a.mu.Lock()
		a.seen = append(a.seen,
			fmt.Sprintf("%s of %s labels=%s fields=%s", what, request.URL.Path, query.Get("labelSelector"),
				query.Get("fieldSelector")))
		a.mu.Unlock()
	}
	return a.next.RoundTrip(request)
}

func (a *asks) distinct() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	seen := slices.Clone(a.seen)
	slices.Sort(seen)
	return slices.Compact(seen)
}

// A driver watches a custom resource by namespace, labels and fields, and another watch of it for its metadata only:
// each asks the API server for just that, starts when the definition comes, and wakes for nothing else.
func TestCustomResources(t *testing.T) {
	for mode, listOnly := range modes() {
		t.Run(mode, func(t *testing.T) {
			asked := &asks{}
			f := setup(t, kube.Options{}, func(c *watch.Config) { c.ListOnly = listOnly })
			f.config.WrapTransport = func(next http.RoundTripper) http.RoundTripper { asked.next = next; return asked }
			clients, err := watch.NewClients(f.config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(clients.Close)
			f.manager = watch.New(watch.Config{
				Clients: clients, SyncTimeout: 10 * time.Second, RecheckPeriod: 20 * time.Millisecond, ListOnly: listOnly,
			})
			w := func(name string) drivers.Watch {
				return drivers.Watch{Name: name, GVR: widgets(), Kind: "Widget", Source: true, Fields: []string{"spec.size"}}
			}
			space, labelled, zoned, meta := w("space"), w("labelled"), w("zoned"), w("meta")
			space.Namespace, labelled.LabelSelector, zoned.FieldSelector = "one", "tier in (web)", "spec.zone=east"
			meta.Fields = []string{"metadata.annotations['example.org/a']"}
			s, woken := f.subscribe(t, "widget", nil, space, labelled, zoned, meta)
			f.start(t)
			var missing *watch.SyncError
			if err := s.WaitSynced(t.Context()); !errors.As(err, &missing) || missing.Failures[0].Cause != watch.NotServed {
				t.Fatalf("without a definition: %v", err)
			}
			f.define(t)
			f.widget(t, "one", "a", "east", "web")
			f.widget(t, "two", "b", "west", "db")
			eventually(t, func() bool { return s.WaitSynced(t.Context()) == nil }, func() any { return s.Status() })
			for _, wake := range []string{"space one/a", "labelled one/a", "zoned one/a", "meta one/a", "meta two/b"} {
				woken.await(t, wake+" added")
			}
			for _, other := range []string{"space two/b", "labelled two/b", "zoned two/b"} {
				if slices.Contains(woken.all(), other+" added") {
					t.Errorf("woken for %s", other)
				}
			}
			woken.reset()
			change := func(namespace, name, patch string) {
				t.Helper()
				if err := patched(t, f, namespace, name, patch); err != nil {
					t.Fatal(err)
				}
			}
			// outside of all fields
			change("one", "a", `{"spec":{"other":"y"},"metadata":{"annotations":{"example.org/b":"2"}}}`)
			change("one", "a", `{"metadata":{"annotations":{"example.org/a":"2"}}}`)
			woken.await(t, "meta one/a updated")
			change("two", "b", `{"spec":{"zone":"east"}}`)
			woken.await(t, "zoned two/b added")
			change("two", "b", `{"spec":{"zone":"west"}}`)
			woken.await(t, "zoned two/b deleted")
			if got := woken.all(); len(got) != 3 {
				t.Errorf("woken by %v", got)
			}
			want := []string{
				"metadata of /apis/example.org/v1/widgets labels= fields=",
				"objects of /apis/example.org/v1/namespaces/one/widgets labels= fields=",
				"objects of /apis/example.org/v1/widgets labels= fields=spec.zone=east",
				"objects of /apis/example.org/v1/widgets labels=tier in (web) fields=",
			}
			if got := asked.distinct(); !slices.Equal(got, want) {
				t.Errorf("asked for %q", got)
			}
		})
	}
}

func patched(t *testing.T, f *fixture, namespace, name, patch string) error {
	t.Helper()
	_, err := f.clients.Dynamic.Resource(widgets()).Namespace(namespace).
		Patch(t.Context(), name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
	return err
}

// What the API server cannot select by is said at once, and what to do.
func TestFieldThatCannotBeSelectedBy(t *testing.T) {
	f := setup(t, kube.Options{}, func(c *watch.Config) { c.SyncTimeout = time.Hour })
	f.define(t)
	f.widget(t, "one", "a", "east", "web")
	s, _ := f.subscribe(t, "widget", nil, drivers.Watch{
		Name: "widgets", GVR: widgets(), Kind: "Widget", Source: true, FieldSelector: "spec.size=1",
		Fields: []string{"spec.size"},
	})
	f.start(t)
	var failed *watch.SyncError
	err := s.WaitSynced(t.Context())
	if !errors.As(err, &failed) || failed.Failures[0].Cause != watch.BadSelector ||
		!strings.Contains(err.Error(), `"spec.size=1"`) ||
		!strings.Contains(err.Error(), "selectableFields") {
		t.Errorf("got %v", err)
	}
	if state := s.Status()[0]; state.Cause != watch.BadSelector || state.Synced {
		t.Errorf("%+v", state)
	}
}
