// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kuryr/raven/test/sim/northbound"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// The sizes of the scenario with OVN. They do not depend on --pods.
const (
	ovnServices, ovnEndpoints = 1000, 10
	ovnChanges                = 300
	// ovnPause is the time between two changes that do not wait for each other.
	ovnPause = 5 * time.Millisecond
)

const ovnConf = "drivers = namespace, kubeproxy\n\n[ovn]\nnb_connection = %s\n"

// ovnRig is a rig whose Services are served by OVN.
type ovnRig struct {
	*rig
	database *northbound.Server
	neutron  *northbound.Neutron
	watch    *northbound.Watch
	slices   []map[string]any

	mu   sync.Mutex
	vips map[string]string    // the backends of each load balancer, by its name, as the database has them
	seen map[string]time.Time // when that was seen
	news chan struct{}        // 1: something was seen
}

// ovn measures Services in OVN's real northbound database.
func (b *bench) ovn(ctx context.Context, out *scenarioReport) (err error) {
	if err := northbound.Available(); err != nil {
		return err
	}
	o := &ovnRig{vips: map[string]string{}, seen: map[string]time.Time{}, news: make(chan struct{}, 1)}
	if o.rig, err = b.newRigWith(ctx, simcloud.None(), 10, setup{open: o.open}); err != nil {
		return errors.Join(err, o.end())
	}
	defer func() { err = errors.Join(closed(o.rig, err), o.end()) }()
	if err := o.firstSync(ctx, out); err != nil {
		return err
	}
	if err := o.changes(ctx, out); err != nil {
		return err
	}
	before := o.watch.Changes()
	if err := b.restart(ctx, o.rig, out); err != nil {
		return err
	}
	out.addNone("rows written to OVN after the restart", int(o.watch.Changes()-before))
	return nil
}

// open starts the database, with what looks on.
func (o *ovnRig) open(ctx context.Context, s *stage) (conf string, err error) {
	dir := filepath.Join(s.dir, "ovn")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("making a folder for OVN's northbound database: %w", err)
	}
	if o.database, err = northbound.Start(ctx, northbound.Config{Dir: dir}); err != nil {
		return "", err
	}
	if o.neutron, err = northbound.Follow(context.WithoutCancel(ctx), s.cloud, o.database.Unix()); err != nil {
		return "", err
	}
	o.watch, err = northbound.StartWatch(ctx, o.database.Unix(), o.see)
	return fmt.Sprintf(ovnConf, o.database.Unix()), err
}

func (o *ovnRig) end() error {
	var err error
	if o.watch != nil {
		o.watch.Close()
	}
	if o.neutron != nil {
		err = o.neutron.Close()
	}
	if o.database != nil {
		o.database.Kill()
	}
	return err
}

// see notes what a load balancer is now.
func (o *ovnRig) see(name string, vips map[string]string) {
	now := time.Now()
	o.mu.Lock()
	o.vips[name] = strings.Join(slices.Sorted(maps.Values(vips)), " ")
	o.seen[name] = now
	o.mu.Unlock()
	select {
	case o.news <- struct{}{}:
	default:
	}
}

func ovnName(namespace string, i int) string { return fmt.Sprintf("%s/app%d:tcp", namespace, i) }

// firstSync has Services and their endpoints there before raven starts.
func (o *ovnRig) firstSync(ctx context.Context, out *scenarioReport) error {
	if err := o.daemon.stop(o.bench.hurry); err != nil {
		return err
	}
	for i := range ovnServices {
		if err := o.make(i); err != nil {
			return err
		}
	}
	rows := o.watch.Changes()
	began := time.Now()
	d, err := o.stage.startRaven(o.bench.options.raven, o.conf)
	if err != nil {
		return err
	}
	o.daemon = d
	if err := o.until(ctx, 2*time.Millisecond, func() (bool, error) {
		return o.served() == ovnServices, nil
	}); err != nil {
		return fmt.Errorf("waiting for %d Services, %d are there: %w", ovnServices, o.served(), err)
	}
	if err := o.settled(ctx); err != nil {
		return fmt.Errorf("waiting until all is done: %w", err)
	}
	first, last := o.span()
	o.bench.say("%d Services in OVN, the last %s after raven was started", ovnServices,
		last.Sub(began).Round(time.Millisecond))
	out.addTime("first to last Service committed", last.Sub(first), "under 1 s",
		fmt.Sprintf("%d Services of %d endpoints each", ovnServices, ovnEndpoints))
	out.addTime("start of raven to last Service committed", last.Sub(began), "",
		"with its drivers, its caches and the first lists")
	out.add(measure{
		Name: "rows made or changed for that, per Service", Value: float64(o.watch.Changes()-rows) / ovnServices,
		Note: "a load balancer each; the group once per transaction",
	})
	return nil
}

