// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

func TestFollowTellsOfEveryChangeInOrder(t *testing.T) {
	api := New(Options{})
	defer api.Close()
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	object := func(name, value string) map[string]any {
		return map[string]any{
			"metadata": map[string]any{"name": name, "namespace": "default"}, "data": map[string]any{"v": value},
		}
	}
	must := func(_ map[string]any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(api.Create(gvr, object("before", "0")))
	told := make(chan string, 10)
	stop, err := api.Follow(gvr, func(kind apiwatch.EventType, object map[string]any) {
		told <- string(kind) + " " + text(object, "metadata", "name") + " " + text(object, "data", "v")
	})
	if err != nil {
		t.Fatal(err)
	}
	must(api.Create(gvr, object("after", "1")))
	must(api.Update(gvr, object("after", "2")))
	if err := api.Delete(gvr, "default", "after"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 4 {
		select {
		case line := <-told:
			got = append(got, line)
		case <-time.After(10 * time.Second):
			t.Fatal("no further event after ", got)
		}
	}
	stop()
	must(api.Create(gvr, object("unseen", "3")))
	want := []string{"ADDED before 0", "ADDED after 1", "MODIFIED after 2", "DELETED after 2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(told) > 0 {
		t.Error("told after stop: ", <-told)
	}
}

func TestFollowOfAnUnknownResource(t *testing.T) {
	api := New(Options{})
	defer api.Close()
	if _, err := api.Follow(schema.GroupVersionResource{Version: "v1", Resource: "nothings"}, nil); err == nil {
		t.Error("following a resource that is not served: no error")
	}
}
