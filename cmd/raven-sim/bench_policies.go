// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// The shape of the scenario with NetworkPolicies. Of the pods in a namespace each tenth has one of ten labels, and each
// of these has a policy.
const (
	policyLabels    = 10
	policyEndpoints = 10 // of the Service in each namespace
	policyFlips     = 10 // of endpoints, one after the other
	// policyRest is how long no object may be reconciled before a change counts as done; with few pods smallRest is.
	policyRest, smallRest, smallPods = time.Second, 200 * time.Millisecond, 100
	// softWait is how long after the last port the pods are looked at again whose ports waited for a policy's group.
	softWait = 11 * time.Second
)

const (
	withoutPolicies = "drivers = namespace, pod\n"
	withPolicies    = "drivers = namespace, pod, networkpolicy\n"
)

func networkPoliciesGVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}
}

// policing is the scenario's cluster: pods first, then the driver, then the policies.
type policing struct {
	*rig
	out *scenarioReport

	mu        sync.Mutex
	lastWrite time.Time // to the cloud
}

// policies measures ten pods for each policy: the driver is switched on, policies come, and one thing after the other
// changes.
func (b *bench) policies(ctx context.Context, out *scenarioReport) (err error) {
	pods := 10 * b.options.pods
	r, err := b.newRigWith(ctx, simcloud.None(), max(2, pods/100), setup{conf: withoutPolicies})
	if err != nil {
		return err
	}
	defer func() { err = closed(r, err) }()
	p := &policing{rig: r, out: out}
	r.stage.cloud.OnRequest(func(_ int, q simcloud.Request) {
		if q.After && q.Method != http.MethodGet {
			p.mu.Lock()
			p.lastWrite = time.Now()
			p.mu.Unlock()
		}
	})
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return p.fill(ctx, pods) }, p.enable, p.sync, p.changes,
		func(ctx context.Context) error { return b.restart(ctx, r, out) },
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fill makes the pods, and a Service with some endpoints in each namespace.
func (p *policing) fill(ctx context.Context, pods int) error {
	began := time.Now()
	for i := range pods {
		pod := benchPod(p.names[i%len(p.names)], fmt.Sprintf("pod-%d", i/len(p.names)), fmt.Sprintf("node-%d", i%10+1))
		//nolint:forcetypeassert // made above
		pod["metadata"].(map[string]any)["labels"] = map[string]any{"app": fmt.Sprintf("app-%d", i/len(p.names)%policyLabels)}
		if _, err := p.stage.kube.Create(podsGVR(), pod); err != nil {
			return fmt.Errorf("creating a pod: %w", err)
		}
		p.made++
	}
	for i, namespace := range p.names {
		service := map[string]any{
			"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "app-9", "namespace": namespace},
			"spec": map[string]any{"ports": []any{map[string]any{"port": int64(80), "targetPort": int64(8080)}}},
		}
		if _, err := p.stage.kube.Create(servicesGVR(), service); err != nil {
			return fmt.Errorf("creating a service: %w", err)
		}
		if _, err := p.stage.kube.Create(slicesGVR(), policySlice(i, namespace)); err != nil {
			return fmt.Errorf("creating a slice: %w", err)
		}
	}
	if err := p.settled(ctx); err != nil {
		return fmt.Errorf("waiting for the pods: %w", err)
	}
	p.bench.say("%d pods after %s", pods, time.Since(began).Round(time.Millisecond))
	return p.reportMemory(ctx, p.out, "without the driver", false)
}

// policySlice has pods with the last label as endpoints.
func policySlice(i int, namespace string) map[string]any {
	var endpoints []any
	for j := range policyEndpoints {
		endpoints = append(endpoints, map[string]any{
			"addresses":  []any{fmt.Sprintf("10.200.%d.%d", i%256, j+1)},
			"conditions": map[string]any{"ready": true, "serving": true},
			"targetRef": map[string]any{
				"kind": "Pod", "namespace": namespace, "name": fmt.Sprintf("pod-%d", policyLabels*j+policyLabels-1),
			},
		})
	}
	return map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
		"metadata": map[string]any{
			"name": "app-9-1", "namespace": namespace, "labels": map[string]any{"kubernetes.io/service-name": "app-9"},
		},
		"ports": []any{map[string]any{"name": "", "port": int64(8080), "protocol": "TCP"}},
	}
}

