// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuryr/raven/test/e2e/stack"
)

// The measured pods: some one after the other, and many at once.
const (
	speedSingles = 8
	speedAtOnce  = 20
)

// addBound is what the median of ADD must stay under, of pods one by one and once the port is there, in milliseconds.
// It holds on a machine that does nothing else.
const addBound = 100

// TestNodesSpeed measures the time from the create of a pod until it runs, with Raven and with the plugin bridge, in
// turns ABBA, one pod after the other and many at once. With bridge Raven does not run. It prints a table, with the
// phases of ADD and what daemon and plugin cost.
func TestNodesSpeed(t *testing.T) {
	needFull(t)
	network := &ravenNetwork{}
	nodes := realNodes(t, network)
	createNamespace(t, "speed")
	s := &podSpeed{network: network, nodes: nodes, singles: map[rune][]float64{}, atOnce: map[rune][]float64{}}
	for i, by := range "rbbr" {
		s.turn(t, by, i)
	}
	s.write(t)
}

// podSpeed is what was measured, in seconds, with Raven ('r') and with bridge ('b').
type podSpeed struct {
	network         *ravenNetwork
	nodes           []stack.Node
	singles, atOnce map[rune][]float64 // from a create until the pod runs
	annotated       []float64          // from a create until the port is in the annotation, of single pods
	all             map[rune][]float64 // from the first of many creates until all pods run
	cpu             float64            // of the daemons
	plugged         int                // pods meanwhile
}

// bridgeRange is the range of the plugin bridge on a node, which is none of Raven's.
func bridgeRange(node int) string { return fmt.Sprintf("10.250.%d.0/24", node) }

// turn measures with one of the two.
func (s *podSpeed) turn(t *testing.T, by rune, number int) {
	t.Helper()
	if by == 'b' {
		s.network.stop(t)
	}
	s.use(t, by, number)
	before := s.daemonCPU(t)
	for i := range speedSingles {
		ran, annotated := s.run(t, []string{fmt.Sprintf("one-%d-%d", number, i)}, i)
		s.singles[by] = append(s.singles[by], ran...)
		if by == 'r' {
			s.annotated = append(s.annotated, annotated...)
		}
	}
	s.clear(t, by)
	var names []string
	for i := range speedAtOnce {
		names = append(names, fmt.Sprintf("many-%d-%d", number, i))
	}
	ran, _ := s.run(t, names, 0)
	s.atOnce[by] = append(s.atOnce[by], ran...)
	if s.all == nil {
		s.all = map[rune][]float64{}
	}
	s.all[by] = append(s.all[by], slices.Max(ran))
	s.clear(t, by)
	if by == 'r' {
		s.cpu += s.daemonCPU(t) - before
		s.plugged += speedSingles + speedAtOnce
	} else {
		s.unbridge(t)
		s.network.restart(t)
		s.network.portsLeft(t)
	}
}

