// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// decoded is an object as a reader of manifests has it.
func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestMatches(t *testing.T) {
	deployments := Watch{
		Name: "d", GVR: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		Kind: "Deployment",
	}
	pods := Watch{Name: "p", GVR: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod"}
	const pod = `{"apiVersion": "v1", "kind": "Pod",
		"metadata": {"name": "web", "namespace": "a", "labels": {"app": "web", "tier": "x"},
		"annotations": {"example.org/key": "v"}},
		"spec": {"nodeName": "n1", "hostNetwork": true, "priority": 1000000, "containers": []}, "status": {"phase": "Running"}}`
	with := func(change func(*Watch)) Watch {
		w := pods
		change(&w)
		return w
	}
	labelled := func(selector string) Watch { return with(func(w *Watch) { w.LabelSelector = selector }) }
	fielded := func(selector string) Watch { return with(func(w *Watch) { w.FieldSelector = selector }) }
	for name, test := range map[string]struct {
		watch   Watch
		object  string
		want    bool
		refused bool
	}{
		"core group":             {watch: pods, object: pod, want: true},
		"another kind":           {watch: with(func(w *Watch) { w.Kind = "Node" }), object: pod},
		"another version":        {watch: with(func(w *Watch) { w.GVR.Version = "v2" }), object: pod},
		"another group":          {watch: with(func(w *Watch) { w.GVR.Group = "apps" }), object: pod},
		"named group":            {watch: deployments, object: `{"apiVersion": "apps/v1", "kind": "Deployment"}`, want: true},
		"old version of a group": {watch: deployments, object: `{"apiVersion": "apps/v1beta1", "kind": "Deployment"}`},
		"no metadata":            {watch: pods, object: `{"apiVersion": "v1", "kind": "Pod"}`, want: true},
		"no apiVersion":          {watch: pods, object: `{"kind": "Pod"}`},

		"namespace":         {watch: with(func(w *Watch) { w.Namespace = "a" }), object: pod, want: true},
		"another namespace": {watch: with(func(w *Watch) { w.Namespace = "b" }), object: pod},

		"labels":              {watch: labelled("app=web,tier in (x, y)"), object: pod, want: true},
		"another label":       {watch: labelled("app!=web"), object: pod},
		"label exists":        {watch: labelled("app"), object: pod, want: true},
		"label does not":      {watch: labelled("!app"), object: pod},
		"no labels at all":    {watch: labelled("app"), object: `{"apiVersion": "v1", "kind": "Pod"}`},
		"labels cannot be":    {watch: labelled("a in"), object: pod, refused: true},
		"refused for nothing": {watch: labelled("a in"), object: `{"kind": "Other"}`, refused: true},

		"name":                 {watch: fielded("metadata.name=web"), object: pod, want: true},
		"another name":         {watch: fielded("metadata.name=db"), object: pod},
		"namespace by field":   {watch: fielded("metadata.namespace==a"), object: pod, want: true},
		"node":                 {watch: fielded("spec.nodeName=n1,status.phase=Running"), object: pod, want: true},
		"one of two":           {watch: fielded("spec.nodeName=n1,status.phase=Failed"), object: pod},
		"not a phase":          {watch: fielded("status.phase!=Running"), object: pod},
		"not another phase":    {watch: fielded("status.phase!=Failed"), object: pod, want: true},
		"unset is empty":       {watch: fielded("spec.schedulerName="), object: pod, want: true},
		"set is not empty":     {watch: fielded("spec.nodeName="), object: pod},
		"unset is not a value": {watch: fielded("status.reason.deep=x"), object: pod},
		"a boolean":            {watch: fielded("spec.hostNetwork=true"), object: pod, want: true},
		"a number":             {watch: fielded("spec.priority=1000000"), object: pod, want: true},
		"a key with dots":      {watch: fielded("metadata.annotations['example.org/key']=v"), object: pod, want: true},
		"a structure":          {watch: fielded("spec.containers=x"), object: pod, refused: true},
		"below text":           {watch: fielded("spec.nodeName.x="), object: pod, want: true},
		"fields cannot be":     {watch: fielded("spec.nodeName"), object: pod, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Matches(test.watch, decoded(t, test.object))
			if got != test.want || (err != nil) != test.refused {
				t.Errorf("got %t, %v; want %t, refused %t", got, err, test.want, test.refused)
			}
		})
	}
}

