// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

func data(u *unstructured.Unstructured) map[string]string {
	m, _, _ := unstructured.NestedStringMap(u.Object, "data")
	return m
}

func testPatches(t *testing.T, e *env) {
	create(t, e.maps(), configMap("m", nil))
	u := patch(t, e.maps(), "m", types.MergePatchType, map[string]any{"data": map[string]any{"a": nil, "b": "2"}})
	if diff := cmp.Diff(map[string]string{"b": "2"}, data(u)); diff != "" {
		t.Errorf("merge patch: %s", diff)
	}
	u = patch(t, e.maps(), "m", types.JSONPatchType, []any{
		map[string]any{"op": "test", "path": "/data/b", "value": "2"},
		map[string]any{"op": "add", "path": "/data/c", "value": "3"},
	})
	if diff := cmp.Diff(map[string]string{"b": "2", "c": "3"}, data(u)); diff != "" {
		t.Errorf("json patch: %s", diff)
	}
	_, err := e.maps().Patch(t.Context(), "m", types.JSONPatchType,
		[]byte(`[{"op":"test","path":"/data/b","value":"9"}]`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("a json patch whose test fails: %v", err)
	}
	stale := []byte(`{"metadata":{"resourceVersion":"1"},"data":{"z":"z"}}`)
	if _, err := e.maps().Patch(t.Context(), "m", types.MergePatchType, stale,
		metav1.PatchOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a patch of a stale version: %v", err)
	}
	other := []byte(`{"metadata":{"uid":"11111111-2222-4333-8444-555555555555"},"data":{"z":"z"}}`)
	if _, err := e.maps().Patch(t.Context(), "m", types.MergePatchType, other,
		metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a patch of another UID: %v", err)
	}
	if _, err := e.maps().Patch(t.Context(), "none", types.MergePatchType, []byte(`{}`),
		metav1.PatchOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a patch of nothing: %v", err)
	}
	create(t, e.pods(), pod("p"))
	u = patch(t, e.pods(), "p", types.StrategicMergePatchType, map[string]any{
		"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "new"}}},
	})
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "containers")
	if len(containers) != 1 {
		t.Fatalf("strategic merge patch: %v", containers)
	}
	if c, ok := containers[0].(map[string]any); !ok || c["image"] != "new" || c["name"] != "main" {
		t.Errorf("strategic merge patch: %v", containers)
	}
}

// apply applies annotations to an object under a manager.
func apply(
	t *testing.T, e *env, name, manager string, force bool, annotations map[string]string,
	change func(*unstructured.Unstructured),
) (*unstructured.Unstructured, error) {
	t.Helper()
	u := object("v1", "ConfigMap", name)
	u.SetAnnotations(annotations)
	if change != nil {
		change(u)
	}
	raw, err := json.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	return e.maps().Patch(t.Context(), name, types.ApplyPatchType, raw,
		metav1.PatchOptions{FieldManager: manager, Force: &force})
}

