// SPDX-License-Identifier: Apache-2.0

// Package kube_test is the contract of a Kubernetes API as Raven relies on it, run against the simulation and, when
// RAVEN_CONTRACT_KUBECONFIG names a kubeconfig file, against a real API server. It must never rely on anything that
// only one of the two does.
//
// RAVEN_CONTRACT_COMPACT is a command that makes the real one forget old versions: it compacts etcd and starts the
// API server anew.
package kube_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kuryr/raven/test/sim/kube"
)

const patience = 20 * time.Second

// server is one API under test.
type server struct {
	config *rest.Config
	// compact makes old versions too old; nil where the test cannot order that.
	compact func(t *testing.T)
	// whole says that there is more than an API server: a namespace that is deleted goes, a Service gets endpoints.
	whole bool
	// simulated says that it is the simulation: of the known differences it has the other side.
	simulated bool
}

// contract is every test of the suite, by name.
func contract() map[string]func(*testing.T, *env) {
	return map[string]func(*testing.T, *env){
		"list":            testList,
		"paging":          testPaging,
		"watch":           testWatch,
		"watch selectors": testWatchSelectors,
		"watch resume":    testWatchResume,
		"watch list":      testWatchList,
		"watch timeout":   testWatchTimeout,
		"watch gone":      testWatchGone,
		"watch bookmarks": testWatchBookmarks,
		"create":          testCreate,
		"update":          testUpdate,
		"delete":          testDelete,
		"namespace":       testNamespace,
		"status":          testStatus,
		"patches":         testPatches,
		"apply":           testApply,
		"apply conflict":  testApplyConflict,
		"apply uid":       testApplyUID,
		"apply wide":      testApplyWide,
		"metadata":        testMetadata,

		"services":               testServices,
		"service families":       testServiceFamilies,
		"service types":          testServiceTypes,
		"service status":         testServiceStatus,
		"service status refused": testServiceStatusRefused,
		"service watch":          testServiceWatch,
		"endpoint slices":        testEndpointSlices,
		"endpoints":              testEndpoints,
		"events":                 testEvents,
		"leases":                 testLeases,
		"lease refusals":         testLeaseRefusals,

		"known differences": testKnownDifferences,
	}
}

func TestSimulation(t *testing.T) {
	api := kube.New(kube.Options{
		BookmarkInterval: time.Second, ServiceCIDR: "10.96.0.0/16,fd96::/112", Endpoints: &kube.EndpointController{},
	})
	defer api.Close()
	url, err := api.Start("")
	if err != nil {
		t.Fatal(err)
	}
	compact := func(*testing.T) { api.Compact() }
	run(t, server{config: &rest.Config{Host: url, QPS: -1}, compact: compact, whole: true, simulated: true})
}

func TestReal(t *testing.T) {
	path := os.Getenv("RAVEN_CONTRACT_KUBECONFIG")
	if path == "" {
		t.Skip("RAVEN_CONTRACT_KUBECONFIG names no kubeconfig file of a real API server")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	s := server{config: config}
	if command := os.Getenv("RAVEN_CONTRACT_COMPACT"); command != "" {
		s.whole = true // who can compact it has all of it
		s.compact = func(t *testing.T) {
			t.Helper()
			if out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", command, err, out)
			}
		}
	}
	run(t, s)
}

func run(t *testing.T, s server) {
	t.Helper()
	for name, test := range contract() {
		t.Run(name, func(t *testing.T) {
			client, err := dynamic.NewForConfig(s.config)
			if err != nil {
				t.Fatal(err)
			}
			e := &env{server: s, client: client, namespace: "contract-" + suffix()}
			e.createNamespace(t)
			test(t, e)
		})
	}
}

func suffix() string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	out := make([]byte, 8)
	for i, n := 0, time.Now().UnixNano(); i < len(out); i++ {
		out[i] = letters[n%int64(len(letters))]
		n /= int64(len(letters))
	}
	return string(out)
}

// env is one test's namespace and client.
type env struct {
	server
	client    dynamic.Interface
	namespace string
}

func gvr(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: resource}
}

func (e *env) maps() dynamic.ResourceInterface {
	return e.client.Resource(gvr("configmaps")).Namespace(e.namespace)
}

func (e *env) pods() dynamic.ResourceInterface {
	return e.client.Resource(gvr("pods")).Namespace(e.namespace)
}

func (e *env) createNamespace(t *testing.T) {
	t.Helper()
	ns := object("v1", "Namespace", e.namespace)
	if _, err := e.client.Resource(gvr("namespaces")).Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := e.client.Resource(gvr("namespaces")).Delete(context.Background(), e.namespace, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

func object(version, kind, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name}},
	}
}

func configMap(name string, labels map[string]string) *unstructured.Unstructured {
	m := object("v1", "ConfigMap", name)
	m.SetLabels(labels)
	m.Object["data"] = map[string]any{"a": "1"}
	return m
}

func pod(name string) *unstructured.Unstructured {
	p := object("v1", "Pod", name)
	p.Object["spec"] = map[string]any{
		// no scheduler takes it and no token is mounted, so that a bare API server is enough
		"schedulerName": "nobody", "automountServiceAccountToken": false,
		"containers": []any{map[string]any{"name": "main", "image": "none"}},
	}
	return p
}

// create stores an object or ends the test.
func create(t *testing.T, client dynamic.ResourceInterface, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	out, err := client.Create(t.Context(), u, metav1.CreateOptions{FieldManager: "contract"})
	if err != nil {
		t.Fatalf("creating %s %s: %v", u.GetKind(), u.GetName(), err)
	}
	return out
}

func patch(
	t *testing.T, client dynamic.ResourceInterface, name string, kind types.PatchType, body any,
) *unstructured.Unstructured {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	out, err := client.Patch(t.Context(), name, kind, raw, metav1.PatchOptions{FieldManager: "contract"})
	if err != nil {
		t.Fatalf("patching %s: %v", name, err)
	}
	return out
}

// open starts a watch that ends with the test.
func open(t *testing.T, client dynamic.ResourceInterface, o metav1.ListOptions) watch.Interface {
	t.Helper()
	w, err := client.Watch(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// next waits for an event that is no plain bookmark.
func next(t *testing.T, w watch.Interface) (watch.EventType, *unstructured.Unstructured) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case ev, ok := <-w.ResultChan():
			if !ok {
				t.Fatal("the watch ended")
			}
			u, ok := ev.Object.(*unstructured.Unstructured)
			if !ok {
				t.Fatalf("an event holds a %T: %v", ev.Object, ev)
			}
			if ev.Type == watch.Bookmark && u.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "" {
				continue
			}
			return ev.Type, u
		case <-timeout:
			t.Fatal("no event came")
		}
	}
}

// expect checks the next event's type and object name.
func expect(t *testing.T, w watch.Interface, kind watch.EventType, name string) *unstructured.Unstructured {
	t.Helper()
	got, u := next(t, w)
	if got != kind || u.GetName() != name {
		t.Fatalf("got %s of %q, want %s of %q", got, u.GetName(), kind, name)
	}
	return u
}
