// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kuryr/raven/test/harness"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// served returns the phases of a workload of Services: made with endpoints, scaled and changed, gone.
func served() []phase {
	return []phase{
		func(r *rig) {
			r.createNamespace("shop")
			r.scale("shop", "web", 2)
			r.createService("shop", "web", both())
			r.createService("shop", "outside", object{"type": "LoadBalancer", "selector": object{"app": "web"}})
		},
		func(r *rig) {
			r.scale("shop", "web", 0)
			r.patchService("shop", "outside",
				`{"spec":{"type":"ClusterIP","ports":[{"name":"alt","port":8000,"targetPort":8080}]}}`)
		},
		func(r *rig) { r.scale("shop", "web", 3) },
		func(r *rig) { r.deleteService("shop", "web") },
		func(r *rig) { r.deleteNamespace("shop") },
	}
}

// bareOfServices deletes the Services that every cluster has.
func (r *rig) bareOfServices() {
	r.t.Helper()
	r.deleteService("default", "kubernetes")
	r.bare()
}

// ofServices says whether a request writes what only Services have.
func ofServices(q simcloud.Request) bool {
	kinds := []string{"loadbalancer", "listener", "pool", "member", "healthmonitor", "floatingip"}
	return q.WriteN > 0 && slices.Contains(kinds, q.Kind)
}

// servedReference runs the workload of Services undisturbed.
func servedReference(t *testing.T, provider simcloud.Provider) played {
	t.Helper()
	r := newBalancerRig(t, provider)
	r.bareOfServices()
	p := r.start()
	var result played
	for _, do := range served() {
		do(r)
		r.awaitServices(p)
		result.dumps = append(result.dumps, r.dump())
	}
	seen := map[int]bool{}
	for _, q := range r.cloud.Log(0) {
		if ofServices(q) && !seen[q.WriteN] {
			seen[q.WriteN] = true
			result.writes++
		}
	}
	p.stop()
	return result
}

// TestCampaignKillsAtWritesForServices kills raven at every write for Services; the end is as undisturbed.
func TestCampaignKillsAtWritesForServices(t *testing.T) {
	harness.Campaign(t)
	t.Parallel()
	for _, provider := range []simcloud.Provider{simcloud.Amphora(brief()), simcloud.OVN(brief())} {
		t.Run(provider.Name, func(t *testing.T) {
			t.Parallel()
			killedForServices(t, provider)
		})
	}
}

func killedForServices(t *testing.T, provider simcloud.Provider) {
	t.Helper()
	ref := servedReference(t, provider)
	type job struct {
		n    int
		when moment
	}
	var jobs []job
	for n := 1; n <= ref.writes; n++ {
		jobs = append(jobs, job{n, applied}, job{n, []moment{unapplied, late}[n%2]})
	}
	var killed atomic.Int32
	each(t, jobs, func(j job) string { return fmt.Sprintf("write %d/%s", j.n, j.when) }, func(t *testing.T, j job) {
		c := &crash{rig: newBalancerRig(t, provider), ref: ref, died: make(chan struct{})}
		c.bareOfServices()
		var mu sync.Mutex
		numbers := map[int]int{} // of the writes that count, by the number of the write
		c.cloud.OnRequest(func(_ int, q simcloud.Request) {
			if !ofServices(q) {
				return
			}
			mu.Lock()
			if !q.After {
				numbers[q.WriteN] = len(numbers) + 1
			}
			fatal := numbers[q.WriteN] == j.n && q.After == (j.when == applied)
			mu.Unlock()
			if fatal {
				c.die(j.when)
			}
		})
		if c.playPhases(served(), j.n%2 == 1) {
			killed.Add(1)
		}
	})
	// What is changed at once differs from run to run, but not by much.
	if least := len(jobs) * 7 / 10; int(killed.Load()) < least {
		t.Errorf("raven was killed in %d of %d runs only, wanted %d", killed.Load(), len(jobs), least)
	}
	t.Logf("killed in %d runs; undisturbed there are %d writes for Services", killed.Load(), ref.writes)
}
