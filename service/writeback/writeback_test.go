// SPDX-License-Identifier: Apache-2.0

package writeback_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/watch"
	"github.com/kuryr/raven/service/writeback"
	"github.com/kuryr/raven/test/sim/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const manager = "raven-pod"

func pods() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

type fixture struct {
	api    *kube.API
	client dynamic.Interface
	writer *writeback.Writer
}

func setup(t *testing.T, events writeback.Events) *fixture {
	t.Helper()
	f := &fixture{api: kube.New(kube.Options{LooseNamespaces: true})}
	url, err := f.api.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.api.Close)
	clients, err := watch.NewClients(&rest.Config{Host: url, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(clients.Close)
	f.client = clients.Dynamic
	f.writer = writeback.New(f.client, events)
	t.Cleanup(func() { f.writer.Close(context.Background()) })
	return f
}

func (f *fixture) pods() dynamic.ResourceInterface {
	return f.client.Resource(pods()).Namespace("default")
}

func (f *fixture) pod(t *testing.T) writeback.Target {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "web", "namespace": "default", "labels": map[string]any{"app": "web"}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
	}}
	made, err := f.pods().Create(t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return writeback.Target{GVR: pods(), Kind: "Pod", Namespace: "default", Name: "web", UID: string(made.GetUID())}
}

func (f *fixture) get(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	o, err := f.pods().Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (f *fixture) remove(t *testing.T) {
	t.Helper()
	zero := int64(0)
	if err := f.pods().Delete(t.Context(), "web", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) apply(t *testing.T, target writeback.Target, annotations, labels map[string]string) {
	t.Helper()
	if err := f.writer.Apply(t.Context(), target, manager, annotations, labels); err != nil {
		t.Fatal(err)
	}
}

func TestApplyWritesAndPrunes(t *testing.T) {
	f := setup(t, writeback.Events{})
	target := f.pod(t)
	f.apply(t, target, map[string]string{"raven/port": "p", "raven/subnet": "s"}, map[string]string{"raven": "done"})
	patch := []byte(`{"metadata":{"annotations":{"theirs":"x"}}}`)
	if _, err := f.pods().Patch(t.Context(), "web", types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: "kubectl"}); err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		name                    string
		annotations, labels     map[string]string
		wantAnnotations, wantLs map[string]string
	}{
		{
			"another value, one key less",
			map[string]string{"raven/port": "q"},
			map[string]string{"raven": "done"},
			map[string]string{"raven/port": "q", "theirs": "x"},
			map[string]string{"app": "web", "raven": "done"},
		},
		{"nothing", nil, nil, map[string]string{"theirs": "x"}, map[string]string{"app": "web"}},
		{
			"a key of others is taken over",
			map[string]string{"theirs": "ours"},
			nil,
			map[string]string{"theirs": "ours"},
			map[string]string{"app": "web"},
		},
	}
	for _, step := range steps {
		f.apply(t, target, step.annotations, step.labels)
		got := f.get(t)
		if diff := cmp.Diff(step.wantAnnotations, got.GetAnnotations()); diff != "" {
			t.Errorf("%s: annotations (-want +got):\n%s", step.name, diff)
		}
		if diff := cmp.Diff(step.wantLs, got.GetLabels()); diff != "" {
			t.Errorf("%s: labels (-want +got):\n%s", step.name, diff)
		}
		if got.Object["spec"] == nil {
			t.Errorf("%s: the spec is gone", step.name)
		}
	}
	before := f.get(t).GetResourceVersion()
	f.apply(t, target, map[string]string{"theirs": "ours"}, nil)
	if now := f.get(t).GetResourceVersion(); now != before {
		t.Errorf("writing the same again made version %s of %s", now, before)
	}
}

