// SPDX-License-Identifier: Apache-2.0

package writeback_test

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/writeback"
)

// Who may not write writes nothing, neither annotations nor Events, and what is under way when the permission ends is
// broken off.
func TestTheFenceLetsNoWritePass(t *testing.T) {
	f := setup(t, writeback.Events{})
	target := f.pod(t)
	refused := errors.New("does not lead")
	open := false
	term, end := context.WithCancel(t.Context())
	fenced := writeback.NewFenced(f.writer, func(context.Context) (context.Context, context.CancelFunc, error) {
		if !open {
			return nil, nil, refused
		}
		ctx, cancel := context.WithCancel(term)
		return ctx, cancel, nil
	})
	write := func() error {
		fenced.Event(target, drivers.Warning, "Refused", "refused")
		return errors.Join(
			fenced.Apply(t.Context(), target, manager, map[string]string{"kuryr.org/x": "y"}, nil),
			fenced.ApplyIngress(t.Context(), target, manager, []string{"192.0.2.1"}))
	}
	before := f.get(t).GetResourceVersion()
	if err := write(); !errors.Is(err, refused) {
		t.Errorf("behind the fence: %v", err)
	}
	if now := f.get(t).GetResourceVersion(); now != before {
		t.Error("the object was written to")
	}
	open = true
	if err := fenced.Apply(t.Context(), target, manager, map[string]string{"kuryr.org/x": "y"}, nil); err != nil {
		t.Errorf("let pass: %v", err)
	}
	if got := f.get(t).GetAnnotations()["kuryr.org/x"]; got != "y" {
		t.Errorf("the annotation is %q", got)
	}
	end()
	if err := fenced.Apply(t.Context(), target, manager, map[string]string{"kuryr.org/x": "z"}, nil); !errors.Is(err,
		context.Canceled) {
		t.Errorf("after the end of the term: %v", err)
	}
	fenced.Event(target, drivers.Warning, "Allowed", "allowed")
	events := f.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}).Namespace("default")
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		list, err := events.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) == 1 && list.Items[0].Object["reason"] == "Allowed" {
			break
		}
		if len(list.Items) > 1 || time.Now().After(deadline) {
			t.Fatalf("there are %d Events: %v", len(list.Items), list.Items)
		}
	}
}
