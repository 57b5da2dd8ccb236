// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/service/watch"
	"github.com/kuryr/raven/test/sim/kube"
)

func TestResourceName(t *testing.T) {
	for want, gvr := range map[string]schema.GroupVersionResource{
		"":                            {},
		"services":                    {Version: "v1", Resource: "services"},
		"services.v2.":                {Version: "v2", Resource: "services"},
		"widgets.v1beta1.example.org": {Group: "example.org", Version: "v1beta1", Resource: "widgets"},
	} {
		if got := watch.ResourceName(gvr); got != want {
			t.Errorf("%v is written %q, want %q", gvr, got, want)
		}
	}
}

// TestUIDs reads all pages; what cannot be read is an error and never an empty list.
func TestUIDs(t *testing.T) {
	f := setup(t, kube.Options{}, nil)
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	const count = 1001
	want := map[string]bool{}
	for i := range count {
		made, err := f.clients.Dynamic.Resource(configMaps).Namespace("default").
			Create(t.Context(), object(configMaps, "ConfigMap", "default", fmt.Sprintf("m%d", i)), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want[string(made.GetUID())] = true
	}
	uids, err := f.clients.UIDs(t.Context(), watch.ResourceName(configMaps))
	if err != nil {
		t.Fatal(err)
	}
	for uid := range want {
		if !uids[uid] {
			t.Fatalf("of %d objects %d are there", count, len(uids))
		}
	}
	for _, name := range []string{watch.ResourceName(widgets()), "teleporters", "", "services.v9."} {
		if uids, err := f.clients.UIDs(t.Context(), name); err == nil {
			t.Errorf("%q is not served, and has %d objects", name, len(uids))
		}
	}
	f.define(t)
	f.widget(t, "default", "w", "a", "x")
	if uids, err := f.clients.UIDs(t.Context(), watch.ResourceName(widgets())); err != nil || len(uids) != 1 {
		t.Errorf("widgets: %v, %v", uids, err)
	}
	if _, err := (watch.Clients{}).UIDs(t.Context(), "services"); err == nil ||
		!strings.Contains(err.Error(), "metadata") {
		t.Errorf("without a client: %v", err)
	}
}