// use has pods plugged in by one of the two, once a pod shows that they are.
func (s *podSpeed) use(t *testing.T, by rune, number int) {
	t.Helper()
	if by == 'b' {
		for i, node := range s.nodes {
			conf, err := json.Marshal(thing{"cniVersion": "1.1.0", "name": "pods", "plugins": []thing{
				{
					"type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": thing{
						"type": "host-local", "dataDir": filepath.Join(filepath.Dir(node.CNIConf), "addresses"),
						"ranges": [][]thing{{{"subnet": bridgeRange(i)}}}, "routes": []thing{{"dst": "0.0.0.0/0"}},
					},
				},
				{"type": "portmap", "backend": "nftables", "capabilities": thing{"portMappings": true}},
			}})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(bridgeConf(node), conf, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, node := range s.nodes {
		for try := 0; ; try++ {
			name := fmt.Sprintf("warm-%d-%d-%d", number, i, try)
			s.run(t, []string{name}, i)
			pod, _, err := getPod(t.Context(), "speed", name)
			if err != nil {
				t.Fatal(err)
			}
			address, _, _ := unstructured.NestedString(pod.Object, "status", "podIP")
			if strings.HasPrefix(address, "10.250.") == (by == 'b') {
				break
			}
			if try == 10 {
				t.Fatalf("%s goes on with another CNI configuration: pod %s has the address %s", node.Name, name, address)
			}
		}
	}
	s.clear(t, by)
}

// bridgeConf is a CNI configuration that comes before Raven's.
func bridgeConf(node stack.Node) string { return filepath.Join(node.CNIConf, "00-bridge.conflist") }

func (s *podSpeed) unbridge(t *testing.T) {
	t.Helper()
	for _, node := range s.nodes {
		if err := os.Remove(bridgeConf(node)); err != nil {
			t.Error(err)
		}
	}
}

// run makes pods, on the nodes in turn from a first one, and returns the seconds from the first create until each runs,
// and until each has its port in an annotation where one is written.
func (s *podSpeed) run(t *testing.T, names []string, first int) (ran, annotated []float64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	list, err := pods("speed").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := pods("speed").Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	began := time.Now()
	for i, name := range names {
		node := s.nodes[(first+i)%len(s.nodes)].Name
		createPod(t, "speed", name, func(spec, _ map[string]any) {
			spec["nodeSelector"] = map[string]any{"kubernetes.io/hostname": node}
			spec["containers"] = []any{map[string]any{
				"name": "c", "image": "registry.k8s.io/pause:3.10.2", "imagePullPolicy": "Never",
			}}
		})
	}
	told := map[string]bool{}
	for running := map[string]bool{}; len(running) < len(names); {
		event, open := <-w.ResultChan()
		if !open {
			t.Fatalf("%d of %d pods run (%v)", len(running), len(names), ctx.Err())
		}
		pod, is := event.Object.(*unstructured.Unstructured)
		if !is || !slices.Contains(names, pod.GetName()) {
			continue
		}
		if document(pod, portAnnotation) != nil && !told[pod.GetName()] {
			told[pod.GetName()] = true
			annotated = append(annotated, time.Since(began).Seconds())
		}
		if phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase"); phase == "Running" &&
			!running[pod.GetName()] {
			running[pod.GetName()] = true
			ran = append(ran, time.Since(began).Seconds())
		}
	}
	return ran, annotated
}

// clear deletes the pods, and waits for the end of what they had.
func (s *podSpeed) clear(t *testing.T, by rune) {
	t.Helper()
	if err := pods("speed").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the pods to go", func(ctx context.Context) string {
		list, err := pods("speed").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		if len(list.Items) > 0 {
			return fmt.Sprintf("%d are left", len(list.Items))
		}
		return ""
	})
	if by == 'r' {
		s.network.portsLeft(t)
	}
}

// daemonCPU is the processor time of the nodes' daemons, in seconds.
func (s *podSpeed) daemonCPU(t *testing.T) float64 {
	t.Helper()
	sum := 0.0
	for _, node := range s.nodes {
		sum += scrape(t, node)["process_cpu_seconds_total"]
	}
	return sum
}

// scrape reads the metrics of a node's daemon.
func scrape(t *testing.T, node stack.Node) map[string]float64 {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return stack.DialIn(ctx, node.Namespace, address)
		},
	}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+nodeMetrics+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatalf("the metrics of %s: %v", node.Name, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if number, err := strconv.ParseFloat(value, 64); err == nil {
			found[name] = number
		}
	}
	return found
}

