// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
)

// candidate contends for a Lease of the test's namespace.
func candidate(t *testing.T, e *env, name string) *resourcelock.LeaseLock {
	t.Helper()
	client, err := coordinationv1.NewForConfig(e.config)
	if err != nil {
		t.Fatal(err)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "raven"}, Client: client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: name},
	}
}

// holding is a Lease that a candidate has acquired and then renewed.
func holding(who string, transitions int, acquired time.Time, renewed time.Duration) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{
		HolderIdentity: who, LeaseDurationSeconds: 15, AcquireTime: metav1.NewTime(acquired),
		RenewTime:         metav1.NewTime(acquired.Add(renewed)),
		LeaderTransitions: transitions,
	}
}

// reads checks what a candidate reads.
func reads(t *testing.T, l *resourcelock.LeaseLock, want resourcelock.LeaderElectionRecord) {
	t.Helper()
	got, _, err := l.Get(t.Context())
	if err != nil {
		t.Fatalf("%s reads the Lease: %v", l.Identity(), err)
	}
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("%s reads the Lease: %s", l.Identity(), diff)
	}
}

// testLeases has two candidates contend for a Lease, as leader election does.
func testLeases(t *testing.T, e *env) {
	began := time.Now().Truncate(time.Second)
	a, b := candidate(t, e, "a"), candidate(t, e, "b")
	if _, _, err := a.Get(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("a Lease that is not there: %v", err)
	}
	if err := a.Create(t.Context(), holding("a", 0, began, 0)); err != nil {
		t.Fatal(err)
	}
	if err := b.Create(t.Context(), holding("b", 0, began, 0)); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second create: %v", err)
	}
	if err := a.Update(t.Context(), holding("a", 0, began, time.Second)); err != nil {
		t.Errorf("the holder renews it: %v", err)
	}
	reads(t, b, holding("a", 0, began, time.Second))
	if err := a.Update(t.Context(), holding("a", 0, began, 2*time.Second)); err != nil {
		t.Errorf("the holder renews it again: %v", err)
	}
	if err := b.Update(t.Context(), holding("b", 1, began, 0)); !apierrors.IsConflict(err) { // it has read it before that
		t.Errorf("a takeover of what has been renewed since: %v", err)
	}
	reads(t, b, holding("a", 0, began, 2*time.Second))
	if err := b.Update(t.Context(), holding("b", 1, began, 0)); err != nil {
		t.Errorf("a takeover: %v", err)
	}
	if err := a.Update(t.Context(), holding("a", 0, began, 3*time.Second)); !apierrors.IsConflict(err) {
		t.Errorf("a renewal after the takeover: %v", err)
	}
	reads(t, a, holding("b", 1, began, 0))
	free := holding("", 1, began, 0)
	free.LeaseDurationSeconds = 1
	if err := b.Update(t.Context(), free); err != nil {
		t.Errorf("the holder releases it: %v", err)
	}
	reads(t, a, free)
	if err := a.Update(t.Context(), holding("a", 2, began, 0)); err != nil {
		t.Errorf("taking what was released: %v", err)
	}
}

// testLeaseRefusals: what the API server refuses every candidate.
func testLeaseRefusals(t *testing.T, e *env) {
	began := time.Now().Truncate(time.Second)
	a, b := candidate(t, e, "a"), candidate(t, e, "b")
	if err := a.Create(t.Context(), holding("a", 0, began, 0)); err != nil {
		t.Fatal(err)
	}
	never := holding("a", 0, began, 0)
	never.LeaseDurationSeconds = 0
	if err := a.Update(t.Context(), never); !apierrors.IsInvalid(err) {
		t.Errorf("a duration of nothing: %v", err)
	}
	leases := a.Client.Leases(e.namespace)
	whatever, err := leases.Get(t.Context(), "raven", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	whatever.ResourceVersion = ""
	if _, err := leases.Update(t.Context(), whatever, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("an update that names no version: %v", err)
	}
	if err := leases.Delete(t.Context(), "raven", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := a.Update(t.Context(), holding("a", 0, began, time.Second)); !apierrors.IsConflict(err) &&
		!apierrors.IsNotFound(err) {
		t.Errorf("a renewal of what is deleted: %v", err)
	}
	if _, err := leases.Get(t.Context(), "raven", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the renewal has made a Lease: %v", err)
	}
	if err := b.Create(t.Context(), holding("b", 0, began, 0)); err != nil {
		t.Errorf("a new one: %v", err)
	}
}

// event is an Event as Raven writes them.
func event(kind, namespace, name string, uid types.UID, n int) *corev1.Event {
	now := metav1.NewTime(time.Now())
	in := namespace
	if in == "" {
		in = metav1.NamespaceDefault
	}
	return &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: in, Name: fmt.Sprintf("%s.%x", name, now.UnixNano()+int64(n))},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: namespace, Name: name, UID: uid},
		Reason:         "Waiting", Message: "the quota of ports is exhausted", Type: corev1.EventTypeWarning,
		Source: corev1.EventSource{Component: "raven", Host: "host"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
		ReportingController: "raven", ReportingInstance: "host",
	}
}

