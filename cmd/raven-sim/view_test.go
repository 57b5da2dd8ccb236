// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// A terminal of 80×24 shows the headings, what the workload did, what is not done with its reason, then what changed
// last, and why a pod has no port.
func TestPictureOfASmallTerminal(t *testing.T) {
	t.Parallel()
	s, err := newStage(t.Context(), "", simkube.Options{}, simcloud.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	life := newWorkload(s.kube)
	life.doing("made namespace preview")
	v := &view{stage: s, life: life, began: time.Now()}
	began := time.Now()
	r := &report{Counts: map[string]int{"done": 42, "waiting": 1}}
	pods := map[string]podFacts{}
	for i := range 40 {
		name := fmt.Sprintf("web-%02d", i)
		r.Objects = append(r.Objects, object{
			Kind: "Pod", Namespace: "shop", Name: name, State: "done", Since: began.Add(time.Duration(i) * time.Second),
			Resources: []resource{{Kind: "port", ID: "96e85133-1", Attrs: map[string]any{
				"fixed_ips": []any{map[string]any{"ip_address": "192.168.5.2"}},
			}}},
		})
		pods["shop/"+name] = podFacts{phase: "Running"}
	}
	r.Objects = append(r.Objects,
		object{Kind: "Pod", Namespace: "ci", Name: "build", State: "done", Since: began.Add(time.Hour)},
		object{Kind: "Pod", Namespace: "mon", Name: "exporter", State: "done", Since: began.Add(time.Hour)},
		object{
			Kind: "Pod", Namespace: "shop", Name: "stuck-with-a-long-name-59qsp", State: "waiting",
			Reasons: []string{"quota exceeded"},
		})
	pods["ci/build"], pods["mon/exporter"] = podFacts{phase: "Succeeded"}, podFacts{phase: "Running", host: true}
	lines := v.picture(r, pods, 23)
	text := strings.Join(lines, "\n")
	if len(lines) > 23 {
		t.Errorf("there are %d lines:\n%s", len(lines), text)
	}
	at := -1
	for _, want := range []string{
		"42 done, 1 waiting", "workload: made namespace preview", "KIND  OBJECT                      POD        STATE    HAS",
		"pod   shop/stuck-with-a-l…-59qsp ", "quota exceeded", "no port: it has completed", "no port: hostNetwork",
		"shop/web-39                 Running    done     192.168.5.2 port 96e85133", "page 1 of 3, the latest changes first",
	} {
		found := strings.Index(text, want)
		if found <= at {
			t.Errorf("%q is not there, or not in its place:\n%s", want, text)
		}
		at = max(at, found)
	}
	for _, line := range lines {
		if seen(line) > 80 {
			t.Errorf("%d columns: %s", seen(line), line)
		}
	}
	// Enter turns the pages, on which each object is once, and after the last one comes the first.
	whole := text
	for range 2 {
		v.turnPages(strings.NewReader("\n"))
		whole += "\n" + strings.Join(v.picture(r, pods, 23), "\n")
	}
	for name := range pods {
		if n := strings.Count(whole, " "+name+" "); n != 1 {
			t.Errorf("%s is there %d times:\n%s", name, n, whole)
		}
	}
	v.turnPages(strings.NewReader("\n"))
	if first := strings.Join(v.picture(r, pods, 23), "\n"); !strings.Contains(first, "page 1 of 3") {
		t.Errorf("after the last page:\n%s", first)
	}
}