func testApply(t *testing.T, e *env) {
	made := configMap("m", nil)
	made.SetAnnotations(map[string]string{"own": "1"})
	create(t, e.maps(), made)
	for _, step := range []struct {
		name    string
		manager string
		apply   map[string]string
		want    map[string]string
	}{
		{"adds", "one", map[string]string{"a": "1", "b": "1"}, map[string]string{"own": "1", "a": "1", "b": "1"}},
		{
			"a second manager shares", "two",
			map[string]string{"b": "1", "c": "1"},
			map[string]string{"own": "1", "a": "1", "b": "1", "c": "1"},
		},
		{
			"prunes what is its alone", "one",
			map[string]string{"a": "2"},
			map[string]string{"own": "1", "a": "2", "b": "1", "c": "1"},
		},
		{"nothing prunes all", "one", nil, map[string]string{"own": "1", "b": "1", "c": "1"}},
		{"the last owner's goes", "two", nil, map[string]string{"own": "1"}},
	} {
		u, err := apply(t, e, "m", step.manager, true, step.apply, nil)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff(step.want, u.GetAnnotations()); diff != "" {
			t.Fatalf("%s: %s", step.name, diff)
		}
	}
	first, err := apply(t, e, "m", "one", true, map[string]string{"a": "1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := apply(t, e, "m", "one", true, map[string]string{"a": "1"}, nil)
	if err != nil || again.GetResourceVersion() != first.GetResourceVersion() {
		t.Errorf("applying the same twice writes twice: %v", err)
	}
	found := false
	for _, entry := range first.GetManagedFields() {
		found = found ||
			entry.Manager == "one" && entry.Operation == metav1.ManagedFieldsOperationApply &&
				entry.FieldsV1.GetRawString() == `{"f:metadata":{"f:annotations":{"f:a":{}}}}`
	}
	if !found {
		t.Errorf("managed fields: %v", first.GetManagedFields())
	}
	if _, err := e.maps().Patch(t.Context(), "m", types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"ConfigMap"}`),
		metav1.PatchOptions{}); err == nil {
		t.Error("an apply without a manager went through")
	}
}

func testApplyConflict(t *testing.T, e *env) {
	create(t, e.maps(), configMap("m", nil))
	if _, err := apply(t, e, "m", "one", false, map[string]string{"a": "1"}, nil); err != nil {
		t.Fatal(err)
	}
	_, err := apply(t, e, "m", "two", false, map[string]string{"a": "2"}, nil)
	if !apierrors.IsConflict(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	if u, err := apply(t, e, "m", "two", true, map[string]string{"a": "2"}, nil); err != nil ||
		u.GetAnnotations()["a"] != "2" {
		t.Fatalf("by force: %v", err)
	}
	// one has lost the field: giving it up changes nothing
	if u, err := apply(t, e, "m", "one", false, nil, nil); err != nil || u.GetAnnotations()["a"] != "2" {
		t.Errorf("after the loss: %v", err)
	}
	// an ordinary write takes the field too
	patch(t, e.maps(), "m", types.MergePatchType,
		map[string]any{"metadata": map[string]any{"annotations": map[string]any{"a": "3"}}})
	if _, err := apply(t, e, "m", "two", false, map[string]string{"a": "2"}, nil); !apierrors.IsConflict(err) {
		t.Errorf("against an update: %v", err)
	}
}

func testApplyUID(t *testing.T, e *env) {
	made := create(t, e.maps(), configMap("m", nil))
	uid := func(value types.UID) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) { u.SetUID(value) }
	}
	if _, err := apply(t, e, "m", "one", true, map[string]string{"a": "1"}, uid(made.GetUID())); err != nil {
		t.Errorf("the right UID: %v", err)
	}
	if _, err := apply(t, e, "m", "one", true, map[string]string{"a": "2"},
		uid("11111111-2222-4333-8444-555555555555")); !apierrors.IsInvalid(err) {
		t.Errorf("another UID: %v", err)
	}
	if err := e.maps().Delete(t.Context(), "m", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := apply(t, e, "m", "one", true, map[string]string{"a": "3"},
		uid(made.GetUID())); !apierrors.IsConflict(err) {
		t.Errorf("a missing object: %v", err)
	}
	if _, err := e.maps().Get(t.Context(), "m", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the apply has made an object: %v", err)
	}
}

func testApplyWide(t *testing.T, e *env) {
	set := func(values map[string]any) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) { u.Object["data"] = values }
	}
	u, err := apply(t, e, "m", "one", false, nil, set(map[string]any{"a": "1", "b": "1"}))
	if err != nil || u.GetUID() == "" {
		t.Fatalf("apply creates: %v", err)
	}
	if u, err = apply(t, e, "m", "one", false, map[string]string{"x": "y"}, set(map[string]any{"a": "2"})); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a": "2"}, data(u)); diff != "" {
		t.Error(diff)
	}
	if _, err := apply(t, e, "m", "two", false, nil, set(map[string]any{"a": "3"})); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	create(t, e.pods(), pod("p"))
	body := []byte(
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"main","image":"new"}]}}`,
	)
	force := true
	u, err = e.pods().Patch(t.Context(), "p", types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: "one", Force: &force})
	if err != nil {
		t.Fatal(err)
	}
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "containers")
	if c, ok := containers[0].(map[string]any); !ok || len(containers) != 1 || c["image"] != "new" {
		t.Errorf("a list keyed by name: %v", containers)
	}
}
