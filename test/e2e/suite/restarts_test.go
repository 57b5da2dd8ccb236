// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuryr/raven/test/e2e/stack"
	"github.com/kuryr/raven/test/harness"
)

// TestRestarts kills everything in turn with kill -9 while a namespace and its pods are made, pods come and go, and
// the namespace of the turn before is deleted: Raven, each driver, and the servers on both sides. Each turn must end
// as one without a disturbance does, with nothing twice and nothing left.
func TestRestarts(t *testing.T) {
	s := standing(t)
	turns := []turn{
		{name: "nothing"},
		{name: "raven", kill: func(*testing.T) { s.raven.Kill() }, start: s.restart},
		{name: "driver-namespace", kill: killDriver(s, "namespace")},
		{name: "driver-pod", kill: killDriver(s, "pod")},
		{name: stack.APIServer, server: true, blind: true},
		{name: stack.Etcd, server: true, blind: true},
		{name: stack.NeutronServer, server: true},
		{name: stack.MariaDB, server: true},
		{name: stack.Keystone, server: true},
	}
	var undisturbed string
	before := ""
	for i, turn := range turns {
		namespace := fmt.Sprintf("rs-%d", i)
		t.Run(turn.name, func(t *testing.T) {
			turn.control(t)
			if undisturbed == "" && i > 0 {
				t.Fatalf("there is nothing to compare with: run it with the first turn, E2E='%s/(%s|%s)$'",
					strings.TrimPrefix(t.Name(), "Test"), turns[0].name, turn.name)
			}
			end := turn.play(t, s, namespace, before)
			before = namespace
			if undisturbed == "" {
				undisturbed = end
			} else if diff := harness.LineDiff(undisturbed, end); diff != "" {
				t.Errorf("the cloud differs (-undisturbed +this):\n%s", diff)
			}
		})
	}
	if before != "" {
		deleteNamespace(t, before)
		gone(t, before)
	}
	s.settled(t)
}

// turn is one part that is killed.
type turn struct {
	name      string
	server    bool // of the stack
	blind     bool // nothing can be asked of Kubernetes while it is away
	kill      func(*testing.T)
	start     func(*testing.T) // nil where it starts by itself
	provider  string           // of load balancers, "" for the site's
	first     bool             // of the life of a Service only the first change is disturbed, and
	disturbed bool             // has been
}

// control has a server killed and started by the stack's controls.
func (r *turn) control(t *testing.T) {
	t.Helper()
	if !r.server {
		return
	}
	needControls(t)
	name := r.name
	r.kill = func(t *testing.T) {
		t.Helper()
		killed(t, name)
	}
	r.start = func(t *testing.T) {
		t.Helper()
		started(t, name)
	}
}

func killDriver(s *site, name string) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		pid := s.raven.plugin(name)
		if pid == 0 {
			t.Fatalf("driver %s has no process", name)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}

// play is the workload of a turn. It returns how the namespace stands in the cloud at the end, with its name and its
// pods' in place of ids.
func (r *turn) play(t *testing.T, s *site, namespace, before string) string {
	t.Helper()
	// Of the test that runs all turns: the next one deletes it.
	object := thing{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}}
	if err := apply(t.Context(), namespaces(), object); err != nil {
		t.Fatal(err)
	}
	for _, pod := range []string{"a", "b", "c", "job"} {
		createPod(t, namespace, pod)
	}
	if r.kill != nil {
		s.underway(t, namespace)
		r.kill(t)
	}
	if r.blind && r.start != nil {
		r.start(t)
	}
	createPod(t, namespace, "d")
	deletePod(t, namespace, "a")
	patchPod(t, namespace, "job", `{"status":{"phase":"Succeeded"}}`, "status")
	if before != "" {
		deleteNamespace(t, before)
	}
	if !r.blind && r.start != nil {
		r.start(t)
	}
	if before != "" {
		gone(t, before)
	}
	s.settled(t)
	names := map[string]string{namespace: "NS"}
	c, err := look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.namespaces {
		if ns := &c.namespaces[i]; ns.GetName() == namespace {
			names[string(ns.GetUID())] = "<NS>"
		}
	}
	for i := range c.pods {
		if pod := &c.pods[i]; pod.GetNamespace() == namespace {
			names[string(pod.GetUID())] = "<NS/" + pod.GetName() + ">"
		}
	}
	text, err := s.dump(t.Context(), names)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// underway waits until something of a namespace is in the cloud, while not all of it can be yet.
func (s *site) underway(t *testing.T, namespace string) {
	t.Helper()
	ns, err := namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the first of namespace "+namespace+" to be made", func(ctx context.Context) string {
		found, err := world.cloud.list(ctx, "networks", "fields=id&tags=raven:owner=namespace:"+string(ns.GetUID()))
		if err == nil && len(found) == 0 {
			found, err = world.cloud.list(ctx, "networks", "fields=id&name="+namespace)
		}
		if err != nil {
			return err.Error()
		}
		if len(found) == 0 {
			return "there is no network"
		}
		return ""
	})
}
