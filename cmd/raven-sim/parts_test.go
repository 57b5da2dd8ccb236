// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	simkube "github.com/kuryr/raven/test/sim/kube"
)

func TestCutAndColumnsDoNotCountPaint(t *testing.T) {
	t.Parallel()
	if got, want := cut("\x1b[32mgrün\x1b[0m und rot", 3), "\x1b[32mgrü"; got != want {
		t.Errorf("cut: %q, want %q", got, want)
	}
	got := columns([][]string{{"a", "\x1b[1mbold\x1b[0m", "x"}, {"longer", "b", "y"}})
	want := []string{"a       \x1b[1mbold\x1b[0m  x", "longer  b     y"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	var sorted []time.Duration
	for i := range 100 {
		sorted = append(sorted, time.Duration(i+1))
	}
	for share, want := range map[float64]time.Duration{0.5: 50, 0.99: 99, 1: 100} {
		if got := percentile(sorted, share); got != want {
			t.Errorf("percentile %v of 1 to 100: %d, want %d", share, got, want)
		}
	}
	if got := percentile([]time.Duration{7}, 0.5); got != 7 {
		t.Errorf("percentile of one value: %d", got)
	}
	if got := percentile(nil, 0.5); got != 0 {
		t.Errorf("percentile of nothing: %d", got)
	}
}

func TestWorkloadBearsOthersAtTheSameObjects(t *testing.T) {
	t.Parallel()
	api := simkube.New(simkube.Options{PodGrace: time.Millisecond})
	defer api.Close()
	w := newWorkload(api)
	for _, a := range w.apps {
		if err := w.namespace(a.namespace); err != nil {
			t.Fatal(err)
		}
	}
	for turn := range 100 {
		if err := w.replicas(); err != nil {
			t.Fatal(err)
		}
		changes := w.changes()
		if err := changes[turn%len(changes)].do(); err != nil {
			t.Fatal(err)
		}
		pods, err := api.List(podsGVR(), "")
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range pods { // somebody deletes every third pod, and in the end a whole namespace
			meta, _ := p["metadata"].(map[string]any)
			if i%3 == turn%3 {
				_ = api.Delete(podsGVR(), meta["namespace"].(string), meta["name"].(string)) // it may be gone
			}
		}
		if turn == 50 {
			if err := api.Delete(namespacesGVR(), "", "blog"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.replicas(); err != nil {
		t.Fatal(err)
	}
	names, err := w.pods(w.apps[0], true)
	if err != nil || len(names) != w.apps[0].replicas {
		t.Errorf("%d pods of %s, want %d (%v)", len(names), w.apps[0].name, w.apps[0].replicas, err)
	}
}

func TestReportAsMarkdown(t *testing.T) {
	t.Parallel()
	r := scenarioReport{Name: "burst", About: "A burst."}
	r.addTime("whole", 1500*time.Millisecond, "under 3 s", "")
	r.addTime("p50", 12340*time.Microsecond, "", "noted")
	r.addNone("lost", 0)
	r.Problem = "it broke"
	var out bytes.Buffer
	benchReport{Scenarios: []scenarioReport{r}}.markdown(&out)
	_, got, _ := strings.Cut(out.String(), "## ")
	want := `burst

A burst.

|       | measured | aim       |       |
| --- | ---: | --- | --- |
| whole | 1.50 s   | under 3 s |       |
| p50   | 12.34 ms |           | noted |
| lost  | 0        | 0         |       |

**Not measured to the end:** it broke
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
