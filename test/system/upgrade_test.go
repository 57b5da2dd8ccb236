// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kuryr/raven/test/harness"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// previous is the commit of the previous release, 0.1.0. Its programs are built from the history of this repository.
const previous = "167dc3d6"

// buildPrevious builds the programs of the previous release below the folder of today's, once.
var buildPrevious = sync.OnceValues(func() (reason string, err error) {
	ctx := context.Background()
	if out, err := exec.CommandContext(ctx, "git", "cat-file", "-e", previous+"^{commit}").CombinedOutput(); err != nil {
		return fmt.Sprintf("commit %s, the previous release, is not in the history of this folder: %s", previous, out), nil
	}
	source := filepath.Join(filepath.Dir(programs), "previous")
	if err := os.Mkdir(source, 0o700); err != nil {
		return "", err
	}
	top := exec.CommandContext(ctx, "git", "archive", "--format=tar", previous)
	top.Dir = "../.."
	archive, err := top.Output()
	if err != nil {
		return "", fmt.Errorf("reading the previous release: %w", err)
	}
	unpack := exec.CommandContext(ctx, "tar", "-x", "-C", source)
	unpack.Stdin = bytes.NewReader(archive)
	if out, err := unpack.CombinedOutput(); err != nil {
		return "", fmt.Errorf("unpacking the previous release: %w: %s", err, out)
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o",
		filepath.Join(programs, "previous")+"/", "./cmd/raven", "./plugins/...")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the previous release: %w: %s", err, out)
	}
	return "", os.RemoveAll(source)
})

// release puts the programs of a release into the place of those that are there, as a package manager does.
func (r *rig) release(which string) {
	r.t.Helper()
	reason, err := buildPrevious()
	if err != nil {
		r.t.Fatal(err)
	}
	if reason != "" {
		r.t.Skip(reason)
	}
	for _, name := range []string{
		"raven", "raven-driver-namespace", "raven-driver-pod", "raven-driver-lbaas", "raven-driver-kubeproxy",
	} {
		r.install(filepath.Join(which, name), "bin/"+name)
	}
}

// The releases, by the folders of their programs.
const (
	old   = "previous"
	today = ""
)

// upgraded is what today's Raven writes when it takes over what the previous release left, and what that one writes
// when it is put back, for each pod: docs/upgrading.md lists it.
func upgraded(pods int) map[string]int { return map[string]int{"patch pods": pods} }

// TestCampaignUpgrade: what the previous release left is taken over as it is but for the annotations of pods, and taken
// back by it: in Neutron and Octavia, and in OVN's northbound database.
func TestCampaignUpgrade(t *testing.T) {
	harness.Campaign(t)
	t.Parallel()
	t.Run("lbaas", func(t *testing.T) {
		t.Parallel()
		r := newBalancerRig(t, simcloud.Provider{Name: "amphora", Work: brief()})
		r.upgrades(r.awaitServices, func() string { return "" })
	})
	t.Run("kubeproxy", func(t *testing.T) {
		t.Parallel()
		r := newNorthRig(t, simcloud.OVN(brief()))
		r.serve("kubeproxy")
		r.upgrades(r.awaitProxied, func() string {
			var text string
			for _, table := range []string{"Load_Balancer", "Load_Balancer_Group", "Logical_Router", "Logical_Switch"} {
				out, err := r.north.Ctl(t.Context(), "list", table)
				r.check(err)
				text += out
			}
			return text
		})
	})
}

// upgrades has the releases take turns. The other dump is what the cloud's own does not show.
func (r *rig) upgrades(await func(*raven), otherDump func() string) {
	t := r.t
	for _, name := range withoutPods() {
		r.vanish(name)
	}
	r.release(old)
	p := r.start()
	for _, ns := range []string{"shop", "blog"} {
		r.createNamespace(ns)
		r.scale(ns, "web", 2)
		r.createService(ns, "web", nil)
	}
	r.createService("shop", "public", object{"type": "LoadBalancer", "selector": object{"app": "web"}})
	await(p)
	p.stop()
	dump := func() string {
		return r.cloud.Dump(simcloud.DumpOptions{IDs: true, Identity: true, Addresses: true, MACs: true}) + otherDump()
	}
	left := dump()
	for _, step := range []struct {
		name, release string
		writes        map[string]int
	}{
		{"upgrade", today, upgraded(4)},
		{"second start", today, nil},
		{"rollback", old, upgraded(4)},
		{"second start of the previous one", old, nil},
		{"upgrade again", today, upgraded(4)},
	} {
		r.release(step.release)
		r.cloud.ResetLog()
		r.kube.ResetLog()
		p := r.start()
		await(p)
		p.stop()
		if writes := r.writes(); !maps.Equal(writes, step.writes) {
			t.Errorf("%s: it wrote %v, wanted %v", step.name, writes, step.writes)
		}
		if diff := harness.LineDiff(left, dump()); diff != "" {
			t.Errorf("%s: the cloud differs (-before +after):\n%s", step.name, diff)
		}
	}
}

