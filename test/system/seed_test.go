// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	simkube "github.com/kuryr/raven/test/sim/kube"
)

// replay feeds a file of the seed events into the cluster.
func (r *rig) replay(file string) {
	r.t.Helper()
	f, err := os.Open(filepath.Join("../testdata/seed-events", file))
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it is only read
	r.check(r.kube.Replay(f))
}

// The watch events that the design's own appendix shows, through the whole path.
func TestSeedEventsEndAsTheySay(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		t.Run(fmt.Sprintf("before raven starts %t", before), func(t *testing.T) {
			t.Parallel()
			r := newRigWith(t, simkube.Options{LooseNamespaces: true}, nil)
			var p *raven
			if !before {
				p = r.start()
				must(t, "rest", func() string { return r.amiss(p) })
			}
			for _, file := range []string{
				"namespaces.watch.jsonl", "services.watch.jsonl", "endpoints.watch.jsonl", "pods.watch.jsonl",
				"pods-nginx-app.watch.jsonl",
			} {
				r.replay(file)
				if !before {
					time.Sleep(50 * time.Millisecond)
				}
			}
			if before {
				p = r.start()
			}
			must(t, "the end of the events", func() string { return r.amiss(p) })
			r.seedPorts()
			r.cloud.ResetLog()
			p.stop()
			p = r.start()
			must(t, "rest after a restart", func() string { return r.amiss(p) })
			p.stop()
			if n := r.cloud.Stats().Writes; n != 0 {
				t.Errorf("a restart wrote %d times", n)
			}
		})
	}
}

// seedPorts checks the ports: the events leave pod nginx-app-o0kvl in namespace default, and take my-nginx-y67ky and
// namespace test.
func (r *rig) seedPorts() {
	r.t.Helper()
	var names []string
	for _, port := range r.cloud.Ports() {
		if port["device_owner"] == "compute:kuryr" {
			names = append(names, fmt.Sprint(port["name"]))
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"nginx-app-o0kvl"}) {
		r.t.Errorf("the ports of pods are %v, wanted the one of nginx-app-o0kvl", names)
	}
	if r.portOf("default", "nginx-app-o0kvl") == "" {
		r.t.Error("the pod names no port")
	}
	for _, n := range r.cloud.Networks() {
		if n["name"] == "test" {
			r.t.Error("the network of namespace test is still there")
		}
	}
}