func TestAnswer(t *testing.T) {
	watches := []Watch{
		{
			Name: "services", GVR: schema.GroupVersionResource{Version: "v1", Resource: "services"}, Kind: "Service",
			Fields: []string{"spec.type"},
		},
		{Name: "nodes", GVR: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, Kind: "Node"},
		{
			Name: "mine", GVR: schema.GroupVersionResource{Version: "v1", Resource: "services"}, Kind: "Service", Namespace: "a",
			LabelSelector: "app",
		},
		{
			Name: "bad", GVR: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, Kind: "Node", LabelSelector: "a in",
		},
	}
	objects := []map[string]any{
		decoded(t,
			`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "b"}, "spec": {"type": "T", "x": 1}}`),
		decoded(t, `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "a-b"}}`),
		decoded(t,
			`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "a", "labels": {"app": "w"}}}`),
		decoded(t, `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "db", "namespace": "a"}}`),
		decoded(t, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "web"}}`),
	}
	for name, test := range map[string]struct {
		need    Need
		want    []string
		refused bool
	}{
		"by name": {
			need: Need{Watch: "services", Namespace: "b", Name: "web"}, want: []string{"b/web"},
		},
		"a name without a namespace":     {need: Need{Watch: "services", Name: "web"}},
		"a name of a cluster-scoped one": {need: Need{Watch: "nodes", Name: "web"}, want: []string{"web"}},
		"a cluster-scoped one elsewhere": {need: Need{Watch: "nodes", Namespace: "a", Name: "web"}},
		"absent":                         {need: Need{Watch: "nodes", Name: "other"}},
		"a name makes the selector unread": {
			need: Need{Watch: "nodes", Name: "web", Selector: "a in"}, want: []string{"web"},
		},
		"all, in order": {
			need: Need{Watch: "services"}, want: []string{"a/db", "a/web", "a-b/web", "b/web"},
		},
		"of a namespace":                 {need: Need{Watch: "services", Namespace: "a"}, want: []string{"a/db", "a/web"}},
		"by labels":                      {need: Need{Watch: "services", Selector: "app=w"}, want: []string{"a/web"}},
		"what the watch does not show":   {need: Need{Watch: "mine"}, want: []string{"a/web"}},
		"hidden by the watch":            {need: Need{Watch: "mine", Namespace: "a", Name: "db"}},
		"outside the watch's namespace":  {need: Need{Watch: "mine", Namespace: "b", Name: "web"}, refused: true},
		"a watch that was not declared":  {need: Need{Watch: "pods", Name: "web"}, refused: true},
		"a selector that cannot be read": {need: Need{Watch: "nodes", Selector: "a in"}, refused: true},
		"a watch that cannot be":         {need: Need{Watch: "bad", Name: "web"}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := Answer(watches, test.need, objects)
			if (err != nil) != test.refused {
				t.Fatalf("got %v, want refused %t", err, test.refused)
			}
			var got []string
			for _, object := range found {
				meta, err := object.Meta()
				if err != nil || object.Watch != test.need.Watch {
					t.Errorf("object of watch %q: %v", object.Watch, err)
				}
				got = append(got, join(meta.Namespace, meta.Name))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	found, err := Answer(watches, Need{Watch: "services", Namespace: "b", Name: "web"}, objects)
	if err != nil {
		t.Fatal(err)
	}
	const trimmed = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"b"},"spec":{"type":"T"}}`
	if diff := cmp.Diff(trimmed, string(found[0].Raw)); diff != "" {
		t.Errorf("not trimmed to the watch:\n%s", diff)
	}
}