// enable starts Raven anew with the driver, while there is no policy yet: groups are made, and all ports move.
func (p *policing) enable(ctx context.Context) error {
	if err := p.daemon.stop(p.bench.hurry); err != nil {
		return err
	}
	p.conf = withPolicies
	p.stage.cloud.ResetLog()
	began := time.Now()
	var err error
	if p.daemon, err = p.stage.startRaven(p.bench.options.raven, p.conf); err != nil {
		return err
	}
	if err := p.rest(ctx, true, p.quiet(policyRest)); err != nil {
		return fmt.Errorf("waiting for the driver: %w", err)
	}
	const name = "driver enabled until the last port has moved"
	if err := p.wrote(ctx, name, began, nil); err != nil {
		return err
	}
	p.out.addTime(name+": processor time of the core", process{"core", p.daemon.Cmd.Process.Pid}.cpu(), "", "")
	return nil
}

// sync makes the policies all at once.
func (p *policing) sync(ctx context.Context) error {
	before, err := p.reconciles(ctx)
	if err != nil {
		return err
	}
	p.stage.cloud.ResetLog()
	core := process{"core", p.daemon.Cmd.Process.Pid}
	began, used := time.Now(), core.cpu()
	for i := range p.bench.options.pods {
		policy := policyOf(p.names[i%len(p.names)], i/len(p.names))
		if _, err := p.stage.kube.Create(networkPoliciesGVR(), policy); err != nil {
			return fmt.Errorf("creating a policy: %w", err)
		}
		p.others++
	}
	if err := p.rest(ctx, true, p.quiet(softWait)); err != nil {
		return fmt.Errorf("waiting for the policies: %w", err)
	}
	const name = "policies until the last port is in its groups"
	if err := p.wrote(ctx, name, began, before); err != nil {
		return err
	}
	p.out.addTime(name+": processor time of the core", core.cpu()-used, "", "")
	return p.reportMemory(ctx, p.out, "with policies", true)
}

// policyOf is the n-th policy of a namespace, for the pods with the n-th label. Most have peers in the namespace, some
// peers in all namespaces; two of ten isolate for egress, one of them by ranges, for which all Services count.
func policyOf(namespace string, n int) map[string]any {
	label := func(n int) map[string]any {
		return map[string]any{"matchLabels": map[string]any{"app": fmt.Sprintf("app-%d", n%policyLabels)}}
	}
	ports := []any{map[string]any{"protocol": "TCP", "port": int64(8080)}}
	spec := map[string]any{"podSelector": label(n)}
	switch n % policyLabels {
	case 6, 7:
		peers := []any{map[string]any{"namespaceSelector": map[string]any{}, "podSelector": label(n + 1)}}
		spec["ingress"] = []any{map[string]any{"from": peers, "ports": ports}}
	case 8:
		spec["policyTypes"] = []any{"Egress"}
		spec["egress"] = []any{map[string]any{"to": []any{map[string]any{"podSelector": label(9)}}, "ports": ports}}
	case 9:
		block := map[string]any{"cidr": "10.0.0.0/8", "except": []any{"10.201.0.0/16"}}
		spec["policyTypes"] = []any{"Egress"}
		spec["egress"] = []any{map[string]any{"to": []any{map[string]any{"ipBlock": block}}, "ports": ports}}
	default:
		peers := []any{map[string]any{"podSelector": label(n + 1)}}
		spec["ingress"] = []any{map[string]any{"from": peers, "ports": ports}}
	}
	return map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"metadata": map[string]any{"namespace": namespace, "name": fmt.Sprintf("policy-%d", n)}, "spec": spec,
	}
}

