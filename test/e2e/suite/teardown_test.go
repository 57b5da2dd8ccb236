// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/kuryr/raven/test/harness"
)

// TestTeardown removes with `raven cleanup` what was made for a cluster that is gone. Without --yes nothing is
// removed; nor is it for a cluster that still answers. What is another cluster's, or nobody's, stays as it is.
func TestTeardown(t *testing.T) {
	other := makeCloud(t, "networks",
		thing{
			"name":        "default",
			"description": "raven:cluster=another raven:owner=namespace:1 raven:name=network raven:policy=delete",
		})
	nobodys := makeCloud(t, "security-groups", thing{"name": "default-sg"})
	s := world.standing
	if s == nil {
		s = newSite(t, "standing", nil)
	}
	t.Cleanup(func() {
		s.stop(t) // it would make again what is removed
		if err := world.cloud.purge(context.Background(), s.cluster); err != nil {
			t.Error(err)
		}
	})
	served := harness.Settings{}
	if world.cloud.balancing != nil && world.external != "" {
		served = servicesConf()
	}
	s.start(t, served)
	requestsOf(t)
	createNamespace(t, "td-a")
	webPods(t, "td-a", "a", "b")
	createService(t, "td-a", "web", map[string]any{"type": "LoadBalancer"})
	endpoints(t, "td-a", "web", 2)
	s.settled(t)
	s.stop(t)
	world.standing = nil
	deleteNamespace(t, "td-a")
	before, err := s.dump(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	unchanged := func(after string) {
		t.Helper()
		if now, err := s.dump(t.Context(), nil); err != nil || now != before {
			t.Fatalf("%s the cloud differs (%v):\n%s", after, err, harness.LineDiff(before, now))
		}
	}
	alive := filepath.Join(s.dir, "kuryr.conf")
	if status, out := cleanup(t, alive, "--cluster", s.cluster, "--yes"); status != 1 {
		t.Errorf("for a cluster that answers the exit status is %d:\n%s", status, out)
	}
	unchanged("for a cluster that answers")
	cloudOnly := filepath.Join(s.dir, "cleanup.conf")
	conf := harness.Settings{}.Set("neutron", "cloud", "e2e").Set("neutron", "clouds_file", world.clouds).String()
	if err := os.WriteFile(cloudOnly, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, out := cleanup(t, cloudOnly); status != 2 && status != 0 || !strings.Contains(out, s.cluster) ||
		!strings.Contains(out, "another") {
		t.Errorf("exit status %d; the list of clusters is:\n%s", status, out)
	}
	status, out := cleanup(t, cloudOnly, "--cluster", s.cluster)
	if status != 2 {
		t.Errorf("a dry run has exit status %d:\n%s", status, out)
	}
	all, err := world.cloud.ours(t.Context(), s.cluster)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if !strings.Contains(out, o.str("id")) {
			t.Errorf("the dry run does not name %s:\n%s", describe([]thing{o}), out)
		}
	}
	unchanged("after a dry run")
	if status, out := cleanup(t, cloudOnly, "--cluster", s.cluster, "--yes"); status != 0 {
		t.Errorf("exit status %d:\n%s", status, out)
	}
	if left, err := world.cloud.ours(t.Context(), s.cluster); err != nil || len(left) > 0 {
		t.Errorf("left in the cloud (%v): %s", err, strings.Join(describe(left), ", "))
	}
	if left := remains(t.Context()); len(left) > 0 && s.balances {
		t.Errorf("of load balancers there is left: %s", strings.Join(left, ", "))
	}
	if status, out := cleanup(t, cloudOnly, "--cluster", s.cluster); status != 0 {
		t.Errorf("with nothing to remove the exit status is %d:\n%s", status, out)
	}
	for kind, was := range map[string]thing{"network": other, "security_group": nobodys} {
		is, err := world.cloud.call(t.Context(), "GET", strings.ReplaceAll(kind, "_", "-")+"s/"+was.str("id"), nil)
		if gophercloud.ResponseCodeIs(err, 404) {
			t.Errorf("a %s of somebody else's was removed", kind)
			continue
		}
		if o, _ := is[kind].(map[string]any); err != nil || o["revision_number"] != was["revision_number"] {
			t.Errorf("a %s of somebody else's was changed: %v, was %v (%v)", kind, o, was, err)
		}
	}
}

// cleanup is `raven cleanup`; it returns the exit status and everything that is printed.
func cleanup(t *testing.T, conf string, args ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	started := time.Now()
	cmd := program(ctx, append([]string{"cleanup", "--config-file", conf}, args...)...)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	t.Logf("raven cleanup %s: exit status %d, %.1f s", strings.Join(args, " "), cmd.ProcessState.ExitCode(),
		time.Since(started).Seconds())
	return cmd.ProcessState.ExitCode(), string(out)
}
