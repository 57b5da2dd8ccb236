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
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/kuryr/raven/test/harness"
)

// scale is the size of a measurement.
type scale struct {
	namespaces, pods int // pods in each namespace
	// r: Raven; b: a bare client, in the best way that is known. ABBA: what changes with time meets both alike
	order string
	// how the best way is found out before, with all the pods: a digit for each round; "": the first one is taken
	tried string
}

func (size scale) all() int { return size.namespaces * size.pods }

// ways are those in which the bare client asks for ports: how many in one request, and how many requests at once. The
// fastest is taken for Neutron's own limit.
var ways = []way{{10, 2}, {20, 2}, {5, 4}}

type way struct{ batch, workers int }

func (w way) String() string {
	return fmt.Sprintf("bare client, %d ports in a request, %d at once", w.batch, w.workers)
}

// TestScale creates many pods at once and measures how long it takes until all are annotated with their ports, in
// Raven's hands and in those of a bare client that makes the same ports in bulk and patches the same annotations, in
// turns. It prints times, requests and Neutron's processor time, and the ratio to the bare client; the aim is 0.9.
// The namespaces are there already, and Raven has made a port before: it knows then what its credentials may not set.
func TestScale(t *testing.T) {
	measure(t, scale{namespaces: 10, pods: 20, order: strings.Repeat("rbbr", 3), tried: "012"})
}

// TestScaleLarge is 2,000 pods.
func TestScaleLarge(t *testing.T) {
	needFull(t)
	measure(t, scale{namespaces: 10, pods: 200, order: "rb"})
}

// round is one measurement.
type round struct {
	by       byte // as in scale.order
	took     time.Duration
	cpu      time.Duration // Neutron's; less than 0 where that is not known
	requests []request
}

// field is where the rounds take place.
type field struct {
	site  *site
	conf  harness.Settings
	url   string // of Neutron, with a recorder before it
	log   *recorder
	names []string // of the namespaces
	best  way
}

func measure(t *testing.T, size scale) {
	t.Helper()
	r := record(t)
	f := &field{url: r.url, log: r, best: ways[0]}
	f.conf = harness.Settings{}.Set("neutron", "endpoint_override", r.url).Set("raven", "drift_check_interval",
		300).Set("raven", "sweep_interval", 60)
	if size.pods > 13 { // more than the standing site's subnets hold
		f.site = own(t, fmt.Sprint("scale", size.pods), f.conf.Set("namespace_subnet", "subnet_prefix_length", 24))
	} else {
		f.site = standing(t, f.conf)
	}
	for i := range size.namespaces {
		f.names = append(f.names, fmt.Sprintf("sc-%d", i))
		createNamespace(t, f.names[i])
	}
	f.site.settled(t)
	f.choose(t, size)
	var rounds []round
	for i, by := range []byte(size.order) {
		x := f.round(t, by, size.pods)
		rounds = append(rounds, x)
		t.Logf("round %d of %d, %s: %.1f s, %s of Neutron's processor per port; %s", i+1, len(size.order), f.who(by),
			x.took.Seconds(),
			perPort([]round{x}, size.all()), tally(x.requests))
	}
	text := f.report(size, rounds)
	t.Log("\n" + text)
	if err := os.WriteFile(filepath.Join(world.artifacts, t.Name(), "report.txt"), []byte(text), 0o644); err != nil {
		t.Error(err)
	}
	for _, x := range rounds {
		if n := size.all(); x.by == 'r' && creates(x.requests) > n/2 {
			t.Errorf("Raven needed %d requests to make %d ports: they are not made together", creates(x.requests), n)
		}
	}
}

// creates is how many requests made ports. How often Raven looks depends on how long it takes.
func creates(requests []request) int {
	n := 0
	for _, q := range requests {
		if path, _, _ := strings.Cut(q.Path, "?"); q.Method == http.MethodPost && strings.HasSuffix(path, "/ports") {
			n++
		}
	}
	return n
}

// choose finds out by which way the bare client is fastest, with as many pods as are measured: with fewer, another
// way may be.
func (f *field) choose(t *testing.T, size scale) {
	t.Helper()
	took := make([]time.Duration, len(ways))
	for _, digit := range []byte(size.tried) {
		i := int(digit - '0')
		f.best = ways[i]
		took[i] += f.round(t, 'b', size.pods).took
	}
	f.best = ways[0]
	for i := range took {
		if size.tried != "" {
			t.Logf("%d pods, %s: %.1f s", size.all(), ways[i], took[i].Seconds()*float64(len(ways))/float64(len(size.tried)))
		}
		if took[i] < took[slices.Index(ways, f.best)] {
			f.best = ways[i]
		}
	}
}

// round is one round: it ends with no pod and no port left, and with Raven running.
func (f *field) round(t *testing.T, by byte, each int) round {
	t.Helper()
	names := f.names
	if by == 'r' {
		createPod(t, names[0], "first")
		f.site.settled(t)
		deletePod(t, names[0], "first")
		f.site.settled(t)
	} else {
		f.site.stop(t)
	}
	var client *bareClient
	if by != 'r' {
		client = newBare(t, f.url, names, f.best)
	}
	cpu, known := neutronCPU()
	started := time.Now()
	made := createPods(t, names, each, client.take)
	client.wait(t)
	everyPod(t, made)
	x := round{by: by, took: time.Since(started), requests: f.log.since(started), cpu: -1}
	if after, ok := neutronCPU(); ok && known {
		x.cpu = after - cpu
	}
	if by == 'r' {
		f.site.settled(t)
	} else {
		removeBare(t, names)
	}
	deletePods(t, names)
	f.site.start(t, f.conf)
	f.site.settled(t)
	return x
}