// withoutPods are the namespaces that got networks from the previous release, and get none today by default.
func withoutPods() []string { return []string{"kube-public", "kube-node-lease"} }

// TestCampaignUpgradeOfNamespacesWithoutPods: their networks go, as the guard allows it, or stay where the option says
// so.
func TestCampaignUpgradeOfNamespacesWithoutPods(t *testing.T) {
	harness.Campaign(t)
	t.Parallel()
	for name, kept := range map[string]bool{"by default": false, "kept by the option": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.release(old)
			p := r.start()
			r.createNamespace("shop")
			there := func(p *raven, want int) {
				t.Helper()
				must(t, fmt.Sprint(want, " networks of namespaces without pods"), func() string {
					n := 0
					for _, network := range r.cloud.Networks() {
						if name, _ := network["name"].(string); slices.Contains(withoutPods(), name) {
							n++
						}
					}
					if n != want {
						return fmt.Sprint("there are ", n)
					}
					return p.settled()
				})
			}
			there(p, 2)
			p.stop()
			r.release(today)
			r.cloud.ResetLog()
			r.kube.ResetLog()
			if kept {
				r.conf.Set("namespace_subnet", "excluded_namespaces", "")
				p = r.start()
				there(p, 2)
				if writes := r.writes(); len(writes) > 0 {
					t.Errorf("it wrote %v", writes)
				}
			} else {
				p = r.start()
				there(p, 0)
			}
			p.stop()
		})
	}
}

// TestCampaignRollingUpgrade: two ravens take turns, one of the previous release and one of today's, while pods come
// and go; the leader is stopped, or killed. At the end cloud and cluster agree, and no two ever wrote at once.
func TestCampaignRollingUpgrade(t *testing.T) {
	harness.Campaign(t)
	t.Parallel()
	r := pair(t)
	r.conf.Set("kubernetes", "controller_ha", true) // which today's has no need of
	for _, name := range withoutPods() {
		r.vanish(name)
	}
	made := 0
	churn := func() {
		for range 6 {
			r.createPod("shop", fmt.Sprint("p-", made))
			if made++; made > 6 {
				r.deletePod("shop", fmt.Sprint("p-", made-7))
			}
		}
	}
	var all []*peer
	standby := func(release string, leader *peer) *peer {
		r.release(release)
		p := r.peer(fmt.Sprint("n", len(all)))
		all = append(all, p)
		if leader == nil {
			must(t, "a leader", p.leads)
			return p
		}
		churn()
		must(t, "one that stands by", func() string { return p.follows(leader) })
		return p
	}
	leader := standby(old, nil)
	r.createNamespace("shop")
	churn()
	for i, turn := range []struct {
		release string
		kill    bool
	}{{today, false}, {old, false}, {today, true}, {old, true}, {today, false}} {
		next := standby(turn.release, leader)
		churn()
		if turn.kill {
			leader.Kill()
		} else {
			leader.stop()
		}
		churn()
		must(t, fmt.Sprint("leader ", i+1), next.leads)
		leader = next
		churn()
	}
	r.awaitRest(leader.raven)
	for i, one := range all {
		for _, other := range all[i+1:] {
			oneAtATime(t, one, other)
		}
	}
	leader.stop()
}

// writes counts what was written to cloud and cluster, but for Leases and Events.
func (r *rig) writes() map[string]int {
	count := map[string]int{}
	for _, q := range r.cloud.Log(0) {
		if q.WriteN > 0 {
			count[q.Method+" "+q.Kind]++
		}
	}
	for _, q := range r.kube.Requests() {
		switch q.Verb {
		case "get", "list", "watch":
		default:
			if !strings.HasPrefix(q.Resource, "leases") && !strings.HasPrefix(q.Resource, "events") {
				count[q.Verb+" "+q.Resource]++
			}
		}
	}
	return count
}
