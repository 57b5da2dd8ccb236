// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuryr/raven/service/daemon"
	"github.com/kuryr/raven/service/handover"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
)

// TestStatusSaysWhoWaitsToBeHandedOver: only where somebody does.
func TestStatusSaysWhoWaitsToBeHandedOver(t *testing.T) {
	for waiting, want := range map[int]bool{0: false, 3: true} {
		var out strings.Builder
		h := handover.Status{Waiting: waiting, Since: time.Now()}
		if err := printStatus(streams{out: &out, err: io.Discard}, daemon.Report{Handover: h}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "3 Services wait to be handed over"); got != want {
			t.Errorf("%d wait: %s", waiting, out.String())
		}
	}
}

// A daemon whose start waits shows what for, and no empty tables.
func TestStatusOfAStartThatWaits(t *testing.T) {
	var out strings.Builder
	report := daemon.Report{WaitsFor: "keystone: 503", Version: "1.2.3"}
	if err := printStatus(streams{out: &out, err: io.Discard}, report); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "raven 1.2.3, up for -\nthe start waits for keystone: 503\n" {
		t.Errorf("it prints %q", got)
	}
}

// An object that is left out is done, and the status says why it has nothing.
func TestStatusSaysWhyThereIsNothing(t *testing.T) {
	o := reconcile.ObjectStatus{State: state.Done, Messages: []string{"note: it is excluded"}}
	if got := reasonText(o); got != "note: it is excluded" {
		t.Errorf("an object without resources says %q", got)
	}
	o.Resources = []reconcile.ResourceStatus{{Kind: "port"}}
	if got := reasonText(o); got != "" {
		t.Errorf("an object with resources says %q", got)
	}
}

func TestTriesText(t *testing.T) {
	for failed, want := range map[int]string{0: "39s", 1: "39s, after 1 failed try", 2: "39s, after 2 failed tries"} {
		if got := triesText(39*time.Second+time.Millisecond, failed); got != want {
			t.Errorf("%d failed: %q", failed, got)
		}
	}
}

// A namespace that files refer to and do not have is named.
func TestMissingNamespaces(t *testing.T) {
	object := func(kind, namespace, name string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
		o.SetNamespace(namespace)
		o.SetName(name)
		return o
	}
	got := missingNamespaces([]*unstructured.Unstructured{
		object("Pod", "shop", "a"), object("Pod", "shop", "b"), object("Namespace", "", "there"), object("Pod", "there", "c"),
	})
	if len(got) != 1 || !strings.Contains(got[0], "no Namespace shop, which Pod shop/a is in") {
		t.Errorf("it says %q", got)
	}
}
