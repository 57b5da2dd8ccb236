// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
)

func testCreate(t *testing.T, e *env) {
	made := create(t, e.maps(), configMap("one", nil))
	created := made.GetCreationTimestamp()
	if made.GetUID() == "" || made.GetResourceVersion() == "" || created.IsZero() || made.GetNamespace() != e.namespace {
		t.Errorf("the server left something out: %v", made.Object["metadata"])
	}
	if _, err := e.maps().Create(t.Context(), configMap("one", nil),
		metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second one: %v", err)
	}
	if _, err := e.maps().Create(t.Context(), configMap("Not_A_Name", nil),
		metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a bad name: %v", err)
	}
	if _, err := e.maps().Create(t.Context(), configMap("x", map[string]string{"bad label": "x"}),
		metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a bad label: %v", err)
	}
	generated := configMap("", nil)
	generated.SetGenerateName("gen-")
	if u := create(t, e.maps(), generated); !strings.HasPrefix(u.GetName(), "gen-") || len(u.GetName()) <= 4 {
		t.Errorf("generated name %q", u.GetName())
	}
	nowhere := e.client.Resource(gvr("configmaps")).Namespace(e.namespace + "-none")
	if _, err := nowhere.Create(t.Context(), configMap("x", nil), metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a missing namespace: %v", err)
	}
	dry, err := e.maps().Create(t.Context(), configMap("dry", nil),
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || dry.GetUID() == "" {
		t.Errorf("dry run: %v", err)
	}
	if _, err := e.maps().Get(t.Context(), "dry", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after a dry run: %v", err)
	}
}

func testUpdate(t *testing.T, e *env) {
	first := create(t, e.maps(), configMap("one", nil))
	second := first.DeepCopy()
	second.Object["data"] = map[string]any{"a": "2"}
	updated, err := e.maps().Update(t.Context(), second, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if updated.GetResourceVersion() == first.GetResourceVersion() || updated.GetUID() != first.GetUID() {
		t.Errorf("version %s, uid %s", updated.GetResourceVersion(), updated.GetUID())
	}
	again, err := e.maps().Update(t.Context(), updated, metav1.UpdateOptions{})
	if err != nil || again.GetResourceVersion() != updated.GetResourceVersion() {
		t.Errorf("an update that changes nothing: %v, %v", again, err)
	}
	if _, err := e.maps().Update(t.Context(), first, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a stale version: %v", err)
	}
	other := updated.DeepCopy()
	other.SetResourceVersion("")
	other.SetUID("11111111-2222-4333-8444-555555555555")
	if _, err := e.maps().Update(t.Context(), other, metav1.UpdateOptions{}); !apierrors.IsConflict(err) &&
		!apierrors.IsInvalid(err) {
		t.Errorf("another UID: %v", err)
	}
	if _, err := e.maps().Update(t.Context(), configMap("none", nil), metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a missing object: %v", err)
	}
}

func testDelete(t *testing.T, e *env) {
	one := create(t, e.maps(), configMap("one", nil))
	wrong := types.UID("11111111-2222-4333-8444-555555555555")
	if err := e.maps().Delete(t.Context(), "one",
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}}); !apierrors.IsConflict(err) {
		t.Errorf("a wrong UID: %v", err)
	}
	right := one.GetUID()
	if err := e.maps().Delete(t.Context(), "one",
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &right}}); err != nil {
		t.Error(err)
	}
	if err := e.maps().Delete(t.Context(), "one", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("gone already: %v", err)
	}
	held := configMap("held", nil)
	held.SetFinalizers([]string{"raven.test/hold"})
	create(t, e.maps(), held)
	if err := e.maps().Delete(t.Context(), "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	u, err := e.maps().Get(t.Context(), "held", metav1.GetOptions{})
	if err != nil || u.GetDeletionTimestamp() == nil {
		t.Fatalf("a finalizer holds the object with a deletion timestamp: %v, %v", u, err)
	}
	patch(t, e.maps(), "held", types.MergePatchType, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	if _, err := e.maps().Get(t.Context(), "held", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("without its finalizer: %v", err)
	}
	for _, name := range []string{"a", "b", "c"} {
		create(t, e.maps(), configMap(name, map[string]string{"many": name}))
	}
	if err := e.maps().DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "many in (a,b)"}); err != nil {
		t.Fatal(err)
	}
	list, err := e.maps().List(t.Context(), metav1.ListOptions{LabelSelector: "many"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"c"}, names(list)); diff != "" {
		t.Error(diff)
	}
}

