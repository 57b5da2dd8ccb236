// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// The sizes of the pools that are measured, and how many pods come one after the other.
const (
	warmPool  = 100
	smallPool = 30
	poolAlone = 20
)

// pool measures pods that take ready ports: alone, as many at once as are ready, and three times as many, beside a
// namespace without a pool.
func (b *bench) pool(ctx context.Context, out *scenarioReport) (err error) {
	r, err := b.newRig(ctx, simcloud.LabLike(1, labWorkers), 3)
	if err != nil {
		return err
	}
	defer func() { err = closed(r, err) }()
	names := r.names
	began := time.Now()
	if err := r.usePools(warmPool, smallPool); err != nil {
		return err
	}
	if err := r.filled(ctx); err != nil {
		return err
	}
	b.say("%d ready ports after %s", warmPool+smallPool, time.Since(began).Round(time.Second))

	r.names = names[:1]
	alone := make([]time.Duration, 0, poolAlone)
	for i := range poolAlone {
		result, err := r.burst(ctx, fmt.Sprintf("alone%d", i+1), 1)
		if err != nil {
			return err
		}
		alone = append(alone, result.whole)
	}
	slices.Sort(alone)
	out.addTime("one pod, POST to annotated port, p50", percentile(alone, 0.5), "under 30 ms",
		fmt.Sprintf("%d times", poolAlone))
	if err := r.filled(ctx); err != nil {
		return err
	}
	r.stage.cloud.ResetLog()
	result, err := r.burst(ctx, "warm", warmPool)
	if err != nil {
		return err
	}
	before := len(r.stage.cloud.Log(0))
	out.addTime(fmt.Sprintf("%d pods, a warm pool of as many", warmPool), result.whole, "under 1 s", "")
	out.addNone("Neutron requests before the last annotation", before)
	lost := result.lost
	if err := r.filled(ctx); err != nil {
		return err
	}
	for i, about := range []string{fmt.Sprintf("a pool of %d", smallPool), "no pool"} {
		r.names = names[i+1 : i+2]
		result, err := r.burst(ctx, fmt.Sprintf("burst%d", i), 3*smallPool)
		if err != nil {
			return err
		}
		lost += result.lost
		b.say("%d pods, %s: %s", 3*smallPool, about, result.whole.Round(time.Millisecond))
		out.addTime(fmt.Sprintf("%d pods, %s", 3*smallPool, about), result.whole, "", "")
		if err := r.filled(ctx); err != nil {
			return err
		}
	}
	r.names = names
	out.addNone("pods lost", lost)
	return nil
}

// usePools has the first namespaces keep at least so many ready ports each.
func (r *rig) usePools(sizes ...int) error {
	for i, n := range sizes {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"kuryr.org/ports-pool-min":"%d"}}}`, n)
		if _, err := r.stage.kube.Patch(namespacesGVR(), "", r.names[i], types.MergePatchType, patch); err != nil {
			return fmt.Errorf("switching on the pool of %s: %w", r.names[i], err)
		}
	}
	return nil
}

// filled waits until the pools are full, and every other port is its pod's.
func (r *rig) filled(ctx context.Context) error {
	const n = warmPool + smallPool
	ready, taken := 0, 0
	err := r.until(ctx, 50*time.Millisecond, func() (bool, error) {
		ready = 0
		for _, port := range r.stage.cloud.Ports() {
			if port["name"] == "available-port" {
				ready++
			}
		}
		taken = len(r.podPorts())
		return ready >= n && taken == r.made, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %d ready ports: %w; %d are, and %d pods have their own", n, err, ready, taken)
	}
	return nil
}
