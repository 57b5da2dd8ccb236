// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuryr/raven/test/harness"
)

// readyPort is the name of a port that nobody has taken from its pool.
const readyPort = "available-port"

// TestPools has pods take ready ports: one after the other, a hundred at once, and three times as many as there are,
// beside a namespace without a pool. What is asked of Neutron meanwhile is recorded; packets reach pods; in the end
// Neutron has as many ports as there are pods and ready ports.
func TestPools(t *testing.T) {
	needPackets(t)
	r := record(t)
	s := own(t, "pools", harness.Settings{}.
		Set("neutron", "endpoint_override", r.url).Set("namespace_subnet", "subnet_prefix_length", 22).
		Set("vif_pool", "ports_pool_batch", 20).Set("vif_pool", "ports_pool_update_frequency", 1).
		Set("raven", "drift_check_interval", 300).Set("raven", "sweep_interval", 60))
	var report strings.Builder
	say := func(format string, args ...any) {
		fmt.Fprintf(&report, format+"\n", args...)
		t.Logf(format, args...)
	}
	const burst, small = 100, 30
	createNamespace(t, "pl-warm")
	createNamespace(t, "pl-small")
	createNamespace(t, "pl-none")
	poolOf(t, "pl-warm", burst+10)
	poolOf(t, "pl-small", small)
	awaitReadyPorts(t, "pl-warm", burst+10)
	awaitReadyPorts(t, "pl-small", small)

	var each []float64
	for i := range 20 {
		each = append(each, float64(alone(t, fmt.Sprintf("one-%02d", i)).Microseconds())/1000)
	}
	awaitWritten(t, "pl-warm")
	slices.Sort(each)
	say("one pod, from the API server's answer to its create to its annotation: median of 20 %.0f ms (%.0f to %.0f)",
		median(each), each[0], each[len(each)-1])
	a, b := plug(t, "pl-warm", "one-00"), plug(t, "pl-warm", "one-19")
	a.reaches(t, b)
	b.reaches(t, a)
	awaitReadyPorts(t, "pl-warm", burst+10)
	quiet(t, r)

	started := time.Now()
	made := createPods(t, []string{"pl-warm"}, burst, func(*unstructured.Unstructured) {})
	posted := time.Since(started)
	everyPod(t, made)
	took := time.Since(started)
	writes := 0
	for _, q := range r.since(started) {
		if q.At.Before(started.Add(took)) && q.Method != http.MethodGet {
			writes++
		}
	}
	say("%d pods at once: all made after %.2f s and annotated after %.2f s, %d changes asked of Neutron before the last "+
		"annotation", burst, posted.Seconds(), took.Seconds(), writes)
	if writes > 0 && took < time.Second {
		t.Errorf("Neutron was asked for %d changes before the last annotation", writes)
	}
	started = time.Now()
	awaitWritten(t, "pl-warm")
	say("all of them written as their pods' %.0f s later", time.Since(started).Seconds())
	for _, name := range []string{"p000", "p050", "p099"} {
		c := plug(t, "pl-warm", name)
		c.reaches(t, a)
		a.reaches(t, c)
	}
	awaitReadyPorts(t, "pl-warm", burst+10)
	quiet(t, r)

	for _, namespace := range []string{"pl-small", "pl-none"} {
		started := time.Now()
		everyPod(t, createPods(t, []string{namespace}, 3*small, func(*unstructured.Unstructured) {}))
		say("%d pods at once in %s: all annotated after %.1f s", 3*small, namespace, time.Since(started).Seconds())
		awaitWritten(t, namespace)
		awaitSteady(t, namespace)
		quiet(t, r)
	}
	deletePods(t, []string{"pl-warm", "pl-small", "pl-none"})
	for _, namespace := range []string{"pl-warm", "pl-small", "pl-none"} {
		awaitSteady(t, namespace)
	}
	path := filepath.Join(world.artifacts, t.Name(), "report.txt")
	if err := os.WriteFile(path, []byte(report.String()), 0o644); err != nil {
		t.Error(err)
	}
	s.stop(t)
}

