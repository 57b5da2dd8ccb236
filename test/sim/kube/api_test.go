// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func TestAccess(t *testing.T) {
	api, _ := started(t, Options{TLS: true, Tokens: map[string]string{"secret": "raven"}, Deny: []Deny{
		{User: "raven", Verbs: []string{"list", "watch"}, Groups: []string{"core"}, Resources: []string{"pods"}},
	}})
	typedFor := func(kubeconfig []byte) *kubernetes.Clientset {
		t.Helper()
		config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	if _, err := typedFor(api.KubeconfigFor("wrong")).CoreV1().Pods("default").List(t.Context(),
		metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a wrong token: %v", err)
	}
	client := typedFor(api.Kubeconfig())
	_, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(),
			`User "raven" cannot list resource "pods" in API group "" in the namespace "default"`) {
		t.Errorf("a denied list: %v", err)
	}
	if _, err := client.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a denied watch: %v", err)
	}
	if _, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("an allowed list: %v", err)
	}
	for resource, want := range map[string]bool{"pods": false, "services": true} {
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(),
			&authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{
					ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: resource},
				},
			}, metav1.CreateOptions{})
		if err != nil || review.Status.Allowed != want {
			t.Errorf("may list %s: %v, %v, want %v", resource, review.Status.Allowed, err, want)
		}
	}
	api.SetDeny()
	if _, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("after the rules are gone: %v", err)
	}
}

// TestTyped writes with the typed client, in JSON and protobuf, as leader election and event recorders do.
func TestTyped(t *testing.T) {
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		t.Run(contentType, func(t *testing.T) {
			_, config := started(t, Options{})
			config.ContentType = contentType
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			holder := "me"
			now := metav1.NowMicro()
			lease := &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: "raven"},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &now},
			}
			lease, err = client.CoordinationV1().Leases("kube-system").Create(t.Context(), lease, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if lease, err = client.CoordinationV1().Leases("kube-system").Update(t.Context(), lease,
				metav1.UpdateOptions{}); err != nil || *lease.Spec.HolderIdentity != "me" {
				t.Errorf("got %v, %v", lease, err)
			}
			modern := &eventsv1.Event{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "e-"}, EventTime: now, Note: "a note", Reason: "Because",
				Type:      "Normal",
				Regarding: corev1.ObjectReference{Kind: "Pod", Name: "p", Namespace: "default"}, ReportingController: "raven",
				ReportingInstance: "one", Action: "Look",
			}
			if _, err := client.EventsV1().Events("default").Create(t.Context(), modern, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			list, err := client.CoreV1().Events("default").List(t.Context(),
				metav1.ListOptions{FieldSelector: "involvedObject.name=p"})
			if err != nil || len(list.Items) != 1 || list.Items[0].Message != "a note" ||
				list.Items[0].InvolvedObject.Kind != "Pod" {
				t.Errorf("as a core event: %v, %v", list, err)
			}
		})
	}
}

func TestCustomResource(t *testing.T) {
	api, config := started(t,
		Options{Kinds: []Kind{{Group: "early.example", Kind: "Thing", Namespaced: true, Custom: true}}})
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	widgets := client.Resource(schema.GroupVersionResource{
		Group: "raven.example", Version: "v1beta1", Resource: "widgets",
	}).Namespace("default")
	if _, err := widgets.List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("before its definition: %v", err)
	}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.raven.example"},
		"spec": map[string]any{
			"group": "raven.example", "scope": "Namespaced", "names": map[string]any{"plural": "widgets", "kind": "Widget"},
			"versions": []any{
				map[string]any{"name": "v1beta1", "served": true, "storage": false},
				map[string]any{
					"name": "v1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
				},
			},
		},
	}}
	definitions := client.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	if _, err := definitions.Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w := &unstructured.Unstructured{
		Object: map[string]any{
			"apiVersion": "raven.example/v1beta1", "kind": "Widget", "metadata": map[string]any{"name": "w"},
			"spec": map[string]any{"size": int64(1)},
		},
	}
	made, err := widgets.Create(t.Context(), w, metav1.CreateOptions{})
	if err != nil || made.GetAPIVersion() != "raven.example/v1beta1" || made.GetGeneration() != 1 {
		t.Fatalf("got %v, %v", made, err)
	}
	stored := client.Resource(schema.GroupVersionResource{
		Group: "raven.example", Version: "v1", Resource: "widgets",
	}).Namespace("default")
	changed, err := stored.Patch(t.Context(), "w", types.MergePatchType, []byte(`{"spec":{"size":2}}`),
		metav1.PatchOptions{})
	if err != nil || changed.GetAPIVersion() != "raven.example/v1" || changed.GetGeneration() != 2 {
		t.Errorf("through the other version: %v, %v", changed, err)
	}
	things := schema.GroupVersionResource{Group: "early.example", Version: "v1", Resource: "things"}
	if _, err := api.Create(things,
		map[string]any{"metadata": map[string]any{"name": "t", "namespace": "default"}}); err != nil {
		t.Error(err)
	}
	if err := definitions.Delete(t.Context(), "widgets.raven.example", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := widgets.List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after its definition: %v", err)
	}
}

