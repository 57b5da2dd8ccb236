// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

func names(list *unstructured.UnstructuredList) []string {
	var out []string
	for _, u := range list.Items {
		out = append(out, u.GetName())
	}
	return out
}

func testList(t *testing.T, e *env) {
	create(t, e.maps(), configMap("one", map[string]string{"tier": "web", "env": "test"}))
	create(t, e.maps(), configMap("two", map[string]string{"tier": "db"}))
	last := create(t, e.maps(), configMap("three", nil))
	create(t, e.pods(), pod("p"))
	for _, test := range []struct {
		name string
		o    metav1.ListOptions
		want []string
	}{
		{"equality", metav1.ListOptions{LabelSelector: "tier=web"}, []string{"one"}},
		{
			"inequality matches objects without the label",
			metav1.ListOptions{LabelSelector: "tier!=web", FieldSelector: "metadata.name!=kube-root-ca.crt"},
			[]string{"three", "two"},
		},
		{"sets", metav1.ListOptions{LabelSelector: "tier in (web,db)"}, []string{"one", "two"}},
		{"existence", metav1.ListOptions{LabelSelector: "tier,!env"}, []string{"two"}},
		{"name", metav1.ListOptions{FieldSelector: "metadata.name=two"}, []string{"two"}},
		{"version 0", metav1.ListOptions{LabelSelector: "tier=web", ResourceVersion: "0"}, []string{"one"}},
		{
			"at least a version",
			metav1.ListOptions{
				LabelSelector: "tier", ResourceVersion: last.GetResourceVersion(),
				ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			},
			[]string{"one", "two"},
		},
	} {
		list, err := e.maps().List(t.Context(), test.o)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if diff := cmp.Diff(test.want, names(list)); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
	if list, err := e.pods().List(t.Context(),
		metav1.ListOptions{FieldSelector: "spec.nodeName=,status.phase=Pending"}); err != nil || len(list.Items) != 1 {
		t.Errorf("pods without a node: %v, %v", list, err)
	}
	if _, err := e.pods().List(t.Context(),
		metav1.ListOptions{FieldSelector: "spec.nothing=1"}); !apierrors.IsBadRequest(err) {
		t.Errorf("an unknown field selector: %v", err)
	}
	if _, err := e.maps().Get(t.Context(), "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a missing object: %v", err)
	}
}