func testNamespace(t *testing.T, e *env) {
	err := e.client.Resource(gvr("namespaces")).Delete(t.Context(), "kube-system", metav1.DeleteOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("deleting kube-system: %v", err)
	}
	held := configMap("held", nil)
	held.SetFinalizers([]string{"raven.test/hold"})
	create(t, e.maps(), held)
	namespaces := e.client.Resource(gvr("namespaces"))
	ns, err := namespaces.Get(t.Context(), e.namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if phase, _, _ := unstructured.NestedString(ns.Object, "status", "phase"); phase != "Active" ||
		ns.GetLabels()["kubernetes.io/metadata.name"] != e.namespace {
		t.Errorf("phase %q, labels %v", phase, ns.GetLabels())
	}
	w := open(t, namespaces,
		metav1.ListOptions{ResourceVersion: ns.GetResourceVersion(), FieldSelector: "metadata.name=" + e.namespace})
	if err := namespaces.Delete(t.Context(), e.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	u := expect(t, w, watch.Modified, e.namespace)
	if phase, _, _ := unstructured.NestedString(u.Object, "status", "phase"); phase != "Terminating" ||
		u.GetDeletionTimestamp() == nil {
		t.Errorf("phase %q, deleted %v", phase, u.GetDeletionTimestamp())
	}
	_, err = e.maps().Create(t.Context(), configMap("late", nil), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, "NamespaceTerminating") {
		t.Errorf("creating in a terminating namespace: %v", err)
	}
	patch(t, e.maps(), "held", types.MergePatchType, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	if !e.whole {
		return // a bare API server has no namespace controller
	}
	for {
		kind, _ := next(t, w)
		if kind == watch.Deleted {
			break
		}
	}
	deadline := time.Now().Add(patience)
	for {
		_, err := namespaces.Get(t.Context(), e.namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the namespace stays")
		}
	}
}

func testStatus(t *testing.T, e *env) {
	made := create(t, e.pods(), pod("p"))
	phase := func(u *unstructured.Unstructured) string {
		s, _, _ := unstructured.NestedString(u.Object, "status", "phase")
		return s
	}
	if phase(made) != "Pending" {
		t.Errorf("a new pod is %q", phase(made))
	}
	running := map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"x": "y"}}, "status": map[string]any{"phase": "Running"},
	}
	if u := patch(t, e.pods(), "p", types.MergePatchType, running); phase(u) != "Pending" || u.GetLabels()["x"] != "y" {
		t.Errorf("a patch of the pod reaches its status: %v", u.Object["status"])
	}
	u, err := e.pods().Patch(t.Context(), "p", types.MergePatchType,
		[]byte(`{"spec":{"nodeName":"n"},"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	if node, _, _ := unstructured.NestedString(u.Object, "spec", "nodeName"); phase(u) != "Running" || node != "" {
		t.Errorf("a patch of the status gives phase %q and node %q", phase(u), node)
	}
}

func testMetadata(t *testing.T, e *env) {
	create(t, e.maps(), configMap("one", map[string]string{"x": "y"}))
	client, err := metadata.NewForConfig(e.config)
	if err != nil {
		t.Fatal(err)
	}
	maps := client.Resource(gvr("configmaps")).Namespace(e.namespace)
	list, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: "x"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Labels["x"] != "y" {
		t.Fatalf("got %v, %v", list, err)
	}
	w, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, LabelSelector: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	patch(t, e.maps(), "one", types.MergePatchType, map[string]any{"data": map[string]any{"a": "3"}})
	select {
	case ev := <-w.ResultChan():
		m, ok := ev.Object.(*metav1.PartialObjectMetadata)
		if !ok || ev.Type != watch.Modified || m.Name != "one" {
			t.Errorf("got %s %T", ev.Type, ev.Object)
		}
	case <-time.After(patience):
		t.Error("no event came")
	}
}
