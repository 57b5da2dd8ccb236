// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuryr/raven/test/e2e/machine"
	"github.com/kuryr/raven/test/harness"
)

// cyclonusModes are what its probes call.
var cyclonusModes = []string{"pod-ip", "service-ip"}

// cyclonusEvery is how many of cyclonus' cases there are to one that is run, where nobody asks for others.
const cyclonusEvery = "20"

// TestCyclonus runs the cases of NetworkPolicies that cyclonus generates, by the addresses of pods and by clusterIPs:
// after each step TCP and UDP are tried between all pods and all ports until cyclonus' truth table agrees.
// RAVEN_E2E_EVERY=1 runs all cases, RAVEN_E2E_CASE one of them; RAVEN_E2E_PAGE is a file for the table as a page.
func TestCyclonus(t *testing.T) {
	cache, err := machine.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := machine.Cyclonus(t.Context(), "..", cache, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	s := proxying(t, "cyclonus", harness.Settings{}.Set("raven", "drivers", "namespace,pod,kubeproxy,networkpolicy"))
	c := &cyclonus{site: s, pods: map[string]*nic{}}
	for _, namespace := range []string{"x", "y", "z", "y-2"} {
		t.Cleanup(func() { _ = namespaces().Delete(context.Background(), namespace, metav1.DeleteOptions{}) })
	}
	for _, mode := range cyclonusModes {
		c.run(t, filepath.Join(folder, "cyclonus"), mode)
	}
	file := cmp.Or(os.Getenv("RAVEN_E2E_PAGE"), filepath.Join(artifacts(t), "cyclonus.md"))
	if err := os.WriteFile(file, []byte(c.page()), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("the table as a page: %s", file)
}

type cyclonus struct {
	*site
	cases []cyclonusCase

	mu   sync.Mutex // of pods and out
	pods map[string]*nic
	out  *json.Encoder
}

// The protocol of test/e2e/cyclonus.
type (
	cyclonusOrder struct {
		ID        int               `json:"id"`
		Op        string            `json:"op"`
		Namespace string            `json:"namespace"`
		Pod       string            `json:"pod"`
		Service   string            `json:"service"`
		Labels    map[string]string `json:"labels"`
		Requests  []batchRequest    `json:"requests"`
		Case      cyclonusCase      `json:"case"`
	}
	cyclonusAnswer struct {
		ID      int           `json:"id"`
		Error   string        `json:"error,omitempty"`
		Results []batchResult `json:"results,omitempty"`
	}
	cyclonusCase struct {
		Number       int      `json:"number"`
		Of           int      `json:"of"`
		Mode         string   `json:"mode"`
		Description  string   `json:"description"`
		Passed       bool     `json:"passed"`
		Tries        []int    `json:"tries"`
		Probes       int      `json:"probes"`
		Wrong        []string `json:"wrong"`
		Milliseconds int64    `json:"milliseconds"`
	}
	batchRequest struct {
		Key      string
		Protocol string
		Host     string
		Port     int
	}
	batchResult struct {
		Request batchRequest
		Output  string
		Error   string
	}
)

// run runs the cases with probes of one kind.
func (c *cyclonus) run(t *testing.T, program, mode string) {
	t.Helper()
	args := []string{"-mode", mode, "-every", cmp.Or(os.Getenv("RAVEN_E2E_EVERY"), cyclonusEvery)}
	if one := os.Getenv("RAVEN_E2E_CASE"); one != "" {
		args = append(args, "-only", one)
	}
	log, err := os.Create(filepath.Join(artifacts(t), "cyclonus-"+mode+".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+world.kubeconfig)
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	c.out = json.NewEncoder(in)
	var probes sync.WaitGroup
	defer probes.Wait()
	for orders := json.NewDecoder(out); ; {
		var o cyclonusOrder
		if err := orders.Decode(&o); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("cyclonus speaks of %v", err)
		}
		if o.Op == "probe" {
			probes.Go(func() { c.answer(c.probe(t.Context(), o)) })
			continue
		}
		c.obey(t, o)
		c.answer(cyclonusAnswer{ID: o.ID})
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("cyclonus ended: %v; its words are in %s", err, log.Name())
	}
}

func (c *cyclonus) answer(a cyclonusAnswer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.out.Encode(a) // where cyclonus has ended, its exit status tells
}

// obey does what is no probe.
func (c *cyclonus) obey(t *testing.T, o cyclonusOrder) {
	t.Helper()
	switch o.Op {
	case "plug":
		await(t, o.Namespace+"/"+o.Pod+" to run", func(ctx context.Context) string {
			pod, _, err := getPod(ctx, o.Namespace, o.Pod)
			if err != nil {
				return err.Error()
			}
			status, _, _ := unstructured.NestedMap(pod.Object, "status")
			if status["phase"] != "Running" || status["podIP"] == nil {
				return fmt.Sprintf("it is %v", status["phase"])
			}
			ns, err := namespaces().Get(ctx, o.Namespace, metav1.GetOptions{})
			if err != nil || document(ns, networkAnnotation) == nil {
				return fmt.Sprintf("its namespace is not annotated (%v)", err)
			}
			return ""
		})
		n := plug(t, o.Namespace, o.Pod)
		n.answers(t, "80", "81")
		c.mu.Lock()
		c.pods[n.pod] = n
		c.mu.Unlock()
	case "select":
		patch, err := json.Marshal([]thing{{"op": "replace", "path": "/spec/selector", "value": o.Labels}})
		if err == nil {
			_, err = serviceObjects(o.Namespace).Patch(t.Context(), o.Service, types.JSONPatchType, patch,
				metav1.PatchOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	case "gone":
		await(t, "namespace "+o.Namespace+" to be gone", func(ctx context.Context) string {
			if _, err := namespaces().Get(ctx, o.Namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("it is there (%v)", err)
			}
			return ""
		})
	case "case":
		c.cases = append(c.cases, o.Case)
		c.judge(t, o.Case)
	default:
		t.Fatalf("cyclonus asks for %q", o.Op)
	}
}

func (c *cyclonus) judge(t *testing.T, one cyclonusCase) {
	t.Helper()
	line := fmt.Sprintf("case %d of %d by %s: %s: %d probes, tries %v, %.1f s", one.Number, one.Of, one.Mode,
		one.Description, one.Probes, one.Tries, float64(one.Milliseconds)/1000)
	if one.Passed {
		t.Log(line)
		return
	}
	t.Errorf("%s\n%s", line, strings.Join(one.Wrong, "\n"))
}

// probe calls from a pod.
func (c *cyclonus) probe(ctx context.Context, o cyclonusOrder) cyclonusAnswer {
	a := cyclonusAnswer{ID: o.ID}
	c.mu.Lock()
	n := c.pods[o.Namespace+"/"+o.Pod]
	c.mu.Unlock()
	if n == nil {
		a.Error = "no pod " + o.Namespace + "/" + o.Pod + " answers here"
		return a
	}
	questions, err := json.Marshal(o.Requests)
	if err == nil {
		cmd := n.run(ctx, "batch")
		cmd.Stdin = bytes.NewReader(questions)
		var out []byte
		if out, err = cmd.Output(); err == nil {
			err = json.Unmarshal(out, &a.Results)
		}
	}
	if err != nil {
		a.Error = fmt.Sprintf("calls of %s: %v", n.pod, err)
	}
	return a
}

// page is a line for each case.
func (c *cyclonus) page() string {
	type key struct {
		number int
		mode   string
	}
	by, words := map[key]cyclonusCase{}, map[int]string{}
	probes := 0
	for _, one := range c.cases {
		by[key{one.Number, one.Mode}] = one
		words[one.Number] = one.Description
		probes += one.Probes
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# NetworkPolicies judged by cyclonus\n\nMade by `make e2e-cyclonus`. %d probes with packets of TCP and "+
		"UDP; `tries`: how often the steps of a case were\nprobed until all probes were as cyclonus' truth table says.\n\n"+
		"| Case | Policy | By pod address | Tries | By clusterIP | Tries |\n|---|---|---|---|---|---|\n", probes)
	for _, number := range slices.Sorted(maps.Keys(words)) {
		fmt.Fprintf(&b, "| %d | %s |", number, strings.ReplaceAll(words[number], "|", "\\|"))
		for _, mode := range cyclonusModes {
			one, run := by[key{number, mode}]
			how := "passed"
			switch {
			case !run:
				how = "not run"
			case !one.Passed:
				how = "**failed**"
			}
			fmt.Fprintf(&b, " %s | %s |", how, strings.Trim(fmt.Sprint(one.Tries), "[]"))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// answers answers at these ports as well, by TCP and UDP, until the test ends.
func (n *nic) answers(t *testing.T, ports ...string) {
	t.Helper()
	cmd, out := n.begin(context.Background(), t, "answer "+strings.Join(ports, " "))
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "listening\n" {
		t.Fatalf("the server of %s: %q %v", n.pod, line, err)
	}
}

// answerAt is the part of answers inside of the network namespace.
func answerAt(ports []string) int {
	for _, port := range ports {
		listener, err := net.Listen("tcp", ":"+port)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		datagrams, err := net.ListenPacket("udp", ":"+port)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		go accept(listener, port)
		go echo(datagrams, port)
	}
	fmt.Println("listening")
	select {}
}

// batch is the part of probe inside of the network namespace.
func batch() int {
	var requests []batchRequest
	if err := json.NewDecoder(os.Stdin).Decode(&requests); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	results := make([]batchResult, len(requests))
	var calls sync.WaitGroup
	for i, r := range requests {
		calls.Go(func() {
			results[i].Request = r
			at := net.JoinHostPort(r.Host, strconv.Itoa(r.Port))
			if _, err := dialWithin(time.Second, strings.ToLower(r.Protocol), at); err != nil {
				results[i].Error = err.Error()
			}
		})
	}
	calls.Wait()
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		return 1
	}
	return 0
}