func testPaging(t *testing.T, e *env) {
	for i := range 5 {
		create(t, e.maps(), configMap(fmt.Sprint("m", i), map[string]string{"page": "yes"}))
	}
	o := metav1.ListOptions{LabelSelector: "page", Limit: 2}
	var got []string
	for page := 0; ; page++ {
		list, err := e.maps().List(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, names(list)...)
		if page == 0 {
			// a continued list shows the state of its first page
			create(t, e.maps(), configMap("m9", map[string]string{"page": "yes"}))
			if err := e.maps().Delete(t.Context(), "m4", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if o.Continue = list.GetContinue(); o.Continue == "" {
			break
		}
	}
	if diff := cmp.Diff([]string{"m0", "m1", "m2", "m3", "m4"}, got); diff != "" {
		t.Error(diff)
	}
}

// now is the version of the present state.
func now(t *testing.T, e *env) string {
	t.Helper()
	list, err := e.maps().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.GetResourceVersion()
}

func testWatch(t *testing.T, e *env) {
	w := open(t, e.maps(), metav1.ListOptions{ResourceVersion: now(t, e), FieldSelector: "metadata.name=x"})
	first := create(t, e.maps(), configMap("x", nil))
	create(t, e.maps(), configMap("other", nil))
	if u := expect(t, w, watch.Added, "x"); u.GetUID() != first.GetUID() ||
		u.GetResourceVersion() != first.GetResourceVersion() {
		t.Errorf("the event shows %s at %s", u.GetUID(), u.GetResourceVersion())
	}
	changed := patch(t, e.maps(), "x", types.MergePatchType, map[string]any{"data": map[string]any{"a": "2"}})
	if u := expect(t, w, watch.Modified, "x"); u.GetResourceVersion() != changed.GetResourceVersion() {
		t.Errorf("got version %s, want %s", u.GetResourceVersion(), changed.GetResourceVersion())
	}
	// changes nothing: no event
	patch(t, e.maps(), "x", types.MergePatchType, map[string]any{"data": map[string]any{"a": "2"}})
	if err := e.maps().Delete(t.Context(), "x", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	gone := expect(t, w, watch.Deleted, "x")
	if version(t, gone) <= version(t, changed) {
		t.Errorf("the deletion's version %s is not above %s", gone.GetResourceVersion(), changed.GetResourceVersion())
	}
	create(t, e.maps(), configMap("x", nil))
	if u := expect(t, w, watch.Added, "x"); u.GetUID() == first.GetUID() {
		t.Error("a successor has its predecessor's UID")
	}
}

func version(t *testing.T, u *unstructured.Unstructured) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(u.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func testWatchSelectors(t *testing.T, e *env) {
	w := open(t, e.maps(), metav1.ListOptions{ResourceVersion: now(t, e), LabelSelector: "on=yes"})
	create(t, e.maps(), configMap("x", nil))
	label := func(value any) *unstructured.Unstructured {
		return patch(t, e.maps(), "x", types.MergePatchType,
			map[string]any{"metadata": map[string]any{"labels": map[string]any{"on": value}}})
	}
	label("yes")
	expect(t, w, watch.Added, "x")
	left := label("no")
	if u := expect(t, w, watch.Deleted, "x"); u.GetResourceVersion() != left.GetResourceVersion() ||
		u.GetLabels()["on"] != "yes" {
		t.Errorf("what leaves is shown as %v at %s, want its last matching state at %s", u.GetLabels(),
			u.GetResourceVersion(), left.GetResourceVersion())
	}
	label("yes")
	expect(t, w, watch.Added, "x")
}

func testWatchResume(t *testing.T, e *env) {
	start := now(t, e)
	one := create(t, e.maps(), configMap("one", nil))
	create(t, e.maps(), configMap("two", nil))
	if err := e.maps().Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w := open(t, e.maps(), metav1.ListOptions{ResourceVersion: start, FieldSelector: "metadata.name!=kube-root-ca.crt"})
	expect(t, w, watch.Added, "one")
	expect(t, w, watch.Added, "two")
	expect(t, w, watch.Deleted, "one")
	w = open(t, e.maps(),
		metav1.ListOptions{ResourceVersion: one.GetResourceVersion(), FieldSelector: "metadata.name!=kube-root-ca.crt"})
	expect(t, w, watch.Added, "two")
}

func testWatchList(t *testing.T, e *env) {
	create(t, e.maps(), configMap("one", map[string]string{"x": "y"}))
	create(t, e.maps(), configMap("two", map[string]string{"x": "y"}))
	yes := true
	w := open(t, e.maps(), metav1.ListOptions{
		SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		LabelSelector: "x",
	})
	got := map[string]bool{}
	for range 2 {
		kind, u := next(t, w)
		got[string(kind)+" "+u.GetName()] = true
	}
	if diff := cmp.Diff(map[string]bool{"ADDED one": true, "ADDED two": true}, got); diff != "" {
		t.Error(diff)
	}
	kind, end := next(t, w)
	if kind != watch.Bookmark || end.GetResourceVersion() == "" {
		t.Fatalf("got %s %v, want the bookmark that ends the initial events", kind, end)
	}
	create(t, e.maps(), configMap("three", map[string]string{"x": "y"}))
	if u := expect(t, w, watch.Added, "three"); version(t, u) <= version(t, end) {
		t.Errorf("version %s came after the bookmark %s", u.GetResourceVersion(), end.GetResourceVersion())
	}
	_, err := e.maps().Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true})
	if !apierrors.IsInvalid(err) {
		t.Errorf("initial events without a version match: %v", err)
	}
}

func testWatchTimeout(t *testing.T, e *env) {
	second := int64(1)
	w := open(t, e.maps(), metav1.ListOptions{ResourceVersion: now(t, e), TimeoutSeconds: &second})
	timeout := time.After(patience)
	for {
		select {
		case ev, ok := <-w.ResultChan():
			if !ok {
				return
			}
			if ev.Type == watch.Error {
				t.Fatalf("got %v, want a clean end", ev)
			}
		case <-timeout:
			t.Fatal("the watch did not end")
		}
	}
}

func testWatchGone(t *testing.T, e *env) {
	if e.compact == nil {
		t.Skip(
			"RAVEN_CONTRACT_COMPACT names no command that compacts etcd and starts the API server anew: it still knows old " +
				"versions",
		)
	}
	old := now(t, e)
	create(t, e.maps(), configMap("later", nil))
	e.compact(t)
	deadline := time.Now().Add(patience)
	for {
		err := watchFrom(t, e, old)
		var status apierrors.APIStatus
		if errors.As(err, &status) {
			if status.Status().Code != 410 || !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				t.Errorf("got %v with code %d, want 410", err, status.Status().Code)
			}
			return
		}
		// A connection from before the API server was started anew breaks once.
		if err == nil || time.Now().After(deadline) {
			t.Fatalf("version %s is still answered, or nothing is (%v)", old, err)
		}
	}
}

// watchFrom returns the error of a watch from an old version, nil if it is answered.
func watchFrom(t *testing.T, e *env, old string) error {
	t.Helper()
	w, err := e.maps().Watch(t.Context(), metav1.ListOptions{ResourceVersion: old})
	if err != nil {
		return err
	}
	defer w.Stop()
	select {
	case ev, ok := <-w.ResultChan():
		if !ok {
			return errors.New("the watch ended without a word")
		}
		if ev.Type != watch.Error {
			return nil
		}
		return apierrors.FromObject(ev.Object)
	case <-time.After(patience):
		return errors.New("nothing came")
	}
}

// Bookmarks tell how far a watch has come that has nothing else to tell. A server sends one before it ends a watch,
// if not sooner.
func testWatchBookmarks(t *testing.T, e *env) {
	seconds := int64(5)
	w := open(t, e.maps(), metav1.ListOptions{
		ResourceVersion: now(t, e), LabelSelector: "on=yes", AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	last := create(t, e.maps(), configMap("other", nil)) // which this watch does not see
	mark := ""
	for ev := range w.ResultChan() {
		u, ok := ev.Object.(*unstructured.Unstructured)
		if ev.Type != watch.Bookmark || !ok {
			t.Fatalf("got %s of %v, want bookmarks only", ev.Type, ev.Object)
		}
		if u.GetKind() != "ConfigMap" || u.GetName() != "" || u.GetUID() != "" {
			t.Errorf("a bookmark holds more than a version: %v", u)
		}
		if mark = u.GetResourceVersion(); version(t, u) >= version(t, last) {
			break
		}
	}
	if mark == "" {
		t.Fatal("the watch ended without a bookmark")
	}
	if n, err := strconv.ParseUint(mark, 10, 64); err != nil || n < version(t, last) {
		t.Fatalf("the last bookmark is at version %s, and %s was there long before", mark, last.GetResourceVersion())
	}
	w = open(t, e.maps(), metav1.ListOptions{ResourceVersion: mark, LabelSelector: "on=yes"})
	create(t, e.maps(), configMap("mine", map[string]string{"on": "yes"}))
	expect(t, w, watch.Added, "mine")

	w = open(t, e.maps(), metav1.ListOptions{ResourceVersion: now(t, e), LabelSelector: "on=no", TimeoutSeconds: &seconds})
	for ev := range w.ResultChan() {
		t.Errorf("a watch that allows no bookmarks got %s of %v", ev.Type, ev.Object)
	}
}