func TestKubelet(t *testing.T) {
	api, _ := started(t,
		Options{Kubelet: &Kubelet{Nodes: []string{"n1"}, NeedPort: true}, PodGrace: 10 * time.Millisecond})
	mustCreate(t, api, aPod("p"))
	get := func(path ...string) string {
		object, err := api.Get(podsGVR(), "default", "p")
		if err != nil {
			return err.Error()
		}
		return text(object, path...)
	}
	eventually(t, "a node", func() bool { return get("spec", "nodeName") == "n1" })
	if phase := get("status", "phase"); phase != "Pending" {
		t.Errorf("without its port the pod is %s", phase)
	}
	annotation := `{"metadata":{"annotations":{"kuryr.org/neutron-port":"{\"fixed_ips\":[{\"ip_address\":\"10.0.0.9\"}]}"}}}`
	if _, err := api.Patch(podsGVR(), "default", "p", types.MergePatchType, []byte(annotation)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an address", func() bool {
		return get("status", "phase") == "Running" && get("status", "podIP") == "10.0.0.9"
	})
	if err := api.Delete(podsGVR(), "default", "p"); err != nil {
		t.Fatal(err)
	}
	if get("metadata", "deletionTimestamp") == "" {
		t.Error("the pod has no time to go")
	}
	eventually(t, "the end", func() bool {
		_, err := api.Get(podsGVR(), "default", "p")
		return apierrors.IsNotFound(err)
	})
}

func TestAdmin(t *testing.T) {
	api, config := started(t, Options{})
	call := func(method, path, body string) string {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		out, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("%s %s: %d %v", method, path, answer.StatusCode, err)
		}
		return string(out)
	}
	defer http.DefaultClient.CloseIdleConnections()
	seen := make(chan Request, 10)
	api.OnRequest(func(r Request) { seen <- r })
	call(http.MethodGet, "/api/v1/namespaces/default", "")
	if r := <-seen; r.Verb != "get" || r.Resource != "namespaces" || r.Name != "default" {
		t.Errorf("seen %+v", r)
	}
	var log []Request
	if err := json.Unmarshal([]byte(call(http.MethodGet, "/sim/log", "")), &log); err != nil || len(log) != 1 ||
		log[0].Status != http.StatusOK {
		t.Errorf("log %v, %v", log, err)
	}
	var stats Stats
	if err := json.Unmarshal([]byte(call(http.MethodGet, "/sim/stats", "")), &stats); err != nil ||
		stats.Counts["get namespaces"] != 1 {
		t.Errorf("stats %v, %v", stats, err)
	}
	call(http.MethodPost, "/sim/faults", `{"path":"/nothing","status":500,"delay":"1ms"}`)
	if got := call(http.MethodGet, "/sim/kubeconfig", ""); !strings.Contains(got, config.Host) {
		t.Errorf("kubeconfig %s", got)
	}
	if got := call(http.MethodGet, "/sim/faults", ""); !strings.Contains(got, `"delay":"1ms"`) {
		t.Errorf("faults %s", got)
	}
	call(http.MethodDelete, "/sim/faults", "")
	for _, path := range []string{"/sim/compact", "/sim/expire?resource=pods", "/sim/cut?how=midline", "/sim/bookmark"} {
		call(http.MethodPost, path, "")
	}
	if got := call(http.MethodGet, "/sim/dump?resource=namespaces", ""); !strings.Contains(got,
		"# namespaces default\n") || strings.Contains(got, "uid:") {
		t.Errorf("dump %s", got)
	}
}