// make creates a Service without selector, with its endpoints.
func (o *ovnRig) make(i int) error {
	namespace, name := o.names[i%len(o.names)], fmt.Sprintf("app%d", i)
	o.slices = append(o.slices, ovnSlice(namespace, name, i))
	if _, err := o.stage.kube.Create(slicesGVR(), o.slices[i]); err != nil {
		return fmt.Errorf("creating a slice: %w", err)
	}
	_, err := o.stage.kube.Create(servicesGVR(), map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": name, "namespace": namespace},
		"spec": map[string]any{"ports": []any{map[string]any{"port": int64(80), "targetPort": int64(8080)}}},
	})
	if err != nil {
		return fmt.Errorf("creating a service: %w", err)
	}
	return nil
}

func ovnSlice(namespace, name string, i int) map[string]any {
	endpoints := make([]any, 0, ovnEndpoints)
	for j := range ovnEndpoints {
		endpoints = append(endpoints, map[string]any{
			"addresses":  []any{fmt.Sprintf("10.%d.%d.%d", 200+i/250, i%250, j+1)},
			"conditions": map[string]any{"ready": true, "serving": true},
		})
	}
	return map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
		"metadata": map[string]any{
			"name": name + "-1", "namespace": namespace, "labels": map[string]any{"kubernetes.io/service-name": name},
		},
		"ports": []any{map[string]any{"name": "", "port": int64(8080), "protocol": "TCP"}},
	}
}

// served counts the Services that the database has with all their endpoints.
func (o *ovnRig) served() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for name, backends := range o.vips {
		if strings.Contains(name, "/app") && strings.Count(backends, ",") == ovnEndpoints-1 {
			n++
		}
	}
	return n
}

// span is when the first and the last of the Services was seen.
func (o *ovnRig) span() (first, last time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, at := range o.seen {
		if !strings.Contains(name, "/app") {
			continue
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return first, last
}

// changes measures changes of endpoints, from before the API server is told to the transaction being committed: one
// after the other, and in a row without waiting.
func (o *ovnRig) changes(ctx context.Context, out *scenarioReport) error {
	var alone, churn []time.Duration
	for i := range ovnChanges {
		began, done, err := o.change(i)
		if err != nil {
			return err
		}
		at, err := o.await(ctx, done)
		if err != nil {
			return err
		}
		alone = append(alone, at.Sub(began))
	}
	type pending struct {
		began time.Time
		done  func() (time.Time, bool)
	}
	var list []pending
	for i := range ovnChanges {
		began, done, err := o.change(ovnChanges + i)
		if err != nil {
			return err
		}
		list = append(list, pending{began, done})
		timer := time.NewTimer(ovnPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
	for _, p := range list {
		at, err := o.await(ctx, p.done)
		if err != nil {
			return err
		}
		churn = append(churn, at.Sub(p.began))
	}
	slices.Sort(alone)
	slices.Sort(churn)
	o.bench.say("a change is committed after %s (p50), %s (p99)", percentile(alone, 0.5).Round(time.Microsecond),
		percentile(alone, 0.99).Round(time.Microsecond))
	out.addTime("EndpointSlice change to committed transaction, p50", percentile(alone, 0.5), "",
		fmt.Sprintf("%d changes, one after the other", ovnChanges))
	out.addTime("EndpointSlice change to committed transaction, p99", percentile(alone, 0.99), "under 10 ms", "")
	out.addTime("the same under churn, p50", percentile(churn, 0.5), "",
		fmt.Sprintf("%d changes of as many Services, one every %s", ovnChanges, ovnPause))
	out.addTime("the same under churn, p99", percentile(churn, 0.99), "", "")
	return nil
}

// change gives a Service another endpoint, and returns how to tell whether, and when, the database had it.
func (o *ovnRig) change(i int) (began time.Time, done func() (time.Time, bool), err error) {
	n := i % ovnServices
	slice := o.slices[n]
	endpoints, _ := slice["endpoints"].([]any)
	endpoint, _ := endpoints[0].(map[string]any)
	address := fmt.Sprintf("10.250.%d.%d", i/250, i%250+1)
	endpoint["addresses"] = []any{address}
	name := ovnName(o.names[n%len(o.names)], n)
	began = time.Now()
	if _, err := o.stage.kube.Update(slicesGVR(), slice); err != nil {
		return began, nil, fmt.Errorf("changing a slice: %w", err)
	}
	return began, func() (time.Time, bool) {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.seen[name], strings.Contains(o.vips[name], address+":")
	}, nil
}

// await waits until a change is in the database, and returns when it was.
func (o *ovnRig) await(ctx context.Context, done func() (time.Time, bool)) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, o.bench.options.limit)
	defer cancel()
	for {
		if at, ok := done(); ok {
			return at, nil
		}
		select {
		case <-o.news:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("waiting for a change to be committed: %w", ctx.Err())
		case <-o.daemon.Ended:
			return time.Time{}, o.daemon.failure("raven ended by itself")
		}
	}
}
