// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
)

func pod(changes ...func(map[string]any)) *unstructured.Unstructured {
	object := map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"name": "web", "namespace": "default", "uid": "u1", "resourceVersion": "7", "generation": int64(2),
			"labels":      map[string]any{"app": "web", "tier": "front"},
			"annotations": map[string]any{"raven/port": "p1", "other": "x"},
			"managedFields": []any{
				map[string]any{"manager": "raven-pod", "operation": "Apply", "fieldsV1": map[string]any{
					"f:metadata": map[string]any{"f:annotations": map[string]any{"f:raven/port": map[string]any{}}},
				}},
				map[string]any{"manager": "kubectl", "operation": "Apply", "fieldsV1": map[string]any{
					"f:metadata": map[string]any{"f:annotations": map[string]any{"f:other": map[string]any{}}},
				}},
			},
		},
		"spec":   map[string]any{"nodeName": "n1", "priority": int64(9007199254740993)},
		"status": map[string]any{"phase": "Running"},
	}
	for _, change := range changes {
		change(object)
	}
	return &unstructured.Unstructured{Object: object}
}

func set(value any, path ...string) func(map[string]any) {
	return func(object map[string]any) {
		for _, step := range path[:len(path)-1] {
			object = object[step].(map[string]any)
		}
		object[path[len(path)-1]] = value
	}
}

func mustEntry(t *testing.T, object any, spec *projection) *entry {
	t.Helper()
	e, err := newEntry(object, spec)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEntryHoldsFieldsOnly(t *testing.T) {
	t.Parallel()
	spec := &projection{fields: normalizedFields([]string{"spec.nodeName", "spec.priority"}), keep: []string{"raven/port"}}
	e := mustEntry(t, pod(), spec)
	want := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"default","uid":"u1"},` +
		`"spec":{"nodeName":"n1","priority":9007199254740993}}`
	if diff := cmp.Diff(want, string(e.raw)); diff != "" {
		t.Errorf("raw (-want +got):\n%s", diff)
	}
	wantNode := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"default","uid":"u1"},"spec":{"priority":9007199254740993}}`
	if diff := cmp.Diff(wantNode, string(e.rawFor([]string{"spec.priority"}))); diff != "" {
		t.Errorf("raw for one field, a number not rounded (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"raven/port": "p1"},
		e.annotations.pick([]string{"raven/port", "other"})); diff != "" {
		t.Errorf("kept annotations (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]Owned{"raven-pod": {Annotations: []string{"raven/port"}}}, e.owners()); diff != "" {
		t.Errorf("owned (-want +got):\n%s", diff)
	}
}

func TestWholeObjectLeavesOutManagedFields(t *testing.T) {
	t.Parallel()
	e := mustEntry(t, pod(), &projection{keep: []string{}})
	var back unstructured.Unstructured
	if err := back.UnmarshalJSON(e.raw); err != nil {
		t.Fatal(err)
	}
	want := pod()
	unstructured.RemoveNestedField(want.Object, "metadata", "managedFields")
	if diff := cmp.Diff(want.Object, back.Object); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestViewChange(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(map[string]any)
		want   Reason
		why    string
	}{
		"field":       {set("n2", "spec", "nodeName"), Updated, "the driver reads it"},
		"status":      {set("Failed", "status", "phase"), "", "the driver does not read it, though another does"},
		"kept":        {set("p2", "metadata", "annotations", "raven/port"), Updated, "an output was changed by another"},
		"other":       {set("y", "metadata", "annotations", "other"), "", "no watch asked for it"},
		"label":       {set("back", "metadata", "labels", "tier"), "", "labels are kept for selectors only"},
		"version":     {set("8", "metadata", "resourceVersion"), "", "every write changes it"},
		"deletion":    {set("2026-01-01T00:00:00Z", "metadata", "deletionTimestamp"), Updated, "always there"},
		"another UID": {set("u2", "metadata", "uid"), Recreated, "another object of the same name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := &view{
				subscription: &Subscription{}, started: true, fields: []string{"spec.nodeName"}, keep: []string{"raven/port"},
			}
			v.watch.Source = true
			spec := v.projection().union(&projection{fields: []string{"status.phase"}, keep: []string{"other"}})
			wakeups := v.change(mustEntry(t, pod(), spec), mustEntry(t, pod(test.change), spec), nil)
			var got Reason
			if len(wakeups) > 0 {
				got = wakeups[0].reason
			}
			if got != test.want {
				t.Errorf("woken with %q, want %q: %s", got, test.want, test.why)
			}
		})
	}
}