// TestBurst reports how long it takes to POST 1,000 pods and to patch each by apply, with a watcher beside.
func TestBurst(t *testing.T) {
	const pods, writers = 1000, 16
	api, config := started(t, Options{})
	store := informer(t, config)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	namespaced := client.Resource(podsGVR()).Namespace("default")
	each := func(what string, do func(i int) error) {
		start := time.Now()
		var wait sync.WaitGroup
		for w := range writers {
			wait.Go(func() {
				for i := w; i < pods; i += writers {
					if err := do(i); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wait.Wait()
		t.Logf("%s: %d in %v", what, pods, time.Since(start).Round(time.Millisecond))
	}
	each("POST over HTTP", func(i int) error {
		_, err := namespaced.Create(t.Context(), &unstructured.Unstructured{Object: aPod(fmt.Sprint("p", i))},
			metav1.CreateOptions{})
		return err
	})
	force := true
	each("apply of annotations over HTTP", func(i int) error {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p%d","annotations":{"kuryr.org/neutron-port":"x"}}}`, i)
		_, err := namespaced.Patch(t.Context(), fmt.Sprint("p", i), types.ApplyPatchType, []byte(body),
			metav1.PatchOptions{FieldManager: "raven", Force: &force})
		return err
	})
	eventually(t, "the informer to follow", func() bool { return len(known(store)) == pods })
	if n := api.Count("patch pods"); n != pods {
		t.Errorf("%d patches", n)
	}
}

func BenchmarkCreate(b *testing.B) {
	api := New(Options{})
	defer api.Close()
	for i := range b.N {
		if _, err := api.Create(podsGVR(), aPod(fmt.Sprint("p", i))); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkApply(b *testing.B) {
	api := New(Options{})
	defer api.Close()
	for i := range 1000 {
		if _, err := api.Create(podsGVR(), aPod(fmt.Sprint("p", i))); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for i := range b.N {
		object := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{
			"name": fmt.Sprint("p", i%1000), "namespace": "default", "annotations": map[string]any{"a": fmt.Sprint(i)},
		}}
		if _, err := api.Apply(podsGVR(), object, "raven", true); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFanOut measures one write until ten watchers among 10,000 pods have it.
func BenchmarkFanOut(b *testing.B) {
	api := New(Options{})
	defer api.Close()
	url, err := api.Start("")
	if err != nil {
		b.Fatal(err)
	}
	for i := range 10000 {
		if _, err := api.Create(podsGVR(), aPod(fmt.Sprint("p", i))); err != nil {
			b.Fatal(err)
		}
	}
	client, err := dynamic.NewForConfig(&rest.Config{Host: url, QPS: -1})
	if err != nil {
		b.Fatal(err)
	}
	var wait sync.WaitGroup
	ctx, cancel := context.WithCancel(b.Context())
	got := make(chan struct{}, 100)
	for range 10 {
		w, err := client.Resource(podsGVR()).Watch(ctx, metav1.ListOptions{ResourceVersion: fmt.Sprint(api.Stats().Version)})
		if err != nil {
			b.Fatal(err)
		}
		wait.Go(func() {
			for range w.ResultChan() {
				got <- struct{}{}
			}
		})
	}
	b.ResetTimer()
	for i := range b.N {
		if _, err := api.Patch(podsGVR(), "default", "p1", types.MergePatchType,
			[]byte(fmt.Sprintf(`{"metadata":{"annotations":{"a":"%d"}}}`, i))); err != nil {
			b.Fatal(err)
		}
		for range 10 {
			<-got
		}
	}
	b.StopTimer()
	cancel()
	wait.Wait()
}
