// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestContractKubernetes runs test/contract/kube, by which the simulated API is held to the real one, against the
// real one. It ends when the namespaces of that suite have gone: the next scenario's Raven would give networks to
// them.
func TestContractKubernetes(t *testing.T) {
	env := []string{"RAVEN_CONTRACT_KUBECONFIG=" + world.kubeconfig}
	harness := filepath.Join(world.bin, "raven-e2e")
	if _, err := os.Stat(harness); err == nil && world.stack != nil {
		env = append(env, fmt.Sprintf("RAVEN_CONTRACT_COMPACT=%s -dir %s forget", harness, world.stack.Dir()))
	}
	contract(t, "kube", "TestReal", env...)
	await(t, "the suite's namespaces to go", func(ctx context.Context) string {
		list, err := namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, ns := range list.Items {
			if strings.HasPrefix(ns.GetName(), "contract-") {
				return "namespace " + ns.GetName() + " is still there"
			}
		}
		return ""
	})
}

// TestContractNeutron runs test/contract/neutron against the real Neutron and Keystone.
func TestContractNeutron(t *testing.T) {
	contract(t, "neutron", "TestReal", "RAVEN_CONTRACT_CLOUD=e2e", "RAVEN_CONTRACT_ADMIN_CLOUD=e2e-admin",
		"OS_CLIENT_CONFIG_FILE="+world.clouds)
}

// TestContractOctaviaOVN runs test/contract/octavia against the real Octavia and its provider ovn.
func TestContractOctaviaOVN(t *testing.T) { octavia(t, "ovn") }

// TestContractOctaviaAmphora is the same for the provider amphora, with amphorae that do nothing.
func TestContractOctaviaAmphora(t *testing.T) { octavia(t, "amphora") }

func octavia(t *testing.T, provider string) {
	t.Helper()
	if world.cloud.balancing == nil {
		lacks(t, "the cloud has no load balancing service")
	}
	t.Cleanup(func() { // a suite that was broken off leaves what it made
		all, err := world.cloud.list(context.Background(), balancerKind, "project_id="+world.cloud.project)
		if err != nil {
			t.Error(err)
		}
		all = slices.DeleteFunc(all, func(lb thing) bool { return !strings.HasPrefix(lb.str("name"), "raven-contract-") })
		if len(all) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		t.Errorf("%d load balancers of the suite are left (%v)", len(all), world.cloud.removeBalancers(ctx, all))
	})
	contract(t, "octavia", "TestRealCloud/"+provider+"$", "RAVEN_CONTRACT_CLOUD=e2e",
		"RAVEN_CONTRACT_ADMIN_CLOUD=e2e-admin", "OS_CLIENT_CONFIG_FILE="+world.clouds)
}

// contract runs a suite as a developer does. Raven does not run meanwhile: the suite has the servers for itself. It
// is one process, that ends when this one does.
func contract(t *testing.T, name, pattern string, env ...string) {
	t.Helper()
	if world.running != nil {
		world.running.stop(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	program := filepath.Join(t.TempDir(), name+".test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", program, "./test/contract/"+name)
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the suite: %v: %s", err, out)
	}
	cmd := exec.CommandContext(ctx, program, "-test.count=1", "-test.v", "-test.run="+pattern)
	cmd.Dir, cmd.Env = filepath.Join(build.Dir, "test/contract", name), append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err := os.WriteFile(filepath.Join(world.artifacts,
		"contract-"+strings.NewReplacer("/", "-", "$", "").Replace(name+"-"+pattern)+".log"), out, 0o644); err != nil {
		t.Error(err)
	}
	passed, skipped := strings.Count(string(out), "--- PASS"), strings.Count(string(out), "--- SKIP")
	t.Logf("%d passed, %d skipped", passed, skipped)
	for line := range strings.Lines(string(out)) {
		if _, known, found := strings.Cut(line, " known: "); found {
			t.Logf("known: %s", strings.TrimSpace(known))
		}
	}
	// whose providers differ; the harness's stack has all that the others ask for
	if skipped > 0 && world.stack != nil && name != "octavia" {
		t.Errorf("%d parts of the suite were skipped:\n%s", skipped, failures(string(out)))
	}
	if err != nil || passed == 0 {
		t.Errorf("%v, %d passed:\n%s", err, passed, failures(string(out)))
	}
}

// failures are the lines of a test's output around what failed.
func failures(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "--- PASS") && !strings.HasPrefix(line, "=== ") {
			b.WriteString(line)
		}
	}
	return b.String()
}