func TestProjections(t *testing.T) {
	t.Parallel()
	p := func(fields ...string) *projection {
		return &projection{fields: normalizedFields(fields), keep: []string{}}
	}
	for name, test := range map[string]struct {
		have, want *projection
		covers     bool
		union      []string
	}{
		"same":           {p("spec.a"), p("spec.a"), true, []string{"spec.a"}},
		"above":          {p("spec"), p("spec.a"), true, []string{"spec"}},
		"below":          {p("spec.a"), p("spec"), false, []string{"spec"}},
		"alike but more": {p("spec.a"), p("spec.ab"), false, []string{"spec.a", "spec.ab"}},
		"key in brackets": {
			p("metadata.annotations"), p("metadata.annotations['a.b/c']"), true, []string{"metadata.annotations"},
		},
		"whole":       {p(), p("spec.a"), true, nil},
		"needs whole": {p("spec.a"), p(), false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := test.have.covers(test.want); got != test.covers {
				t.Errorf("covers: %t, want %t", got, test.covers)
			}
			if diff := cmp.Diff(test.union, test.have.union(test.want).fields); diff != "" {
				t.Errorf("union (-want +got):\n%s", diff)
			}
		})
	}
	if p("metadata.labels", "kind").metadataOnly() != true || p("metadata", "spec").metadataOnly() || p().metadataOnly() {
		t.Error("metadataOnly")
	}
	if p("a").covers(&projection{fields: []string{"a"}, keep: []string{"k"}}) {
		t.Error("a missing kept key is covered")
	}
}

// TestVanish takes a resource away that was served, from a driver that allows that and from one that does not.
func TestVanish(t *testing.T) {
	t.Parallel()
	m := New(Config{})
	var woken []string
	subscribe := func(driver string, optional bool) *Subscription {
		s, err := m.Subscribe(driver, []drivers.Watch{{
			Name: "pods", GVR: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Source: true, Optional: optional,
		}}, nil, func(key Key, reason Reason) { woken = append(woken, driver+" "+key.Name+" "+string(reason)) })
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	may, must := subscribe("may", true), subscribe("must", false)
	i := may.order[0].informer
	r := &run{spec: may.order[0].projection(), cancel: func() {}}
	fill := func() {
		if err := (store{i, r}).Replace([]any{pod()}, "1"); err != nil {
			t.Fatal(err)
		}
	}
	steps := []struct {
		name     string
		do       func()
		woken    []string
		may      State
		complete bool
	}{
		{"served", fill, []string{"may web added", "must web added"}, Present, true},
		{"not served", i.vanish, []string{"may web deleted"}, Absent, true},
		{"served again", fill, []string{"may web added"}, Present, true},
	}
	for _, step := range steps {
		woken = nil
		step.do()
		if diff := cmp.Diff(step.woken, woken); diff != "" {
			t.Errorf("%s: woken (-want +got):\n%s", step.name, diff)
		}
		key := Key{"pods", "default", "web"}
		if _, _, state := may.Get(key); state != step.may {
			t.Errorf("%s: %v to who allows that, want %v", step.name, state, step.may)
		}
		if _, complete := may.Keys("pods"); complete != step.complete {
			t.Errorf("%s: complete: %t", step.name, complete)
		}
		if _, _, state := must.Get(key); state != Present {
			t.Errorf("%s: %v to who does not", step.name, state)
		}
		if _, complete := must.Keys("pods"); complete != (step.name != "not served") {
			t.Errorf("%s: complete to who does not allow that: %t", step.name, complete)
		}
	}
}

// A reflector that backs off does not hold up the end.
func TestEndingClock(t *testing.T) {
	for _, cancelled := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := endingClock{clock.RealClock{}, func(f func()) func() bool { return context.AfterFunc(ctx, f) }}
			began := time.Now()
			fired := c.After(time.Hour)
			want := time.Hour
			if cancelled {
				want = time.Minute
				time.AfterFunc(want, cancel)
			}
			<-fired
			if took := time.Since(began); took != want {
				t.Errorf("cancelled %t: it fired after %s, want %s", cancelled, took, want)
			}
			time.Sleep(time.Hour) // the timer's end
		})
	}
}
