// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// difference is one between the simulation and a real Kubernetes that Raven does not rely on. Each is checked: one
// that is no more fails.
type difference struct {
	what            string
	simulated, real string // what observe returns
	observe         func(*testing.T, *env) string
}

// taken is what became of a write.
func taken(_ *unstructured.Unstructured, err error) string {
	if err != nil {
		return "refused with " + string(apierrors.ReasonForError(err))
	}
	return "taken"
}

// differences are all that are known: the simulation does not validate by the schemas of kinds, and has none of the
// controllers.
func differences() []difference {
	return []difference{
		{"a field of a wrong type", "taken", "refused with BadRequest", func(t *testing.T, e *env) string {
			t.Helper()
			u := configMap("number", nil)
			u.Object["data"] = map[string]any{"a": int64(1)}
			return taken(e.maps().Create(t.Context(), u, metav1.CreateOptions{}))
		}},
		{"an unknown field", "kept", "dropped", func(t *testing.T, e *env) string {
			t.Helper()
			u := configMap("bogus", nil)
			u.Object["bogus"] = "x"
			if create(t, e.maps(), u).Object["bogus"] == "x" {
				return "kept"
			}
			return "dropped"
		}},
		{"a pod without containers", "taken", "refused with Invalid", func(t *testing.T, e *env) string {
			t.Helper()
			u := pod("empty")
			u.Object["spec"] = map[string]any{"automountServiceAccountToken": false}
			return taken(e.pods().Create(t.Context(), u, metav1.CreateOptions{}))
		}},
		{"hostNetwork of a pod that is there", "changed", "refused with Invalid", func(t *testing.T, e *env) string {
			t.Helper()
			create(t, e.pods(), pod("host"))
			patched, err := e.pods().Patch(t.Context(), "host", types.MergePatchType, []byte(`{"spec":{"hostNetwork":true}}`),
				metav1.PatchOptions{})
			return strings.Replace(taken(patched, err), "taken", "changed", 1)
		}},
		{
			"a pod with a service account that there is not", "taken", "refused with Forbidden",
			func(t *testing.T, e *env) string {
				t.Helper()
				u := pod("account")
				if err := unstructured.SetNestedField(u.Object, "none", "spec", "serviceAccountName"); err != nil {
					t.Fatal(err)
				}
				return taken(e.pods().Create(t.Context(), u, metav1.CreateOptions{}))
			},
		},
		{"annotations of more than 256 KiB", "taken", "refused with Invalid", func(t *testing.T, e *env) string {
			t.Helper()
			u := configMap("large", nil)
			u.SetAnnotations(map[string]string{"a": strings.Repeat("x", 300_000)})
			return taken(e.maps().Create(t.Context(), u, metav1.CreateOptions{}))
		}},
		{"who wrote the fields of a plain create", "not told", "told in managedFields", func(t *testing.T, e *env) string {
			t.Helper()
			if len(create(t, e.maps(), configMap("plain", nil)).GetManagedFields()) > 0 {
				return "told in managedFields"
			}
			return "not told"
		}},
	}
}

// testKnownDifferences prints the differences, and checks whether they still exist.
func testKnownDifferences(t *testing.T, e *env) {
	for _, d := range differences() {
		want := d.real
		if e.simulated {
			want = d.simulated
		}
		if is := d.observe(t, e); is != want {
			t.Errorf("known difference is no more: %s: here it is %q, and not %q", d.what, is, want)
			continue
		}
		t.Logf("known: %s: simulated: %s; real: %s", d.what, d.simulated, d.real)
	}
	if !e.whole {
		return
	}
	t.Logf("known: the ConfigMap kube-root-ca.crt of each namespace: simulated: never; real: soon")
	for deadline := time.Now().Add(patience); ; {
		list, err := e.maps().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		there := slices.Contains(names(list), "kube-root-ca.crt")
		if there == !e.simulated {
			return
		}
		if there || time.Now().After(deadline) {
			t.Fatalf("known difference is no more: ConfigMaps are %v", names(list))
		}
	}
}
