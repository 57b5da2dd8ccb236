//go:build e2e

package suite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// scale is the size of a measurement.
type scale struct {
	namespaces, pods int    // pods in each namespace
	order            string // r: Raven; a digit: a bare client, with that way of asking
}

// ways are those in which the bare client asks for ports: how many in one request, and how many requests at once. The fastest is
// taken for Neutron's own limit.
var ways = []struct{ batch, workers int }{{10, 2}, {20, 2}, {5, 4}}

// TestScale creates many pods at once and measures how long it takes until all are annotated with their ports, in Raven's hands and in
// those of a bare client that makes the same ports in bulk and patches the same annotations, in turns. It prints times, requests
// and Neutron's processor time, and the ratio to the bare client; the aim is 0.9. The namespaces are there already, and Raven has made a
// port before: it knows then what its credentials may not set.
func TestScale(t *testing.T) {
	if world.full {
		measure(t, scale{10, 20, strings.Repeat("r01r", 3) + "2"})
		return
	}
	measure(t, scale{4, 10, "r01r"})
}

// TestScaleLarge is 2,000 pods.
func TestScaleLarge(t *testing.T) {
	needFull(t)
	measure(t, scale{10, 200, "r0"})
}

// round is one measurement.
type round struct {
	by       byte // as in scale.order
	took     time.Duration
	cpu      time.Duration // Neutron's
	requests []request
}

func measure(t *testing.T, size scale) {
	t.Helper()
	r := record(t)
	conf := settings{}.set("neutron", "endpoint_override", r.url).set("raven", "drift_check_interval", 300).set("raven", "sweep_interval", 60)
	var s *site
	if size.pods > 13 { // more than the standing site's subnets hold
		s = own(t, fmt.Sprint("scale", size.pods), conf.set("namespace_subnet", "subnet_prefix_length", 24))
	} else {
		s = standing(t, conf)
	}
	var names []string
	for i := range size.namespaces {
		names = append(names, fmt.Sprintf("sc-%d", i))
		createNamespace(t, names[i])
	}
	s.settled(t)
	var rounds []round
	for i, by := range []byte(size.order) {
		x := round{by: by}
		if by == 'r' {
			createPod(t, names[0], "first")
			s.settled(t)
			deletePod(t, names[0], "first")
			s.settled(t)
		}
		cpu, _ := neutronCPU()
		started := time.Now()
		if by == 'r' {
			createPods(t, names, size.pods)
			everyPod(t, size)
		} else {
			s.stop(t)
			cpu, _ = neutronCPU()
			started = time.Now()
			createPods(t, names, size.pods)
			way := ways[by-'0']
			bare(t, r.url, names, way.batch, way.workers)
			everyPod(t, size)
		}
		x.took, x.requests = time.Since(started), r.since(started)
		after, _ := neutronCPU()
		x.cpu = after - cpu
		rounds = append(rounds, x)
		t.Logf("round %d of %d, %s: %.1f s, %.2f s of Neutron's processor per port; %s", i+1, len(size.order), size.who(by), x.took.Seconds(),
			x.cpu.Seconds()/float64(size.namespaces*size.pods), tally(x.requests))
		if by == 'r' {
			s.settled(t)
		}
		if by != 'r' {
			removeBare(t, names)
		}
		deletePods(t, names)
		s.start(t, conf)
		s.settled(t)
	}
	text := size.report(rounds)
	t.Log("\n" + text)
	if err := os.WriteFile(filepath.Join(world.artifacts, t.Name(), "report.txt"), []byte(text), 0o644); err != nil {
		t.Error(err)
	}
	for _, x := range rounds {
		if n := size.namespaces * size.pods; x.by == 'r' && len(x.requests) > n/2 {
			t.Errorf("Raven needed %d requests for %d ports: they are not made together", len(x.requests), n)
		}
	}
}

func (size scale) who(by byte) string {
	if by == 'r' {
		return "raven"
	}
	way := ways[by-'0']
	return fmt.Sprintf("bare client, %d ports in a request, %d at once", way.batch, way.workers)
}

// report is the table of all rounds.
func (size scale) report(rounds []round) string {
	var b strings.Builder
	n := float64(size.namespaces * size.pods)
	fmt.Fprintf(&b, "%d pods in %d namespaces, until all are annotated\n%-52s %8s %16s %9s %12s\n", size.namespaces*size.pods, size.namespaces,
		"", "median", "spread", "requests", "CPU per port")
	medians := map[byte]float64{}
	order := []byte(size.order)
	slices.Sort(order)
	for _, by := range slices.Compact(order) {
		var took, cpu []float64
		requests := 0
		for _, x := range rounds {
			if x.by == by {
				took, cpu = append(took, x.took.Seconds()), append(cpu, x.cpu.Seconds()/n)
				requests += len(x.requests)
			}
		}
		slices.Sort(took)
		slices.Sort(cpu)
		medians[by] = median(took)
		fmt.Fprintf(&b, "%-52s %6.1f s %6.1f to %4.1f s %9.0f %10.2f s\n", size.who(by), medians[by], took[0], took[len(took)-1],
			float64(requests)/float64(len(took)), median(cpu))
	}
	limit := 0.0
	for by, m := range medians {
		if by != 'r' && (limit == 0 || m < limit) {
			limit = m
		}
	}
	fmt.Fprintf(&b, "raven reaches %.2f of what the bare client does (aim: 0.9)\n", limit/medians['r'])
	return b.String()
}

// median of sorted values.
func median(sorted []float64) float64 {
	m := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[m]
	}
	return (sorted[m-1] + sorted[m]) / 2
}

// createPods makes that many pods in each namespace, as fast as the cluster takes them.
func createPods(t *testing.T, names []string, each int) {
	t.Helper()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(16)
	for _, namespace := range names {
		for i := range each {
			g.Go(func() error {
				_, err := pods(namespace).Create(ctx, newPod(fmt.Sprintf("p%03d", i)), metav1.CreateOptions{})
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

func deletePods(t *testing.T, names []string) {
	t.Helper()
	for _, namespace := range names {
		if err := pods(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the pods to go", func(ctx context.Context) string {
		left := 0
		for _, namespace := range names {
			list, err := pods(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			left += len(list.Items)
		}
		if left > 0 {
			return fmt.Sprintf("%d are left", left)
		}
		return ""
	})
}

// everyPod waits until each pod is annotated with its port, by watching: asking again and again would cost what is measured.
func everyPod(t *testing.T, size scale) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience+time.Duration(size.namespaces*size.pods)*time.Second)
	defer cancel()
	list, err := pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	with := map[string]bool{}
	for i := range list.Items {
		if pod := &list.Items[i]; document(pod, portAnnotation) != nil {
			with[string(pod.GetUID())] = true
		}
	}
	w, err := pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for len(with) < size.namespaces*size.pods {
		event, ok := <-w.ResultChan()
		if !ok {
			t.Fatalf("%d of %d pods have ports (%v)", len(with), size.namespaces*size.pods, ctx.Err())
		}
		if err := apierrors.FromObject(event.Object); event.Type == "ERROR" {
			t.Fatal(err)
		}
		if pod, ok := event.Object.(annotatedObject); ok && pod.GetAnnotations()[portAnnotation] != "" {
			with[string(pod.GetUID())] = true
		}
	}
}