func TestApplyToWhatIsGone(t *testing.T) {
	want := map[string]string{"raven/port": "p"}
	for name, prepare := range map[string]func(*testing.T, *fixture){
		"late write after deletion":  func(*testing.T, *fixture) {},
		"successor of the same name": func(t *testing.T, f *fixture) { t.Helper(); f.pod(t) },
		"late write without the right to create": func(_ *testing.T, f *fixture) {
			f.api.SetDeny(kube.Deny{Resources: []string{"pods"}, Verbs: []string{"create"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := setup(t, writeback.Events{})
			target := f.pod(t)
			f.remove(t)
			prepare(t, f)
			if err := f.writer.Apply(t.Context(), target, manager, want, nil); !errors.Is(err, writeback.ErrGone) {
				t.Errorf("error %v, want ErrGone", err)
			}
			list, err := f.pods().List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range list.Items {
				if o.GetAnnotations()["raven/port"] != "" || string(o.GetUID()) == target.UID {
					t.Errorf("the write made or hit %v", o.Object)
				}
			}
		})
	}
}

func TestApplyRefused(t *testing.T) {
	f := setup(t, writeback.Events{})
	target := f.pod(t)
	f.api.SetDeny(kube.Deny{Resources: []string{"pods"}, Verbs: []string{"patch"}})
	err := f.writer.Apply(t.Context(), target, manager, map[string]string{"a": "b"}, nil)
	if !errors.Is(err, writeback.ErrForbidden) || !strings.Contains(err.Error(), "the verb patch on pods") {
		t.Errorf("error %v, want ErrForbidden", err)
	}
	f.api.Close()
	err = f.writer.Apply(t.Context(), target, manager, map[string]string{"a": "b"}, nil)
	if err == nil || errors.Is(err, writeback.ErrForbidden) || errors.Is(err, writeback.ErrGone) {
		t.Errorf("error %v, want one that may pass", err)
	}
	target.UID = ""
	if err := f.writer.Apply(t.Context(), target, manager, nil, nil); err == nil {
		t.Error("written without a UID")
	}
}

func TestDiffers(t *testing.T) {
	t.Parallel()
	meta := watch.Meta{
		Annotations: map[string]string{"port": "p", "by-hand": "x"}, Labels: map[string]string{"l": "1"},
		Owned: map[string]watch.Owned{
			manager: {Annotations: []string{"port"}, Labels: []string{"l"}}, "raven-other": {Annotations: []string{"other"}},
		},
	}
	for name, test := range map[string]struct {
		annotations, labels map[string]string
		want                bool
	}{
		"same":                {map[string]string{"port": "p"}, map[string]string{"l": "1"}, false},
		"another value":       {map[string]string{"port": "q"}, map[string]string{"l": "1"}, true},
		"missing":             {map[string]string{"port": "p", "more": ""}, map[string]string{"l": "1"}, true},
		"ours is not wanted":  {nil, map[string]string{"l": "1"}, true},
		"our label is not":    {map[string]string{"port": "p"}, nil, true},
		"label, other value":  {map[string]string{"port": "p"}, map[string]string{"l": "2"}, true},
		"the same by another": {map[string]string{"port": "p", "by-hand": "x"}, map[string]string{"l": "1"}, false},
	} {
		if got := writeback.Differs(meta, manager, test.annotations, test.labels); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

func TestManager(t *testing.T) {
	t.Parallel()
	if got := writeback.Manager(drivers.Info{Name: "pod"}); got != "raven-pod" {
		t.Error(got)
	}
	if got := writeback.Manager(drivers.Info{Name: "lbaas", Role: "service-proxy"}); got != "raven-service-proxy" {
		t.Error(got)
	}
}

func (f *fixture) events(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	list, err := f.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}).Namespace("default").
		List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func TestEvents(t *testing.T) {
	f := setup(t, writeback.Events{Host: "here"})
	target := f.pod(t)
	for range 5 {
		f.writer.Event(target, drivers.Warning, "NoSubnet", "the namespace has no subnet")
	}
	f.writer.Event(target, drivers.Error, "Other", strings.Repeat("ä", 2000))
	f.writer.Close(t.Context())
	f.writer.Event(target, drivers.Warning, "Late", "after the end")
	got := map[string]string{}
	for _, e := range f.events(t) {
		reason, _, _ := unstructured.NestedString(e.Object, "reason")
		count, _, _ := unstructured.NestedInt64(e.Object, "count")
		uid, _, _ := unstructured.NestedString(e.Object, "involvedObject", "uid")
		kind, _, _ := unstructured.NestedString(e.Object, "type")
		message, _, _ := unstructured.NestedString(e.Object, "message")
		got[reason] = fmt.Sprintf("%s ×%d, right object: %t, %d bytes", kind, count, uid == target.UID, len(message))
	}
	want := map[string]string{
		"NoSubnet": "Warning ×5, right object: true, 27 bytes",
		"Other":    "Warning ×1, right object: true, 1024 bytes",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEventsDisabled(t *testing.T) {
	f := setup(t, writeback.Events{Disabled: true})
	f.writer.Event(f.pod(t), drivers.Warning, "Any", "thing")
	f.writer.Close(t.Context())
	if got := f.events(t); len(got) != 0 {
		t.Errorf("%d events", len(got))
	}
}

// TestEventsNeverBlock records into an API server that does not answer: were it waited for, there would be no end.
func TestEventsNeverBlock(t *testing.T) {
	release := make(chan struct{})
	f := setup(t, writeback.Events{Queue: 2})
	target := f.pod(t)
	f.api.OnRequest(func(kube.Request) { <-release })
	t.Cleanup(func() { close(release) })
	for n := range 20 {
		f.writer.Event(target, drivers.Warning, "Reason", fmt.Sprint(n))
	}
	if f.writer.Dropped() < 17 {
		t.Errorf("%d dropped", f.writer.Dropped())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	f.writer.Close(ctx)
	if ctx.Err() == nil {
		t.Error("Close has not waited for what is under way")
	}
}

// A status that is refused since the object is not any more what it was when it was read is not the object's fault.
func TestStatusOfWhatHasChanged(t *testing.T) {
	t.Parallel()
	f := setup(t, writeback.Events{})
	services := schema.GroupVersionResource{Version: "v1", Resource: "services"}
	made, err := f.api.Create(services, map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "web", "namespace": "default"},
		"spec": map[string]any{"type": "LoadBalancer", "ports": []any{map[string]any{"port": int64(80)}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	target := func(object map[string]any) writeback.Target {
		o := unstructured.Unstructured{Object: object}
		return writeback.Target{
			GVR: services, Kind: "Service", Namespace: "default", Name: "web", UID: string(o.GetUID()),
			Version: o.GetResourceVersion(),
		}
	}
	changed, err := f.api.Patch(services, "default", "web", types.MergePatchType, []byte(`{"spec":{"type":"ClusterIP"}}`))
	if err != nil {
		t.Fatal(err)
	}
	addresses := []string{"203.0.113.7"}
	if err := f.writer.ApplyIngress(t.Context(), target(made), manager, addresses); !errors.Is(err, writeback.ErrChanged) {
		t.Errorf("written for what was read before the change: %v", err)
	}
	err = f.writer.ApplyIngress(t.Context(), target(changed), manager, addresses)
	if err == nil || errors.Is(err, writeback.ErrChanged) {
		t.Errorf("written for what it is now: %v", err)
	}
}