// changes are one label, one policy, and endpoints.
func (p *policing) changes(ctx context.Context) error {
	namespace := p.names[0]
	edited := policyOf(namespace, 0)
	//nolint:forcetypeassert // made above
	rule := edited["spec"].(map[string]any)["ingress"].([]any)[0].(map[string]any)
	rule["ports"] = []any{map[string]any{"protocol": "TCP", "port": int64(9090)}}
	err := p.change(ctx, "one pod's label", true, func() error {
		_, err := p.stage.kube.Patch(podsGVR(), namespace, "pod-0", types.MergePatchType,
			[]byte(`{"metadata": {"labels": {"app": "app-7"}}}`))
		return err
	})
	if err != nil {
		return err
	}
	if err := p.change(ctx, "one policy's port", true, func() error {
		_, err := p.stage.kube.Update(networkPoliciesGVR(), edited)
		return err
	}); err != nil {
		return err
	}
	slice := policySlice(0, namespace)
	endpoints, _ := slice["endpoints"].([]any)
	return p.change(ctx, fmt.Sprintf("%d endpoints, one after the other", policyFlips), false, func() error {
		for i := range policyFlips {
			endpoint, _ := endpoints[i%len(endpoints)].(map[string]any)
			endpoint["conditions"] = map[string]any{"ready": false, "serving": false}
			if _, err := p.stage.kube.Update(slicesGVR(), slice); err != nil {
				return err
			}
			if err := p.rest(ctx, false, p.quiet(policyRest)); err != nil {
				return err
			}
		}
		return nil
	})
}

// change measures one change: when the last write for it ended, and which objects it woke.
func (p *policing) change(ctx context.Context, name string, writes bool, do func() error) error {
	before, err := p.reconciles(ctx)
	if err != nil {
		return err
	}
	p.stage.cloud.ResetLog()
	began := time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := p.rest(ctx, writes, p.quiet(policyRest)); err != nil {
		return fmt.Errorf("waiting for what follows %s: %w", name, err)
	}
	return p.wrote(ctx, name, began, before)
}

// wrote reports the time until the last write, the writes, and what was reconciled since before.
func (p *policing) wrote(ctx context.Context, name string, began time.Time, before map[string]int) error {
	p.mu.Lock()
	took := max(0, p.lastWrite.Sub(began))
	p.mu.Unlock()
	writes, _ := split(neutronCounts(p.stage.cloud.Stats().Counts))
	p.bench.say("%s: %s", name, took.Round(time.Millisecond))
	if len(writes) > 0 {
		p.out.addTime(name, took, "", sumText(writes))
	} else {
		p.out.add(measure{Name: name, Text: "no write"})
	}
	if before == nil {
		return nil
	}
	after, err := p.reconciles(ctx)
	if err != nil {
		return err
	}
	for driver := range after {
		after[driver] -= before[driver]
	}
	p.out.add(measure{Name: name + ": reconciles", Value: float64(sum(after)), Note: sumText(after)})
	return nil
}

// quiet is how long no object may be reconciled: with few pods a shorter time.
func (p *policing) quiet(long time.Duration) time.Duration {
	if p.bench.options.pods < smallPods {
		return smallRest
	}
	return long
}

// rest waits until something was written, where writes are expected, every object is done, and none is reconciled for a
// while.
func (p *policing) rest(ctx context.Context, writes bool, quiet time.Duration) error {
	if err := p.until(ctx, 5*time.Millisecond, func() (bool, error) {
		return !writes || p.stage.cloud.Stats().Writes > 0, nil
	}); err != nil {
		return err
	}
	last, since := -1, time.Now()
	return p.until(ctx, 50*time.Millisecond, func() (bool, error) {
		if err := p.settled(ctx); err != nil {
			return false, err
		}
		counts, err := p.reconciles(ctx)
		if err != nil {
			return false, err
		}
		if n := sum(counts); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) >= quiet, nil
	})
}

// reconciles counts, by driver, how often an object was reconciled since Raven's start.
func (p *policing) reconciles(ctx context.Context) (map[string]int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.daemon.address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("reading raven's metrics: %w", err)
	}
	defer response.Body.Close()
	counts := map[string]int{}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), `raven_reconcile_duration_seconds_count{`)
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		parts := strings.Split(rest, `"`)
		if n, err := strconv.ParseFloat(fields[len(fields)-1], 64); err == nil && slices.Contains(parts, "driver=") {
			counts[parts[slices.Index(parts, "driver=")+1]] += int(n)
		}
	}
	return counts, lines.Err()
}