func (f *field) who(by byte) string {
	if by == 'r' {
		return "raven"
	}
	return f.best.String()
}

// report is the table of all rounds.
func (f *field) report(size scale, rounds []round) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d pods in %d namespaces, until all are annotated\n%-52s %6s %8s %16s %9s %13s\n", size.all(),
		size.namespaces,
		"", "rounds", "median", "spread", "requests", "CPU per port")
	of := map[byte][]float64{}
	for _, by := range []byte("rb") {
		var mine []round
		requests := 0
		for _, x := range rounds {
			if x.by == by {
				mine, of[by], requests = append(mine, x), append(of[by], x.took.Seconds()), requests+len(x.requests)
			}
		}
		slices.Sort(of[by])
		fmt.Fprintf(&b, "%-52s %6d %6.1f s %6.1f to %5.1f s %9.0f %13s\n", f.who(by), len(mine), median(of[by]), of[by][0],
			of[by][len(mine)-1],
			float64(requests)/float64(len(mine)), perPort(mine, size.all()))
	}
	fmt.Fprintf(&b, "raven reaches %.2f of what the bare client does, by the medians (aim: 0.9)",
		median(of['b'])/median(of['r']))
	if turns := ratios(size.order, rounds); len(turns) > 1 {
		fmt.Fprintf(&b, "; each ABBA for itself: %.2f", turns)
	}
	if size.tried != "" {
		fmt.Fprintf(&b, "\nof %d, the way that was fastest before", len(ways))
	} else {
		fmt.Fprintf(&b, "\nwhether another way of asking is faster for the bare client was not tried")
	}
	return b.String() + "\n"
}

// ratios are those of each ABBA for itself.
func ratios(order string, rounds []round) []float64 {
	var out []float64
	for from := 0; from+4 <= len(order) && order[from:from+4] == "rbbr"; from += 4 {
		x := rounds[from : from+4]
		out = append(out, (x[1].took+x[2].took).Seconds()/(x[0].took+x[3].took).Seconds())
	}
	return out
}

// perPort is the median of Neutron's processor time for a port.
func perPort(rounds []round, ports int) string {
	var all []float64
	for _, x := range rounds {
		if x.cpu >= 0 {
			all = append(all, x.cpu.Seconds()/float64(ports))
		}
	}
	if len(all) < len(rounds) {
		return "unknown"
	}
	slices.Sort(all)
	return fmt.Sprintf("%.2f s", median(all))
}

// median of sorted values.
func median(sorted []float64) float64 {
	m := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[m]
	}
	return (sorted[m-1] + sorted[m]) / 2
}

// createPods makes that many pods in each namespace, as fast as the cluster takes them, tells of each, and returns
// their UIDs.
func createPods(t *testing.T, names []string, each int, tell func(*unstructured.Unstructured)) map[types.UID]bool {
	t.Helper()
	var mu sync.Mutex
	made := map[types.UID]bool{}
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(16)
	for _, namespace := range names {
		for i := range each {
			g.Go(func() error {
				pod, err := pods(namespace).Create(ctx, newPod(fmt.Sprintf("p%03d", i)), metav1.CreateOptions{})
				if err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				made[pod.GetUID()] = true
				tell(pod)
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return made
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

// everyPod waits until each of these pods is annotated with its port, by watching: asking again and again would cost
// what is measured. An API server may end a watch at any time; they are listed anew then.
func everyPod(t *testing.T, waiting map[types.UID]bool) {
	t.Helper()
	all := len(waiting)
	ctx, cancel := context.WithTimeout(t.Context(), patience+time.Duration(all)*time.Second)
	defer cancel()
	for len(waiting) > 0 {
		list, err := pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatalf("%d of %d pods have no port: %v", len(waiting), all, err)
		}
		for i := range list.Items {
			if pod := &list.Items[i]; document(pod, portAnnotation) != nil {
				delete(waiting, pod.GetUID())
			}
		}
		w, err := pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		if err != nil {
			t.Fatalf("%d of %d pods have no port: %v", len(waiting), all, err)
		}
		seePorts(t, w, waiting)
	}
}

// seePorts takes those off that a watch shows with their port, until none is left or the watch ends.
func seePorts(t *testing.T, w apiwatch.Interface, waiting map[types.UID]bool) {
	t.Helper()
	defer w.Stop()
	for len(waiting) > 0 {
		event, ok := <-w.ResultChan()
		if !ok {
			return
		}
		if err := apierrors.FromObject(event.Object); event.Type == apiwatch.Error {
			t.Log(err)
			return
		}
		if pod, ok := event.Object.(annotatedObject); ok && pod.GetAnnotations()[portAnnotation] != "" {
			delete(waiting, pod.GetUID())
		}
	}
}