// pluginCPU is the processor time of a call of raven-cni, in seconds: one that asks the daemon as ADD and DEL do.
func (s *podSpeed) pluginCPU(t *testing.T) float64 {
	t.Helper()
	const calls = 50
	conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"raven","type":"raven-cni","socket":%q}`,
		filepath.Join(world.scratch, s.nodes[0].Name, "cni.sock"))
	sum := time.Duration(0)
	for range calls {
		cmd := exec.CommandContext(t.Context(), filepath.Join(world.bin, "raven-cni"))
		cmd.Env = []string{"CNI_COMMAND=STATUS", "CNI_PATH=" + world.bin}
		cmd.Stdin = strings.NewReader(conf)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("raven-cni: %v: %s", err, out)
		}
		sum += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return sum.Seconds() / calls
}

// phases are the milliseconds of each phase of the ADDs of the pods whose names begin so, from the daemons' logs, in
// the order there; and of all phases but the wait for the port.
func (s *podSpeed) phases(t *testing.T, prefix string) (names []string, took map[string][]float64, own []float64) {
	t.Helper()
	phase := regexp.MustCompile(`([a-z]+)_ms=([0-9.]+)`)
	took = map[string][]float64{}
	for _, daemon := range s.network.daemons {
		text, err := os.ReadFile(daemon.log)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "pod plugged in pod=speed/"+prefix) {
				continue
			}
			sum := 0.0
			for _, field := range phase.FindAllStringSubmatch(line, -1) {
				value, err := strconv.ParseFloat(field[2], 64)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Contains(names, field[1]) {
					names = append(names, field[1])
				}
				took[field[1]] = append(took[field[1]], value)
				if field[1] != "annotation" {
					sum += value
				}
			}
			own = append(own, sum)
		}
	}
	if len(own) == 0 {
		t.Fatalf("the daemons' logs tell of no pod %s*", prefix)
	}
	return names, took, own
}

func (s *podSpeed) write(t *testing.T) {
	t.Helper()
	var b strings.Builder
	row := func(what string, values []float64, unit string) {
		slices.Sort(values)
		fmt.Fprintf(&b, "%-44s %4d  median %7.2f  %7.2f to %7.2f %s\n", what, len(values), median(values), values[0],
			values[len(values)-1], unit)
	}
	fmt.Fprintf(&b, "pods on two nodes, turns raven bridge bridge raven; create -> Running\n")
	for _, by := range "rb" {
		name := map[rune]string{'r': "raven", 'b': "bridge"}[by]
		row(name+", one by one", s.singles[by], "s")
		row(fmt.Sprintf("%s, each of %d at once", name, speedAtOnce), s.atOnce[by], "s")
		row(fmt.Sprintf("%s, the last of %d at once", name, speedAtOnce), s.all[by], "s")
	}
	row("raven, one by one: until the port is annotated", s.annotated, "s")
	var names []string
	for _, pods := range []struct{ prefix, what string }{
		{"one-", "one by one"}, {"many-", fmt.Sprintf("%d at once", speedAtOnce)},
	} {
		found, took, own := s.phases(t, pods.prefix)
		for _, name := range found {
			row(pods.what+": ADD, phase "+name, took[name], "ms")
		}
		row(pods.what+": ADD once the port is there", own, "ms")
		if got := median(own); pods.prefix == "one-" && got >= addBound {
			t.Errorf("pods one by one: the median of ADD is %.1f ms once the port is there, not under %d ms", got, addBound)
		}
		names = found
	}
	fmt.Fprintf(&b, "processor time of the daemon for a pod, made and deleted: %.1f ms\n", s.cpu/float64(s.plugged)*1000)
	fmt.Fprintf(&b, "processor time of a call of raven-cni: %.1f ms\n", s.pluginCPU(t)*1000)
	for _, node := range s.nodes {
		values := scrape(t, node)
		for _, name := range names {
			label := `{phase="` + name + `"}`
			count := values["raven_node_add_phase_seconds_count"+label]
			fmt.Fprintf(&b, "%s, metric raven_node_add_phase_seconds%s: %.0f, mean %.1f ms\n", node.Name, label, count,
				values["raven_node_add_phase_seconds_sum"+label]/max(count, 1)*1000)
		}
	}
	t.Log("\n" + b.String())
	if err := os.WriteFile(filepath.Join(artifacts(t), "report.txt"), []byte(b.String()), 0o644); err != nil {
		t.Error(err)
	}
}
