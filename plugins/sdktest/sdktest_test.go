// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// example gives every Pod a port with its namespace's label as description of sorts.
type example struct{ prefix string }

func (e *example) Info() drivers.Info {
	return drivers.Info{
		Name: "example", Kinds: []drivers.Kind{drivers.KindPort}, Annotations: []string{"kuryr.org/port"},
		Options: []drivers.Option{
			{Group: "example", Name: "prefix", Type: drivers.StringOption, Default: "p-", HasDefault: true},
		},
	}
}

func (e *example) Configure(_ context.Context, values drivers.Values) error {
	e.prefix = values.String("example", "prefix")
	if e.prefix == "" {
		return &drivers.OptionError{Group: "example", Name: "prefix", Message: "must not be empty"}
	}
	return nil
}

func (e *example) Watches() []drivers.Watch {
	return []drivers.Watch{
		{
			Name: "pods", GVR: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod", Source: true,
			Fields: []string{"spec.hostNetwork"},
		},
		{
			Name: "namespaces", GVR: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: "Namespace",
			Fields: []string{"metadata.labels"},
		},
	}
}

func (e *example) Translate(_ context.Context, object drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
	var pod corev1.Pod
	if err := object.Into(&pod); err != nil {
		return drivers.Set{}, err
	}
	if pod.Spec.NodeName != "" {
		return drivers.Set{}, errors.New("read a field that was not declared")
	}
	if pod.Spec.HostNetwork {
		return drivers.Set{}, nil
	}
	namespaces, ok := needs.Get(drivers.Need{Watch: "namespaces", Name: pod.Namespace})
	if !ok {
		return drivers.Set{}, nil
	}
	if len(namespaces) == 0 {
		return drivers.Set{}, errors.New("the namespace does not exist")
	}
	meta, err := namespaces[0].Meta()
	if err != nil {
		return drivers.Set{}, err
	}
	if meta.Labels["zone"] == "moving" {
		return drivers.Set{Undecided: []string{"port"}}, nil
	}
	network := drivers.Role{Kind: "Namespace", Name: pod.Namespace, Role: drivers.PodNetwork}
	return drivers.Set{
		Resources: []drivers.Resource{{Name: "port", Spec: drivers.Port{
			Name: new(e.prefix + pod.Name), DeviceID: new(meta.Labels["zone"]), NetworkID: drivers.FromRole(network),
			SecurityGroups: []drivers.Value{},
		}}},
		Outputs: []drivers.Output{{Kind: drivers.Annotation, Key: "kuryr.org/port", Document: &drivers.Ref{Name: "port"}}},
	}, nil
}

func TestGolden(t *testing.T) { Golden(t, &example{}, "testdata") }

func TestUnknownNeedsDoNotSettle(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"in.yaml":    "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: a}}",
		"needs.yaml": "namespaces: unknown",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	input, err := readCase(dir, (&example{}).Info())
	if err != nil {
		t.Fatal(err)
	}
	answer, err := input.answers((&example{}).Watches())
	if err != nil {
		t.Fatal(err)
	}
	object, err := sourceObject(input.objects[0], (&example{}).Watches())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Translate(t.Context(), &example{}, object, answer); !errors.Is(err, ErrUnsettled) {
		t.Errorf("got %v", err)
	}
}

func TestWatchesHideWhatTheyDoInACluster(t *testing.T) {
	pods := drivers.Watch{
		Name: "pods", GVR: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod", Source: true,
		LabelSelector: "app", FieldSelector: "spec.nodeName!=",
	}
	configs := drivers.Watch{
		Name: "configs", GVR: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: "ConfigMap",
		Namespace: "a",
	}
	object := func(kind, namespace, name string, labels map[string]any) map[string]any {
		return map[string]any{
			"apiVersion": "v1", "kind": kind, "spec": map[string]any{"nodeName": name},
			"metadata": map[string]any{"name": name, "namespace": namespace, "labels": labels},
		}
	}
	for why, test := range map[string]struct {
		object map[string]any
		taken  bool
	}{
		"shown":         {object("Pod", "a", "n", map[string]any{"app": "x"}), true},
		"without label": {object("Pod", "a", "n", nil), false},
		"without node":  {object("Pod", "a", "", map[string]any{"app": "x"}), false},
	} {
		if _, err := sourceObject(test.object, []drivers.Watch{configs, pods}); (err == nil) != test.taken {
			t.Errorf("%s: %v", why, err)
		}
	}
	given := testCase{
		needs: map[string]any{"configs": []any{object("ConfigMap", "a", "c", nil), object("ConfigMap", "b", "c", nil)}},
	}
	answer, err := given.answers([]drivers.Watch{configs, pods})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		need  drivers.Need
		found int
		known bool
	}{
		{drivers.Need{Watch: "configs"}, 1, true},
		{drivers.Need{Watch: "configs", Namespace: "a", Name: "c"}, 1, true},
		{drivers.Need{Watch: "configs", Name: "c"}, 0, true}, // asks for a cluster-scoped one
		{drivers.Need{Watch: "configs", Namespace: "b", Name: "c"}, 0, false},
	} {
		if found, known := answer(test.need); len(found) != test.found || known != test.known {
			t.Errorf("%s: %d, known %t", test.need, len(found), known)
		}
	}
	given.needs["configs"] = []any{object("Pod", "a", "n", nil)}
	if _, err := given.answers([]drivers.Watch{configs, pods}); err == nil {
		t.Error("an object of another kind answers needs")
	}
}