// write creates an Event.
func (e *env) write(t *testing.T, ev *corev1.Event) (*unstructured.Unstructured, error) {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(ev)
	if err != nil {
		t.Fatal(err)
	}
	events := e.client.Resource(gvr("events")).Namespace(ev.Namespace)
	made, err := events.Create(t.Context(), &unstructured.Unstructured{Object: fields}, metav1.CreateOptions{})
	if err == nil && ev.Namespace != e.namespace {
		t.Cleanup(func() {
			if err := events.Delete(context.Background(), ev.Name, metav1.DeleteOptions{}); err != nil &&
				!apierrors.IsNotFound(err) {
				t.Error(err)
			}
		})
	}
	return made, err
}

func testEvents(t *testing.T, e *env) {
	p := create(t, e.pods(), pod("p"))
	correlator := record.NewEventCorrelator(clock.RealClock{})
	first, err := correlator.EventCorrelate(event("Pod", e.namespace, "p", p.GetUID(), 0))
	if err != nil {
		t.Fatal(err)
	}
	made, err := e.write(t, first.Event)
	if err != nil {
		t.Fatalf("an Event on a pod: %v", err)
	}
	same(t, "an Event", made, "raven", "source", "component")
	same(t, "an Event", made, "raven", "reportingComponent")
	correlator.UpdateState(first.Event)
	second, err := correlator.EventCorrelate(event("Pod", e.namespace, "p", p.GetUID(), 1))
	if err != nil || second.Event.Count != 2 || second.Event.Name != first.Event.Name {
		t.Fatalf("the second Event is %+v (%v)", second, err)
	}
	events := e.client.Resource(gvr("events")).Namespace(e.namespace)
	counted, err := events.Patch(t.Context(), first.Event.Name, types.StrategicMergePatchType, second.Patch,
		metav1.PatchOptions{})
	if err != nil {
		t.Fatalf("counting it up with %s: %v", second.Patch, err)
	}
	same(t, "an Event that is counted up", counted, int64(2), "count")
	same(t, "an Event that is counted up", counted, at(made, "firstTimestamp"), "firstTimestamp")
	if _, err := events.Patch(t.Context(), "none", types.StrategicMergePatchType, second.Patch,
		metav1.PatchOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("counting up an Event that has expired: %v", err)
	}
	for _, selector := range []string{
		"involvedObject.name=p,involvedObject.kind=Pod", "involvedObject.uid=" + string(p.GetUID()),
		"reason=Waiting,type=Warning", "source=raven",
	} {
		list, err := events.List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != first.Event.Name {
			t.Errorf("Events by %s: %s (%v)", selector, encode(t, list), err)
		}
	}
	astray := event("Pod", e.namespace, "p", p.GetUID(), 2)
	astray.Namespace = metav1.NamespaceDefault
	if u, err := e.write(t, astray); !apierrors.IsInvalid(err) {
		t.Errorf("an Event in another namespace than its object's: %v, %v", err, u)
	}
	ns, err := e.client.Resource(gvr("namespaces")).Get(t.Context(), e.namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	whole := event("Namespace", "", e.namespace, ns.GetUID(), 3)
	if made, err := e.write(t, whole); err != nil {
		t.Errorf("an Event on a namespace: %v", err)
	} else if made.GetNamespace() != metav1.NamespaceDefault {
		t.Errorf("an Event on a namespace is in %q", made.GetNamespace())
	}
	inside := event("Namespace", "", e.namespace, ns.GetUID(), 4)
	inside.Namespace = e.namespace
	if u, err := e.write(t, inside); !apierrors.IsInvalid(err) {
		t.Errorf("an Event on a namespace in itself: %v, %v", err, u)
	}
	var raw map[string]any
	if err := json.Unmarshal(second.Patch, &raw); err != nil || raw["count"] == nil {
		t.Errorf("the patch that counts up is %s (%v)", second.Patch, err)
	}
}
