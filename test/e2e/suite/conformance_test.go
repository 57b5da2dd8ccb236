// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kuryr/raven/test/e2e/machine"
)

// conformant are upstream's specs that a cluster's network is held to, and conformantSpecs how many these are in the
// version of test/e2e/kubernetes: none of them may be skipped.
const (
	conformant      = `\[sig-network\].*\[Conformance\]`
	conformantSpecs = 47
)

// TestConformance runs upstream's tests on real nodes. RAVEN_E2E_FOCUS and RAVEN_E2E_SKIP choose others (the focus
// "network": all network specs that can run here), RAVEN_E2E_SEED an order, and RAVEN_E2E_NETWORK another network: dual
// for pods with an address of each IP version, lbaas for Services by Octavia's provider ovn, policy for
// NetworkPolicies, bridge for plugins that are not Raven's, to compare with.
// RAVEN_E2E_PAGE is a file for the report as a page.
func TestConformance(t *testing.T) {
	cache, err := machine.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	programs, err := machine.E2ETest(t.Context(), "..", cache, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	name := cmp.Or(os.Getenv("RAVEN_E2E_NETWORK"), "raven")
	network, known := map[string]podNetwork{
		"raven": &ravenNetwork{}, "dual": &ravenNetwork{conf: dualStack}, "bridge": bridged{},
		"policy": &ravenNetwork{conf: policies},
		"lbaas":  &ravenNetwork{conf: servicesConf().Set("raven", "drivers", "namespace,pod,lbaas,node")},
	}[name]
	if !known {
		t.Fatalf("RAVEN_E2E_NETWORK is %q: say raven, dual, lbaas, policy or bridge", name)
	}
	realNodes(t, network)
	focus, skip := cmp.Or(os.Getenv("RAVEN_E2E_FOCUS"), conformant), os.Getenv("RAVEN_E2E_SKIP")
	list := decisions(t)
	if focus == "network" {
		focus, skip = `\[sig-network\]`, strings.Trim(skip+"|"+leftOut(list), "|")
	}
	seed := cmp.Or(os.Getenv("RAVEN_E2E_SEED"), fmt.Sprint(time.Now().Unix()))
	t.Logf("seed %s: RAVEN_E2E_SEED=%s repeats the order", seed, seed)
	all := upstream(t, programs, focus, skip, seed)
	count := judge(t, all, list)
	if focus == conformant && skip == "" && count["passed"] != conformantSpecs {
		t.Errorf("%d specs have passed, of %d", count["passed"], conformantSpecs)
	}
	if count["passed"] == 0 {
		t.Error("no spec has passed")
	}
	file := cmp.Or(os.Getenv("RAVEN_E2E_PAGE"), filepath.Join(artifacts(t), "conformance.md"))
	if err := os.WriteFile(file, []byte(page(t, name, seed, all, list)), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("the report as a page: %s", file)
}

// judge fails the test where a spec fails that is not listed, or passes though it is listed, and counts what became
// of those that were run.
func judge(t *testing.T, all []spec, list []*decision) map[string]int {
	t.Helper()
	count := map[string]int{}
	for _, one := range all {
		if one.NumAttempts == 0 {
			continue
		}
		listed := decided(list, one.name(), true)
		t.Logf("%-8s %6.1f s  %s", one.State, one.RunTime.Seconds(), one.name())
		switch {
		case one.State == "skipped":
			t.Logf("    %s", one.Failure.Message)
		case one.State == "passed" && listed != nil:
			t.Errorf("%s has passed, and specs.yaml says that it fails: %s", one.name(), listed.Cause)
		case one.State == "passed":
		case listed != nil:
			t.Logf("    as specs.yaml says: %s", listed.Cause)
			count["listed"]++
		default:
			t.Errorf("%s: %s", one.name(), one.Failure.Message)
			count["unlisted"]++
		}
		count[one.State]++
	}
	t.Logf("%d passed, %d skipped, %d failed as listed, %d failed", count["passed"], count["skipped"], count["listed"],
		count["unlisted"])
	return count
}

// spec is what ginkgo reports of one.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeText            string
	State                   string // passed, skipped, or how it failed
	NumAttempts             int    // 0: it was not chosen
	LeafNodeType            string
	RunTime                 time.Duration
	Failure                 struct{ Message string }
}

func (s spec) name() string {
	return strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")
}

// upstream runs upstream's e2e.test on the control plane's host, in random order, and returns the network specs, with
// what became of those that it ran.
func upstream(t *testing.T, programs, focus, skip, seed string) []spec {
	t.Helper()
	folder := artifacts(t)
	report := filepath.Join(folder, "report.json")
	net := world.stack.Network()
	args := []string{
		"--net=/run/netns/" + net.Control, filepath.Join(programs, "e2e.test"), "--provider=local",
		"--kubeconfig=" + net.Kubeconfig, "--kubectl-path=" + filepath.Join(world.stack.Tools().Kubelet, "kubectl"),
		"--non-blocking-taints=" + kwokTaint, "--num-nodes=2", "--disable-log-dump=true", "--dump-logs-on-failure=false",
		"--ginkgo.focus=" + focus, "--ginkgo.seed=" + seed, "--ginkgo.randomize-all", "--ginkgo.no-color",
		"--ginkgo.timeout=2h", "--ginkgo.json-report=" + report,
	}
	if skip != "" {
		args = append(args, "--ginkgo.skip="+skip)
	}
	log, err := os.Create(filepath.Join(folder, "e2e.test.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // it is for people
	cmd := exec.CommandContext(t.Context(), "nsenter", args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "KUBECONFIG="+net.Kubeconfig)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	ended := cmd.Run() // it fails where a spec does
	return specs(t, report, ended, log.Name())
}

// specs reads ginkgo's report.
func specs(t *testing.T, path string, ended error, log string) []spec {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("upstream's tests have left no report (%v): %s", ended, tail(log))
	}
	var suites []struct {
		SuiteSucceeded             bool
		SpecialSuiteFailureReasons []string
		SpecReports                []spec
	}
	if err := json.Unmarshal(content, &suites); err != nil || len(suites) != 1 {
		t.Fatalf("reading %s: %d suites, %v", path, len(suites), err)
	}
	var found []spec
	for _, one := range suites[0].SpecReports {
		switch {
		case one.LeafNodeType == "It" && (one.NumAttempts > 0 || strings.Contains(one.name(), "[sig-network]")):
			found = append(found, one)
		case one.LeafNodeType != "It" && one.State != "passed" && one.State != "skipped":
			t.Errorf("%s: %s: %s", one.LeafNodeType, one.State, one.Failure.Message)
		}
	}
	if !suites[0].SuiteSucceeded && !t.Failed() && ended != nil && context.Cause(t.Context()) == nil {
		for _, reason := range suites[0].SpecialSuiteFailureReasons {
			t.Error(reason)
		}
	}
	return found
}
