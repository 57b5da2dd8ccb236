// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kuryr/raven/test/e2e/stack"
)

// TestServicesAmphora is a Service with what only provider amphora does, with amphorae that do nothing: no packets,
// but states. It has a health monitor and source ranges, also where Octavia's worker was killed while it was made;
// both go when the annotation and the spec say so; with another provider its load balancer is made anew.
func TestServicesAmphora(t *testing.T) {
	s := balancing(t)
	createNamespace(t, "sa-a")
	webPods(t, "sa-a", "w1", "w2")
	createService(t, "sa-a", "web",
		map[string]any{"type": "LoadBalancer", "loadBalancerSourceRanges": []any{"172.24.4.0/28"}},
		"kuryr.org/octavia-provider=amphora", "loadbalancer.openstack.org/enable-health-monitor=true",
		"loadbalancer.openstack.org/health-monitor-delay=7")
	endpoints(t, "sa-a", "web", 2)
	vip, _ := addressOf(t, "sa-a", "web")
	if world.controls != nil {
		t.Log("its worker is killed while it is made")
		underWay(t, vip, func(lb thing) bool { return lb != nil })
		killed(t, stack.OctaviaWorker)
		now := time.Now()
		started(t, stack.OctaviaWorker)
		s.settledWithHelp(t, now)
	}
	until := func(provider string, monitored, ranged bool) {
		t.Helper()
		await(t, "the load balancer to be as it is described", func(ctx context.Context) string {
			if amiss := s.amiss(ctx); amiss != "" {
				return amiss
			}
			return amphoraAmiss(ctx, vip, provider, monitored, ranged)
		})
	}
	until("amphora", true, true)
	patchService(t, "sa-a", "web",
		`{"metadata":{"annotations":{"loadbalancer.openstack.org/enable-health-monitor":"false"}},"spec":{"loadBalancerSourceRanges":null}}`)
	until("amphora", false, false)
	patchService(t, "sa-a", "web", `{"metadata":{"annotations":{"kuryr.org/octavia-provider":null}}}`)
	until("ovn", false, false)
	deleteService(t, "sa-a", "web")
	s.settled(t)
}

func amphoraAmiss(ctx context.Context, vip, provider string, monitored, ranged bool) string {
	found, err := world.cloud.list(ctx, balancerKind, "vip_address="+vip)
	if err != nil || len(found) != 1 {
		return fmt.Sprintf("there are %v (%v)", found, err)
	}
	p, err := partsOf(ctx, found[0])
	if err != nil || found[0].str("provider") != provider || len(p.pools) != 1 || len(p.listeners) != 1 {
		return fmt.Sprintf("the load balancer is %v with %v (%v)", found[0], p.lines(), err)
	}
	monitor := p.monitors[p.pools[0].str("id")]
	if (monitor != nil) != monitored ||
		monitored && (fmt.Sprint(monitor["delay"]) != "7" || monitor.str("provisioning_status") != "ACTIVE") {
		return fmt.Sprintf("the health monitor is %v", monitor)
	}
	if have := p.listeners[0].strs("allowed_cidrs"); slices.Contains(have, "172.24.4.0/28") != ranged {
		return fmt.Sprintf("allowed_cidrs are %v", have)
	}
	return ""
}