// poolOf has a namespace keep at least so many ready ports.
func poolOf(t *testing.T, namespace string, n int) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"kuryr.org/ports-pool-min":"%d"}}}`, n)
	if _, err := namespaces().Patch(t.Context(), namespace, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// portsOf lists the ports for pods of a namespace: those that are ready, and those that pods have.
func portsOf(ctx context.Context, namespace string) (ready, taken []thing, err error) {
	ns, err := namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	network := document(ns, networkAnnotation).str("id")
	if network == "" {
		return nil, nil, fmt.Errorf("namespace %s has no network", namespace)
	}
	list, err := world.cloud.list(ctx, "ports", "network_id="+network+"&device_owner=compute:kuryr")
	for _, port := range list {
		if port.str("name") == readyPort {
			ready = append(ready, port)
		} else {
			taken = append(taken, port)
		}
	}
	return ready, taken, err
}

func awaitReadyPorts(t *testing.T, namespace string, n int) {
	t.Helper()
	bound := patience + time.Duration(n)*time.Second
	last := waitFor(t.Context(), bound, func(ctx context.Context) string {
		ready, _, err := portsOf(ctx, namespace)
		if err != nil || len(ready) < n {
			return fmt.Sprintf("%d of %d ports are ready (%v)", len(ready), n, err)
		}
		return ""
	})
	if last != "" {
		t.Fatal(last)
	}
}

// awaitWritten waits until Neutron has every pod's port as the pod's own.
func awaitWritten(t *testing.T, namespace string) {
	t.Helper()
	await(t, "the ports of "+namespace+" to be their pods'", func(ctx context.Context) string {
		list, err := pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		_, taken, err := portsOf(ctx, namespace)
		owners := map[string]string{}
		for _, port := range taken {
			if slices.Contains(port.strs("tags"), "raven:owner=pod:"+port.str("device_id")) {
				owners[port.str("device_id")] = port.str("id")
			}
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if told := document(pod, portAnnotation).str("id"); told == "" || owners[string(pod.GetUID())] != told {
				return fmt.Sprintf("pod %s tells of port %q, and Neutron of %q (%v)", pod.GetName(), told,
					owners[string(pod.GetUID())], err)
			}
		}
		if len(taken) != len(list.Items) {
			return fmt.Sprintf("%d ports for %d pods", len(taken), len(list.Items))
		}
		return ""
	})
}

// awaitSteady waits until a namespace's ports are those of its pods and a pool that is not being filled.
func awaitSteady(t *testing.T, namespace string) {
	t.Helper()
	before := -1
	await(t, "the ports of "+namespace+" to be its pods' and its pool's", func(ctx context.Context) string {
		list, err := pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		ready, taken, err := portsOf(ctx, namespace)
		was := before
		before = len(ready)
		if err != nil || len(taken) != len(list.Items) || was != len(ready) {
			return fmt.Sprintf("%d ports are taken and %d ready, for %d pods (%v)", len(taken), len(ready), len(list.Items), err)
		}
		return ""
	})
}

// alone makes one pod and returns how long it took from the answer to its annotation.
func alone(t *testing.T, name string) time.Duration {
	t.Helper()
	w, err := pods("pl-warm").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	made, err := pods("pl-warm").Create(t.Context(), newPod(name), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	for event := range w.ResultChan() {
		if pod, ok := event.Object.(annotatedObject); ok && pod.GetUID() == made.GetUID() &&
			pod.GetAnnotations()[portAnnotation] != "" {
			return time.Since(started)
		}
	}
	t.Fatalf("the watch ended before %s had a port", name)
	return 0
}

// quiet waits until Raven asks nothing of Neutron.
func quiet(t *testing.T, r *recorder) {
	t.Helper()
	await(t, "Raven to ask nothing of Neutron", func(context.Context) string {
		if n := len(r.since(time.Now().Add(-3 * time.Second))); n > 0 {
			return fmt.Sprintf("%d requests within three seconds", n)
		}
		return ""
	})
}
