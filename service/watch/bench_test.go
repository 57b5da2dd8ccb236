// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
)

// bigPod is a pod as a cluster has it: about 5 KB of JSON.
func bigPod(tb testing.TB, n int) *unstructured.Unstructured {
	tb.Helper()
	env := make([]any, 20)
	for i := range env {
		env[i] = map[string]any{"name": fmt.Sprintf("VARIABLE_%d", i), "value": fmt.Sprintf("the value of variable %d", i)}
	}
	container := map[string]any{
		"name": "app", "image": "registry.example.org/team/app:1.2.3", "env": env,
		"resources":    map[string]any{"limits": map[string]any{"cpu": "1", "memory": "1Gi"}},
		"volumeMounts": []any{map[string]any{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}},
	}
	managed := map[string]any{}
	for i := range 40 {
		managed[fmt.Sprintf("f:field%d", i)] = map[string]any{"f:a": map[string]any{}, "f:b": map[string]any{}}
	}
	object := map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"name": fmt.Sprintf("app-7d4b9c6f5-%05d", n), "namespace": fmt.Sprintf("team-%d", n%100),
			"uid": fmt.Sprintf("8c4c1a9e-0000-4000-8000-%012d", n), "resourceVersion": fmt.Sprint(100000 + n),
			"labels":        map[string]any{"app": "app", "pod-template-hash": "7d4b9c6f5", "tier": "front"},
			"annotations":   map[string]any{"note": "a pod"},
			"managedFields": []any{map[string]any{"manager": "kubelet", "operation": "Update", "fieldsV1": managed}},
		},
		"spec": map[string]any{
			"nodeName": fmt.Sprintf("node-%d", n%50), "containers": []any{container}, "serviceAccountName": "default",
			"volumes": []any{map[string]any{"name": "token"}},
		},
		"status": map[string]any{"phase": "Running", "podIP": "10.0.0.1", "conditions": []any{
			map[string]any{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
		}},
	}
	raw, err := json.Marshal(object)
	if err != nil {
		tb.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(raw); err != nil {
		tb.Fatal(err)
	}
	return o
}

// filled returns a store with so many pods and one driver that reads what the pod driver reads.
func filled(tb testing.TB, pods int) (store, *int) {
	tb.Helper()
	m := New(Config{})
	woken := new(int)
	_, err := m.Subscribe("pod", []drivers.Watch{{
		Name: "pods", Kind: "Pod", Source: true,
		GVR:    schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		Fields: []string{"metadata.labels", "spec.nodeName", "spec.hostNetwork", "status.phase"},
	}}, []string{"raven/port"}, func(Key, Reason) { *woken++ })
	if err != nil {
		tb.Fatal(err)
	}
	var s store
	for _, i := range m.informers {
		s = store{i, &run{spec: i.views[0].projection(), cancel: func() {}}}
	}
	objects := make([]any, pods)
	for n := range objects {
		e, err := newEntry(bigPod(tb, n), s.run.spec)
		if err != nil {
			tb.Fatal(err)
		}
		objects[n] = e
	}
	if err := s.Replace(objects, "1"); err != nil {
		tb.Fatal(err)
	}
	return s, woken
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// BenchmarkMemory reports what 10,000 pods cost in memory.
func BenchmarkMemory(b *testing.B) {
	for range b.N {
		before := heap()
		s, _ := filled(b, 10_000)
		b.ReportMetric(float64(heap()-before)/(1<<20), "MiB/10kpods")
		runtime.KeepAlive(s)
	}
}

// BenchmarkEvent measures one MODIFIED event from decoded object to wake, of three kinds.
func BenchmarkEvent(b *testing.B) {
	for name, path := range map[string][]string{
		"within fields": {"spec", "nodeName"}, "outside": {"status", "podIP"},
	} {
		b.Run(name, func(b *testing.B) {
			s, _ := filled(b, 1000)
			objects := make([]*unstructured.Unstructured, 1000)
			for n := range objects {
				objects[n] = bigPod(b, n)
			}
			b.ResetTimer()
			for n := range b.N {
				o := objects[n%1000]
				_ = unstructured.SetNestedField(o.Object, fmt.Sprint("x", n), path...)
				if err := s.Update(o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("decoding by the client", func(b *testing.B) {
		raw, err := bigPod(b, 1).MarshalJSON()
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(raw)))
		for range b.N {
			var o unstructured.Unstructured
			if err := o.UnmarshalJSON(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkGet measures reading one pod from the cache.
func BenchmarkGet(b *testing.B) {
	s, _ := filled(b, 1000)
	view := s.informer.views[0]
	key := Key{"pods", "team-7", "app-7d4b9c6f5-00007"}
	for range b.N {
		if _, _, state := view.subscription.Get(key); state != Present {
			b.Fatal(state)
		}
	}
}
